"""From prompts to tokens: the engine of continuous batching, and its sequences."""
