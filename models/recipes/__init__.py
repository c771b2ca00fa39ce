"""Training recipes, one for each kind of model."""
