"""Messages and stubs generated from text.proto."""
