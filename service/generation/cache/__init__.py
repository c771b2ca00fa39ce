"""Keys and values that outlast a step: slots, blocks, and the beginnings of prompts."""
