"""A model's own description and its readers: manifest, `config.pbtxt`, precision; no sessions."""
