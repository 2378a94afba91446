"""An archive: rows in, each file at once; rows out, each counted once, damaged files left out."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

import duckdb

from oncall.archive.configuration import read_configuration
from oncall.archive.incidents import Row, hours_of
from oncall.archive.layout import (
    DATASETS,
    FINDINGS,
    HOURS,
    NOTES,
    Dataset,
    Partition,
    month_of,
    newest,
    partition_of,
    scan,
)
from oncall.archive.place import Place, connection, place_at
from oncall.core.errors import BadInput, UsageError, short_reason

T = TypeVar("T")
_PARQUET = "FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE 65536"
_COMPACTED = "all-"  # how the names of compacted files begin
_MOST_SAID = 3  # damaged files
_TRIES = 3  # a compaction may take files away between the list and the reading


@dataclass(frozen=True)
class Damaged:
    """A file that cannot be read, and why."""

    path: str
    why: str


@dataclass
class Archive:
    """An archive at its place. `damaged` gathers the files that queries left out."""

    place: Place
    damaged: list[Damaged] = field(default_factory=list)

    @classmethod
    def at(cls, where: str, *, create: bool = False) -> Archive:
        """The archive there. Raises BadInput if there is no such folder."""
        return cls(place_at(where, create=create))

    def damage_phrases(self) -> list[str]:
        """What queries left out, a few sentences."""
        said = [f"left out, damaged or half-written: {one.path}: {one.why}" for one in self.damaged]
        more = len(said) - _MOST_SAID
        return (
            said
            if more <= 0
            else [
                *said[:_MOST_SAID],
                f"... and {more} more; see `oncall archive verify`",
            ]
        )

    # ------------------------------------------------------------------ rows in

    def add(self, rows: Sequence[Row]) -> bool:
        """Add the rows of one incident; False if the archive has that incident with the same rows,
        whoever added it. A diagnosis that changed replaces the former one."""
        first = rows[0]
        partition = Partition(
            "findings", month_of(first["until_ns"]), first["cluster"], first["job"]
        )
        if _alike(rows, self._known(partition, first["incident"])):
            return False
        self._write(FINDINGS, partition, first["incident"], rows)
        return True

    def _known(self, partition: Partition, incident: str) -> list[Row]:
        def read(con: duckdb.DuckDBPyConnection, files: Sequence[str]) -> list[Row]:
            if not files:
                return []
            where = f"incident = '{incident}'"
            found = con.execute(newest(FINDINGS, scan(FINDINGS, files), where))
            names = [column[0] for column in found.description or ()]
            return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

        def files() -> list[str]:
            names = (incident, _COMPACTED)
            listed = self.files(FINDINGS, partition.folder)
            return [path for path, _ in listed if path.rpartition("/")[2].startswith(names)]

        return self.read(read, files)

    def add_hours(
        self, con: duckdb.DuckDBPyConnection, cluster: str, job: str, written_ns: int
    ) -> int:
        """Add the hours that an incident's tables measured; how many rows. Adding the same
        evidence again changes nothing."""
        con.execute(
            f"CREATE OR REPLACE TEMP TABLE hours AS {hours_of(con, cluster, job, written_ns)}"
        )
        found = con.execute(
            "SELECT strftime(make_timestamp_ns(hour_ns), '%Y-%m'), count(*), "
            "bit_xor(hash(node, kind, device, hour_ns, readings)) FROM hours GROUP BY ALL"
        ).fetchall()
        for month, _, marks in found:
            select = f"FROM hours WHERE strftime(make_timestamp_ns(hour_ns), '%Y-%m') = '{month}'"
            partition = Partition(HOURS.name, month, cluster, job)
            self.write(con, HOURS, partition, f"{marks:016x}", select)
        con.execute("DROP TABLE hours")
        return sum(count for _, count, _ in found)

    def solved(self, incident: str, fixed_by: str, written_ns: int) -> None:
        """Note what fixed an incident; the last note counts. Raises UsageError if it is unknown."""

        def read(con: duckdb.DuckDBPyConnection, files: Sequence[str]) -> list[Any]:
            if not files:
                return []
            return con.execute(
                f"SELECT cluster, job, until_ns FROM {scan(FINDINGS, files)} "
                "WHERE incident = ? LIMIT 1",
                [incident],
            ).fetchall()

        found = self.read(read, lambda: [path for path, _ in self.files(FINDINGS)])
        if not found:
            raise UsageError(f"no incident {incident} in this archive; see `oncall history`")
        ((cluster, job, until_ns),) = found
        row = {"incident": incident, "written_ns": written_ns, "cluster": cluster, "job": job}
        partition = Partition(NOTES.name, month_of(until_ns), cluster, job)
        name = f"{incident}-{written_ns}"
        self._write(NOTES, partition, name, [row | {"fixed_by": fixed_by}])

    def _write(
        self, dataset: Dataset, partition: Partition, name: str, rows: Sequence[Row]
    ) -> None:
        with connection([]) as con:
            columns = ", ".join(f"{column.name} {column.type}" for column in dataset.columns)
            con.execute(f"CREATE TEMP TABLE rows ({columns})")
            lists = ", ".join(f"unnest(?::{column.type}[])" for column in dataset.columns)
            con.execute(
                f"INSERT INTO rows SELECT {lists}",
                [[row.get(column.name) for row in rows] for column in dataset.columns],
            )
            self.write(con, dataset, partition, name, "FROM rows")

    def write(
        self,
        con: duckdb.DuckDBPyConnection,
        dataset: Dataset,
        partition: Partition,
        name: str,
        select: str,
    ) -> str:
        """Write a SELECT's rows as one file of a partition; its path."""
        path = f"{partition.folder}/{name}.parquet"
        with tempfile.TemporaryDirectory(prefix="oncall-archive-") as folder:
            file = Path(folder, "rows.parquet")
            con.execute(f"COPY (FROM ({select}) ORDER BY {dataset.order}) TO '{file}' ({_PARQUET})")
            self.place.put(file, path)
        return path

    # ----------------------------------------------------------------- rows out

    def files(
        self,
        dataset: Dataset,
        below: str = "",
        wanted: Callable[[Partition], bool] = lambda _: True,
    ) -> list[tuple[str, int]]:
        """The files of a dataset, with their bytes; of a folder, or of the partitions wanted."""
        left_out = {one.path for one in self.damaged}
        return [
            (path, size)
            for path, size in self.place.listed(below or dataset.name)
            if path not in left_out
            and (partition := partition_of(path)) is not None
            and wanted(partition)
        ]

    def read(
        self,
        ask: Callable[[duckdb.DuckDBPyConnection, Sequence[str]], T],
        files: Callable[[], list[str]],
    ) -> T:
        """What `ask` answers of these files. Those that turn out to be damaged are left out and
        listed in `damaged`; files that a compaction took away are looked for again."""
        for attempt in range(_TRIES):
            listed = files()
            addresses = [self.place.address(path) for path in listed]
            try:
                with connection(addresses) as con:
                    large = _too_large(con, listed, addresses)
                    self.damaged += large
                    if not large:
                        return ask(con, addresses)
            except (duckdb.Error, OSError) as error:
                gone = self._set_out(listed)
                if not gone and attempt == _TRIES - 1:
                    raise BadInput("the archive", short_reason(error)) from error
        raise BadInput("the archive", "its files change faster than they can be read")

    def _set_out(self, paths: Iterable[str]) -> bool:
        """Leave the damaged files among these out from now on; whether there are any."""
        found = [one for path in paths if (one := self.checked(path, whole=True)) is not None]
        self.damaged += found
        return bool(found)

    def checked(self, path: str, *, whole: bool = False) -> Damaged | None:
        """What is wrong with a file: its footer and what no row lacks, or every value of it."""
        partition = partition_of(path)
        if partition is None:
            return Damaged(path, "not a file of an archive")
        address = self.place.address(path)
        dataset = DATASETS[partition.dataset]
        what = "count(COLUMNS(*))" if whole else f"count({dataset.newest})"
        lacks = f"count(*) FILTER ({dataset.newest} IS NULL)"
        try:
            with connection([address]) as con:
                if large := _too_large(con, [path], [address]):
                    return large[0]
                found = con.execute(
                    f"SELECT {lacks}, {what} FROM {scan(dataset, [address])}"
                ).fetchone()
                if found and found[0]:
                    return Damaged(path, f"{found[0]:,} rows that no archive wrote")
        except FileNotFoundError:
            return None
        except (duckdb.Error, OSError) as error:
            if path not in {name for name, _ in self.place.listed(partition.folder)}:
                return None  # a compaction took it away
            which = f'Error while reading file "{address}": '
            return Damaged(path, short_reason(error, without=which))
        return None


def _too_large(
    con: duckdb.DuckDBPyConnection, paths: Sequence[str], addresses: Sequence[str]
) -> list[Damaged]:
    """The files that by their footers have more rows than one of an archive."""
    if not addresses:
        return []
    asked = "SELECT file_name, num_rows FROM parquet_file_metadata(?)"
    rows = dict(con.execute(asked, [list(addresses)]).fetchall())
    return [
        Damaged(path, f"{rows[address]:,} rows, more than a file of an archive has")
        for path, address in zip(paths, addresses, strict=True)
        if rows[address] > DATASETS[path.partition("/")[0]].most_rows
    ]


def _alike(rows: Sequence[Row], known: Sequence[Row]) -> bool:
    def marks(these: Sequence[Row]) -> set[str]:
        return {
            str([row.get(c.name) for c in FINDINGS.columns if c.name != "written_ns"])
            for row in these
        }

    return marks(rows) == marks(known)


def grouped(paths: Iterable[str]) -> dict[Partition, list[str]]:
    """The files of each partition."""
    found = sorted((partition, path) for path in paths if (partition := partition_of(path)))
    return {
        partition: [path for _, path in those]
        for partition, those in groupby(found, key=lambda one: one[0])
    }


def name_of(paths: Iterable[str]) -> str:
    """The name of the file that these are compacted into: of other files, another."""
    return _COMPACTED + blake2b("\0".join(sorted(paths)).encode(), digest_size=8).hexdigest()


def chosen_archive(
    where: str | None = None, cluster: str | None = None, *, create: bool = False
) -> tuple[Archive, str]:
    """The archive there (None: at the configured place), and the cluster's name. Raises
    UsageError without either."""
    configured = read_configuration()
    where = where or configured.place
    if where is None:
        raise UsageError("no archive: give --archive PLACE, or set `place` under [archive]")
    return Archive.at(where, create=create), cluster or configured.cluster
