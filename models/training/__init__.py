"""The loop that trains: batches in, weights out, and its state in a file."""
