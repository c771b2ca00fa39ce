"""The models by name and version: how they are loaded and unloaded."""
