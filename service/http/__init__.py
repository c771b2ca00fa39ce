"""The HTTP port: the same calls as gRPC's, for clients that speak JSON."""
