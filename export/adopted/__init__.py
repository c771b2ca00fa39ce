"""Graphs that other programs wrote, made to take and give what the server asks of its own."""
