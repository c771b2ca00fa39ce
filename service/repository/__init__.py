"""The models by name and version: loading beside, swapping, unloading."""
