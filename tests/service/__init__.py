"""The server, with fakes at its edges: sessions, clocks, folders."""
