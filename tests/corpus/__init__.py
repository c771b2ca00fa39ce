"""Requests to every path and method of a server, and what it answered: kept, and compared."""
