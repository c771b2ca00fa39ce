"""Whether a graph computes what the network computes, and how well."""
