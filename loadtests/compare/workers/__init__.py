"""Programs that drive one engine each, in the engine's own environment."""
