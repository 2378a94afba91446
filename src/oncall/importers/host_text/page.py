"""What one file of a host gives: rows of evidence, and what it could not show."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Row = dict[str, Any]
NVIDIA_SMI = "nvidia-smi"  # the source of its events
MOST_GPUS = 1024
MIB = 1 << 20


@dataclass
class Page:
    """One file while it is read. `node` and `at_ns` come from its name and its time, until a line
    states them; NULL where neither does. `stated_ns` is the time that the text itself states."""

    path: Path
    node: str | None
    at_ns: int
    rows: dict[str, list[Row]] = field(default_factory=dict)
    written_ns: int | None = None
    stated_ns: int | None = None
    note: str = ""  # what it shows, for the report

    def state(self, at_ns: int | None) -> None:
        """Take the instant that the text states, if it does."""
        self.stated_ns = at_ns
        self.at_ns = at_ns or self.at_ns

    def add(self, table: str, **columns: Any) -> Row:
        """A row of `table` of this host, at the file's instant unless `columns` say another."""
        row = {"node": self.node, "at_ns": self.at_ns, **columns}
        self.rows.setdefault(table, []).append(row)
        return row

    def gpu(self, index: int, **about: str | None) -> None:
        """A row of `devices`."""
        self.add("devices", kind="gpu", device=str(index), **about)

    def event(
        self, source: str, code: str, device: str | None, text: str, line: int, **columns: Any
    ) -> Row:
        """A row of `host_events`. When a file was written is not when something happened."""
        return self.add(
            "host_events",
            at_ns=self.stated_ns,
            source=source,
            code=code,
            device=device,
            text=text,
            path=str(self.path),
            line=line,
            **columns,
        )


def number(text: str | None) -> float | None:
    """The number that a value such as `66.20 W`, `100 %` or `16x` begins with."""
    word = (text or "").strip().split(" ")[0].rstrip("%xXCWMiB")
    try:
        value = float(word)
    except ValueError:
        return None
    return value if abs(value) < 1e15 else None


def whole(text: str | None) -> int | None:
    """The same as an integer."""
    value = number(text)
    return None if value is None else int(value)


def mib(text: str | None) -> int | None:
    """The same in bytes, of MiB."""
    count = whole(text)
    return None if count is None else count * MIB
