"""The steps from a checkpoint to a version in a model repository, by kind of model."""
