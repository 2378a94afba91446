"""Where the archive lies: `[archive]` of config.toml, the site's and above it the user's own.

[archive]
place = "/shared/oncall/archive"     # or "s3://bucket/oncall"
cluster = "a3"                       # the name under which this cluster's incidents lie
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oncall.core.configuration import read_settings, text_of
from oncall.core.errors import UsageError


@dataclass(frozen=True)
class ArchiveConfiguration:
    """Where the archive is, None if nothing says so, and the cluster's name."""

    place: str | None = None
    cluster: str = "default"


def read_configuration(files: Sequence[Path] | None = None) -> ArchiveConfiguration:
    """The configuration in force. Raises BadInput, naming file and key, for what is wrong."""
    readers = {"place": _printable, "cluster": _printable}
    return ArchiveConfiguration(**read_settings("archive", readers, files))


def _printable(value: Any) -> str:
    if not text_of(value).isprintable():
        raise UsageError(f"must be printable, not {value!r}")
    return text_of(value)
