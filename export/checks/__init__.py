"""Checks that a graph computes what the network computes, and how well."""
