"""Every rank as a cell."""
