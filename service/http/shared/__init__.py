"""Fields and answers that several dialects of HTTP share."""
