"""Servers over the network of this machine: how they are started, and who asks them."""
