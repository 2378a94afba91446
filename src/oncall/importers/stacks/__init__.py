"""Stacks of training processes: which function each of their threads is in."""
