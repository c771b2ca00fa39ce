"""What a client sees of a whole server process, against the protocol as Triton serves it."""
