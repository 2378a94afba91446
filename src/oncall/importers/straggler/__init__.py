"""Traces of the straggler analysis: one row a task."""
