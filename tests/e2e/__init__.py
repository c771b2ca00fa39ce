"""The whole, from outside: a real server process and unmodified clients."""
