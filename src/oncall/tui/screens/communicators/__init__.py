"""Communicators, their rounds, and what an operation transmitted."""
