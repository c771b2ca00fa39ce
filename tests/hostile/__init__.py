"""Bodies that a client might send to stop a server: one field of a request alone is long."""
