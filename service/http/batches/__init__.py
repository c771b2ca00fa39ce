"""OpenAI's files and batches: requests of a file, answered in the background into files."""
