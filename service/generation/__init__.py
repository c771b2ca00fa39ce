"""Text generation: many sequences at once, each step one token longer."""
