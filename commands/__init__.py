"""The `attendant` command: arguments in, tables, pictures or JSON out."""
