"""A collective in the network."""
