"""Iterations of the training, and one of them as a timeline."""
