"""A training iteration as a timeline."""
