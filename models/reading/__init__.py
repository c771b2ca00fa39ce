"""Reading for facts: entities in texts, and answers in contexts."""
