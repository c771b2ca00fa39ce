"""What is trained how: one recipe for each kind of model."""
