"""Commands that train models and import them."""
