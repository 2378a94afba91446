"""What texts of rulebooks say, YAML and SQL, kept from one run to the next: reading them is a tenth
of a diagnosis."""

from __future__ import annotations

from typing import Any

from oncall.core.kept_files import KeptFiles

# Files of some 15 KB: five times the rulebooks and facts that ship.
_TEXTS = KeptFiles("rulebooks", most=2000)


def kept(text: str) -> Any:
    """The data of a text that was read before, else None."""
    return _TEXTS.get(text)


def keep(text: str, data: Any) -> None:
    """Keep the data of a text, if JSON can say it and there is a place for it."""
    _TEXTS.keep(text, data)
