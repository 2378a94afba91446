"""Text from files that others wrote, made fit for the database."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text, with what UTF-8 cannot hold (lone surrogates, odd file names) replaced by `?`."""
    return text.encode("utf-8", "replace").decode()
