"""Folders of dumps, read, and what is read of them."""

from __future__ import annotations

from tests.sql import rows

from oncall.importers import flight_recorder

WORLD = {"0": ("default_pg", range(2))}


def read(folder, incident):
    flight_recorder.read(sorted(folder.iterdir()), incident, "llama")


def ops(incident, columns, where="true"):
    return rows(incident, f"SELECT {columns} FROM ops WHERE {where} ORDER BY rank, enqueued_ns")
