"""Dynamic batching: from requests to full runs of a session."""
