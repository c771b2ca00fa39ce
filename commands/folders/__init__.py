"""Commands that serve, explain and check folders of models."""
