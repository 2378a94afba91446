"""A year of incidents: what was blamed, what fixed it, and what the hours looked like."""
