"""Waits across communicators, and where they begin."""
