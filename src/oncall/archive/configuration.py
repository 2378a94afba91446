"""Where the archive lies: `[archive]` of config.toml, the site's and above it the user's own.

[archive]
place = "/shared/oncall/archive"     # or "s3://bucket/oncall"
cluster = "a3"                       # the name under which this cluster's incidents lie
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from oncall.core.configuration import read_tables
from oncall.core.errors import BadInput

_KEYS = ("place", "cluster")


@dataclass(frozen=True)
class ArchiveConfiguration:
    """Where the archive is, None if nothing says so, and the cluster's name."""

    place: str | None = None
    cluster: str = "default"


def read_configuration(files: Sequence[Path] | None = None) -> ArchiveConfiguration:
    """The configuration in force. Raises BadInput, naming file and key, for what is wrong."""
    tables, problems = read_tables("archive", files)
    for problem in problems:
        raise problem
    values: dict[str, str] = {}
    for table in tables:
        for key, value in table.values.items():
            if key not in _KEYS:
                known = " and ".join(_KEYS)
                raise BadInput(
                    str(table.path), f"unknown option `{key}` in [archive]; known: {known}"
                )
            if not isinstance(value, str) or not value.strip() or not value.isprintable():
                raise BadInput(str(table.path), f"`{key}` in [archive] is text, not {value!r}")
            values[key] = value
    return ArchiveConfiguration(**values)
