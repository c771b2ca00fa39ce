"""The typed API's package."""
