"""All networks of transformers that write texts, traced and compared."""
