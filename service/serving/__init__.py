"""One loaded model that answers."""
