"""Connections to a server, by gRPC or HTTP, with TLS and keys."""
