"""The steps of every front with a request, for any protocol."""
