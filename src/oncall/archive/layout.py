"""What an archive holds, declared once: its datasets, their columns, and where a file lies.

    ARCHIVE/findings/month=2026-11/cluster=a3/job=llama/5f1c09d2a7e4.parquet

A file is written under a temporary name and renamed, or is one object of a bucket: it is there as
a whole or not at all. A column may be added to a dataset; files that lack it have NULL there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from urllib.parse import quote, unquote

from oncall.evidence.table import Column

_NS_PER_S = 10**9
_LONGEST_NAME = 240  # bytes; file systems take 255, of which `cluster=` and `job=` are a part


@dataclass(frozen=True)
class Dataset:
    """One kind of row. Of `key`, the rows of one file count: those with the highest `newest`, which
    no row lacks. A file of more than `most_rows` is none of an archive's."""

    name: str
    columns: tuple[Column, ...]
    key: str
    newest: str
    order: str
    most_rows: int


def _columns(*columns: tuple[str, str, str, str]) -> tuple[Column, ...]:
    return tuple(Column(*column) for column in columns)


_WRITTEN = ("written_ns", "BIGINT", "ns", "when it was added, Unix time")
_PLACE = (("cluster", "VARCHAR", "", "the cluster's name"), ("job", "VARCHAR", "", "the job's"))

FINDINGS = Dataset(
    "findings",
    _columns(
        ("incident", "VARCHAR", "", "names the incident: of its cluster, job and window"),
        _WRITTEN,
        *_PLACE,
        ("since_ns", "BIGINT", "ns", "first instant of the evidence"),
        ("until_ns", "BIGINT", "ns", "last instant of the evidence"),
        ("result", "VARCHAR", "", "fault, none or inconclusive"),
        ("finding", "VARCHAR", "", "F1, F2 ...; NULL: nothing was found"),
        ("rulebook", "VARCHAR", "", "the rulebook"),
        ("verdict", "VARCHAR", "", "its verdict"),
        ("title", "VARCHAR", "", "the verdict in words"),
        ("fault_class", "VARCHAR", "", "hang, slow, network, host or application"),
        ("severity", "VARCHAR", "", "critical, warning or info"),
        ("confidence", "DOUBLE", "", "0..1"),
        ("explained_by", "VARCHAR", "", "the finding that it is a consequence of"),
        ("at_ns", "BIGINT", "ns", "since when; the end of the evidence if unknown"),
        ("kind", "VARCHAR", "", "what is blamed: node, gpu, nic, link, rank ..."),
        ("node", "VARCHAR", "", "its host, if known"),
        ("component", "VARCHAR", "", "what is blamed, such as gpu017/mlx5_3; NULL: no device"),
        ("rank", "INTEGER", "", "the blamed rank"),
    ),
    key="incident",
    newest="written_ns",
    order="at_ns, component",
    most_rows=2_000_000,  # a month of a job that is diagnosed every hour, 1,000 blamed each time
)

NOTES = Dataset(
    "notes",
    _columns(
        ("incident", "VARCHAR", "", "the incident that it is about"),
        _WRITTEN,
        *_PLACE,
        ("fixed_by", "VARCHAR", "", "what fixed it"),
    ),
    key="incident",
    newest="written_ns",
    order="incident",
    most_rows=100_000,
)


@dataclass(frozen=True)
class Measure:
    """One number of an hour of a device. `how`: mean, max, min, or gained, of a counter."""

    column: Column
    source: str
    how: str


@dataclass(frozen=True)
class Device:
    """What an hour is rolled up of: an evidence table, and the column that names the device."""

    kind: str
    table: str
    device: str
    measures: tuple[Measure, ...]


def _measure(name: str, type_: str, unit: str, source: str, how: str) -> Measure:
    return Measure(Column(name, type_, unit, f"{how} of {source}"), source, how)


DEVICES = (
    Device(
        "gpu",
        "gpus",
        "gpu",
        (
            _measure("temp_max_c", "FLOAT", "°C", "temp_c", "max"),
            _measure("power_mean_w", "FLOAT", "W", "power_w", "mean"),
            _measure("utilisation_mean", "FLOAT", "ratio", "utilisation", "mean"),
            _measure("sm_clock_min_mhz", "INTEGER", "MHz", "sm_clock_mhz", "min"),
            _measure("ecc_corrected", "BIGINT", "", "ecc_corrected", "gained"),
            _measure("ecc_uncorrected", "BIGINT", "", "ecc_uncorrected", "gained"),
            _measure("nvlink_errors", "BIGINT", "", "nvlink_errors", "gained"),
            _measure("pcie_replays", "BIGINT", "", "pcie_replays", "gained"),
            _measure("remapped_rows", "BIGINT", "", "remapped_rows", "gained"),
        ),
    ),
    Device(
        "nic",
        "nics",
        "nic",
        (
            _measure("tx_bytes", "BIGINT", "bytes", "tx_bytes", "gained"),
            _measure("rx_bytes", "BIGINT", "bytes", "rx_bytes", "gained"),
            _measure("link_downs", "BIGINT", "", "link_downs", "gained"),
            _measure("link_errors", "BIGINT", "", "link_errors", "gained"),
            _measure("corrected_bits", "BIGINT", "", "corrected_bits", "gained"),
            _measure("retransmits", "BIGINT", "", "retransmits", "gained"),
            _measure("timeouts", "BIGINT", "", "timeouts", "gained"),
            _measure("paused_ns", "BIGINT", "ns", "pfc_rx_pause_ns", "gained"),
        ),
    ),
    Device(
        "host",
        "hosts",
        "''",
        (
            _measure("cpu_busy_mean", "FLOAT", "ratio", "cpu_busy", "mean"),
            _measure("memory_min_bytes", "BIGINT", "bytes", "memory_available_bytes", "min"),
            _measure("memory_corrected", "BIGINT", "", "memory_corrected", "gained"),
            _measure("memory_uncorrected", "BIGINT", "", "memory_uncorrected", "gained"),
        ),
    ),
)
MEASURES = tuple(measure for device in DEVICES for measure in device.measures)

HOURS = Dataset(
    "hours",
    _columns(
        _WRITTEN,
        *_PLACE,
        ("hour_ns", "BIGINT", "ns", "the hour's first instant"),
        ("node", "VARCHAR", "", "host name"),
        ("kind", "VARCHAR", "", "gpu, nic or host"),
        ("device", "VARCHAR", "", "index or name on the node"),
        ("readings", "BIGINT", "", "readings in that hour"),
    )
    + tuple(measure.column for measure in MEASURES),
    key="cluster, node, kind, device, hour_ns",
    newest="readings",
    order="node, kind, device, hour_ns",
    most_rows=100_000_000,  # a month of 4,096 nodes of 17 devices, compacted: 50 million
)

DATASETS = {dataset.name: dataset for dataset in (FINDINGS, NOTES, HOURS)}


@dataclass(frozen=True, order=True)
class Partition:
    """Where rows of one month, cluster and job lie."""

    dataset: str
    month: str
    cluster: str
    job: str

    @property
    def folder(self) -> str:
        """The path below the archive; names are quoted, so that none leaves it."""
        cluster, job = map(_folder_name, (self.cluster, self.job))
        return f"{self.dataset}/month={self.month}/cluster={cluster}/job={job}"


def _folder_name(name: str) -> str:
    """The name as part of a path: a long one, of letters that each take nine characters, is cut
    and distinguished by a hash. A name that was cut stays as it is."""
    quoted = quote(name, safe="")
    if len(quoted) <= _LONGEST_NAME:
        return quoted
    cut = quote(name[: _LONGEST_NAME // 12], safe="")
    return f"{cut}~{blake2b(name.encode(), digest_size=8).hexdigest()}"


def partition_of(path: str) -> Partition | None:
    """The partition of a file below an archive; None if it is not a file of one."""
    parts = path.split("/")
    if len(parts) != 5 or parts[0] not in DATASETS or not parts[4].endswith(".parquet"):
        return None
    if parts[4].startswith("."):
        return None
    names = [part.partition("=") for part in parts[1:4]]
    if [name for name, _, _ in names] != ["month", "cluster", "job"]:
        return None
    return Partition(parts[0], *(unquote(value) for _, _, value in names))


def month_of(at_ns: int) -> str:
    """`2026-11`, in UTC."""
    return datetime.fromtimestamp(at_ns // _NS_PER_S, UTC).strftime("%Y-%m")


def scan(dataset: Dataset, files: Iterable[str]) -> str:
    """The FROM item of these files: exactly the columns of today, NULL where a file has none."""
    columns = ", ".join(
        f"'{c.name}': {{name: '{c.name}', type: '{c.type}', default_value: NULL}}"
        for c in dataset.columns
    )
    listed = ", ".join("'" + file.replace("'", "''") + "'" for file in files)
    return f"read_parquet([{listed}], schema = MAP {{{columns}}}, filename = true)"


def newest(dataset: Dataset, source: str, where: str = "true") -> str:
    """A SELECT of rows counted once: an incident that was added twice, or lies in a file and in
    the compacted one as well, is read from one file, the newest."""
    names = ", ".join(column.name for column in dataset.columns)
    latest = f"({dataset.newest}, filename)"
    return (
        f"SELECT {names} FROM {source} WHERE ({where}) AND {dataset.newest} IS NOT NULL "
        f"QUALIFY {latest} = max({latest}) OVER (PARTITION BY {dataset.key})"
    )
