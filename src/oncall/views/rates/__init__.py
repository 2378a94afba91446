"""Rates over time, as charts show them: of ranks, of their transfers, of NICs."""
