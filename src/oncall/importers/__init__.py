"""Importers: recordings that engineers already have, as evidence."""
