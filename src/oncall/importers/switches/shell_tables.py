"""Tables as SONiC's commands print them: a heading, a line of dashes, rows until an empty line.

The heading identifies the kind of table. Numbers may have separators (1,234); N/A is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

NS_PER_MS = 1_000_000
_GAP = re.compile(r"\s{2,}")
_NUMBER = re.compile(r"\d{1,3}(?:,\d{3})+|\d{1,18}")
_UNKNOWN = {"N/A", "INVALID", "-"}


@dataclass(frozen=True)
class Reading:
    """A counter of a port, or of one priority of it, by its column in nics or nic_priorities."""

    port: str
    priority: int | None
    column: str
    value: int


Row: TypeAlias = Sequence[str]
Reader: TypeAlias = Callable[[Sequence[str], Row], Iterator[Reading]]


def reader_of(heading: str) -> tuple[list[str], Reader] | None:
    """The columns of a table, and how its rows are read; None where a line is no known heading."""
    columns = _GAP.split(heading.strip())
    if len(columns) > 1:
        for is_kind, reader in _KINDS:
            if is_kind(columns):
                return columns, reader
    return None


def is_rule(line: str) -> bool:
    """The line between heading and rows."""
    return bool(line.strip()) and not set(line) - set("- \t")


def cells(line: str, columns: Sequence[str]) -> list[str] | None:
    """The cells of a row; None if they are not as many as columns."""
    found = line.split() if len(line.split()) == len(columns) else _GAP.split(line.strip())
    return found if len(found) == len(columns) else None


def number(cell: str) -> int | None:
    """The number in a cell; None where it is unknown. Raises ValueError for anything else."""
    if cell in _UNKNOWN:
        return None
    if not _NUMBER.fullmatch(cell):
        raise ValueError(cell)
    return int(cell.replace(",", ""))


# -------------------------------------------------------------------- kinds


def _by_priority(column: str) -> Reader:
    """A row a port, a column a priority (PFC3, UC3)."""

    def read(columns: Sequence[str], row: Row) -> Iterator[Reading]:
        for name, cell in zip(columns[1:], row[1:], strict=True):
            value = number(cell)
            if value is not None:
                yield Reading(row[0], int(re.sub(r"\D", "", name)), column, value)

    return read


def _queue_counters(columns: Sequence[str], row: Row) -> Iterator[Reading]:
    """`show queue counters`: a row a queue; those of multicast are no priority's."""
    queue = re.fullmatch(r"UC(\d{1,2})", row[1])
    if queue is None:
        return
    for name, column in _OF_QUEUES.items():
        value = number(row[columns.index(name)]) if name in columns else None
        if value is not None:
            yield Reading(row[0], int(queue[1]), column, value)


def _history(columns: Sequence[str], row: Row) -> Iterator[Reading]:
    """`show pfc counters --history`: for how long a priority had to pause, in all."""
    priority = re.fullmatch(r"PFC(\d)", row[1])
    value = number(row[columns.index("Total RX Pause Time MS")])
    if priority is not None and value is not None:
        yield Reading(row[0], int(priority[1]), "rx_pause_ns", value * NS_PER_MS)


def _watchdog(columns: Sequence[str], row: Row) -> Iterator[Reading]:
    """`show pfcwd stats`: how often a queue was found to be paused without end."""
    port, _, queue = row[0].rpartition(":")
    detected = number(row[columns.index(_STORMS)].partition("/")[0])
    if port and re.fullmatch(r"\d{1,2}", queue) and detected is not None:
        yield Reading(port, int(queue), "storms", detected)


def _ignored(columns: Sequence[str], row: Row) -> Iterator[Reading]:  # noqa: ARG001
    """A known table without counters that are kept."""
    yield from ()


def _interface(columns: Sequence[str], row: Row) -> Iterator[Reading]:
    """`show interfaces counters`, also `... fec-stats`: packets in error or dropped, or codewords
    that could not be corrected; and whether the link is up."""
    for name, column in (_OF_INTERFACES | _OF_FEC).items():
        value = number(row[columns.index(name)]) if name in columns else None
        if value is not None:
            yield Reading(row[0], None, column, value)
    state = row[columns.index("STATE")]
    if state in ("U", "D"):
        yield Reading(row[0], None, "link_up", int(state == "U"))


_STORMS = "STORM DETECTED/RESTORED"
_OF_QUEUES = {
    "Counter/bytes": "tx_bytes",
    "Drop/pkts": "discards",
    "EcnMarked/pkts": "marked",
}
_OF_INTERFACES = {"RX_ERR": "link_errors", "RX_DRP": "rx_discards", "TX_DRP": "tx_discards"}
_OF_FEC = {"FEC_UNCORR": "link_errors"}


def _named(first: Sequence[str], others: str) -> Callable[[Sequence[str]], bool]:
    return lambda columns: (
        columns[0] in first and all(re.fullmatch(others, name) for name in columns[1:])
    )


_KINDS: tuple[tuple[Callable[[Sequence[str]], bool], Reader], ...] = (
    (_named(("Port Rx",), r"PFC\d"), _by_priority("rx_pause")),
    (_named(("Port Tx",), r"PFC\d"), _by_priority("tx_pause")),
    (_named(("Port", "Interface"), r"UC\d{1,2}"), _by_priority("queue_bytes")),
    (_named(("Port", "Interface"), r"(?:MC|ALL|PG)\d+"), _ignored),
    (lambda columns: columns[:3] == ["Port", "TxQ", "Counter/pkts"], _queue_counters),
    (lambda columns: "Total RX Pause Time MS" in columns, _history),
    (
        lambda columns: (
            columns[0] == "IFACE"
            and any({"STATE", *names} <= {*columns} for names in (_OF_INTERFACES, _OF_FEC))
        ),
        _interface,
    ),
    (lambda columns: columns[0] == "QUEUE" and _STORMS in columns, _watchdog),
)
