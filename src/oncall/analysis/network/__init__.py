"""Vedrfolnir's view: steps of a collective's flows, switches, PFC pauses and their roots."""
