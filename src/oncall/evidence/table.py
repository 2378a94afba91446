"""The definition of an evidence table, and the columns that many tables share."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """One column: its DuckDB type, its unit ("" for names and counts) and what it means."""

    name: str
    type: str
    unit: str
    meaning: str


@dataclass(frozen=True)
class Table:
    """One kind of evidence: its name in a sentence, what one row is, and where it comes from."""

    name: str
    data: str
    row: str
    source: str
    columns: tuple[Column, ...]

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)


def table(
    name: str, data: str, row: str, source: str, *columns: tuple[str, str, str, str]
) -> Table:
    """A table of (name, type, unit, meaning) columns."""
    return Table(name, data, row, source, tuple(Column(*column) for column in columns))


JOB = ("job", "VARCHAR", "", "the job's name")
RANK = ("rank", "INTEGER", "", "global rank in the job")
NODE = ("node", "VARCHAR", "", "host name")
NIC = ("nic", "VARCHAR", "", "RDMA device name")
COMM = ("comm", "UBIGINT", "", "communicator: NCCL's commHash, or a hash of its name and members")
SEQ = (
    "seq",
    "BIGINT",
    "",
    "the operation's number on its communicator; (comm, seq) is CCL-D's Trace ID",
)
AT = ("at_ns", "BIGINT", "ns", "instant, Unix time on the node's clock")
QPN = ("qpn", "UINTEGER", "", "queue pair number")
