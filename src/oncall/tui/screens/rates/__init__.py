"""Rates over time."""
