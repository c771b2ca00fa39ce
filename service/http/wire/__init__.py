"""Bytes of HTTP: connections, framing, TLS, compression, and the JSON of messages."""
