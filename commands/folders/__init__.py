"""What serves, explains and checks folders of models."""
