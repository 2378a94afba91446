"""Codes and names that collectors, importers and analyses share: one table each."""
