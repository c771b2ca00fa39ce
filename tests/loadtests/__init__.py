"""The load generator: its arithmetic, its policy in simulations, and against servers."""
