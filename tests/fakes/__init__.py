"""Stand-ins for what tests do not run, and small models made for them."""
