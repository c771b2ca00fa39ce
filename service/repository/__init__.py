"""The models by name and version: loading and unloading."""
