"""A year of incidents: the size of an archive, how long `oncall history` takes, how Ray scales.

    python benchmarks/archive.py [--nodes 100] [--place DIR] [--ray 1,2,4]

Synthesises a year of a cluster of NODES nodes of 8 GPUs and 8 NICs: 5,000 incidents, as 1,000 nodes
have them however many are simulated, and a row an hour of each device. Not an accelerator's matter.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

from oncall.archive import upkeep
from oncall.archive.engine import Embedded, Engine, engine_at, rows_by
from oncall.archive.episodes import notes
from oncall.archive.history import Wanted, former_faults, history
from oncall.archive.layout import FINDINGS, HOURS, NOTES, Partition, month_of, scan
from oncall.archive.place import Folder, connection
from oncall.archive.store import Archive
from oncall.core.units import format_bytes

FIRST_NS = 1_767_225_600 * 10**9  # 2026-01-01
HOUR_NS = 3600 * 10**9
HOURS_A_YEAR = 8760
JOBS = 4
INCIDENTS = 5_000
OF_NODES = 1_000
TIMES = 5


def synthesise(archive: Archive, nodes: int) -> None:
    """A year: a file an incident would be slow to make, so each partition is written compacted."""
    with connection([]) as con:
        con.execute("SELECT setseed(0.5)")
        con.execute(_incidents(OF_NODES))
        for job in range(JOBS):
            for month in _months():
                where = f"job = 'job{job}' AND month = '{month}'"
                for dataset, table in ((FINDINGS, "blamed"), (NOTES, "fixed")):
                    columns = ", ".join(one.name for one in dataset.columns)
                    select = f"SELECT {columns} FROM {table} WHERE {where}"
                    partition = Partition(dataset.name, month, "a3", f"job{job}")
                    archive.write(con, dataset, partition, "all", select)
                partition = Partition(HOURS.name, month, "a3", f"job{job}")
                archive.write(con, HOURS, partition, "all", _hours(nodes, job, month))


def _months() -> list[str]:
    at = range(FIRST_NS, FIRST_NS + HOURS_A_YEAR * HOUR_NS, 24 * HOUR_NS)
    return sorted({month_of(one) for one in at})


def _incidents(nodes: int) -> str:
    """Tables `blamed` and `fixed`: most nodes fail once or twice, a few again and again."""
    return f"""
        CREATE TEMP TABLE blamed AS
        SELECT *, strftime(make_timestamp_ns(until_ns), '%Y-%m') AS month,
          node || CASE kind WHEN 'node' THEN '' WHEN 'gpu' THEN '/gpu' || number
            ELSE '/mlx5_' || number END AS component
        FROM (
          SELECT printf('%012x', n) AS incident, {FIRST_NS} AS written_ns, 'a3' AS cluster,
            'job' || n % {JOBS} AS job, at_ns - 600000000000 AS since_ns, at_ns AS until_ns,
            'fault' AS result, 'F1' AS finding, ['hosts', 'network', 'hang'][1 + n % 3] AS rulebook,
            ['GPU', 'NIC', 'H1'][1 + n % 3] AS verdict, 'A fault' AS title, 'host' AS fault_class,
            'critical' AS severity, 0.9 AS confidence, NULL AS explained_by, at_ns,
            ['gpu', 'nic', 'node'][1 + n % 3] AS kind, (random() * 8)::INT % 8 AS number,
            printf('gpu%04d', (pow(random(), 3) * {nodes})::INT) AS node, NULL AS rank
          FROM (SELECT n, {FIRST_NS} + (random() * {HOURS_A_YEAR})::BIGINT * {HOUR_NS} AS at_ns
                FROM range({INCIDENTS}) t(n)));
        CREATE TEMP TABLE fixed AS
        SELECT incident, written_ns, cluster, job, 'reseated the cable' AS fixed_by, month
        FROM blamed WHERE random() < 0.3;
    """


def _hours(nodes: int, job: int, month: str) -> str:
    """Readings as they vary: temperatures, power and bytes of every hour, few errors."""
    return f"""
        SELECT {FIRST_NS}::BIGINT AS written_ns, 'a3' AS cluster, 'job{job}' AS job, hour_ns,
          printf('gpu%04d', {JOBS} * node + {job}) AS node, kind, device, 3600::BIGINT AS readings,
          {", ".join(f"{_reading(c.name)}::{c.type} AS {c.name}" for c in HOURS.columns[8:])}
        FROM (SELECT {FIRST_NS} + h * {HOUR_NS} AS hour_ns FROM range({HOURS_A_YEAR}) t(h))
        CROSS JOIN range({nodes // JOBS}) n(node)
        CROSS JOIN (SELECT 'gpu' AS kind, d::VARCHAR AS device FROM range(8) t(d)
          UNION ALL SELECT 'nic', 'mlx5_' || d FROM range(8) t(d) UNION ALL SELECT 'host', '')
        WHERE strftime(make_timestamp_ns(hour_ns), '%Y-%m') = '{month}'
    """


def _reading(name: str) -> str:
    of = next(
        kind
        for kind, names in {
            "gpu": "temp power utilisation sm ecc nvlink pcie",
            "nic": "tx rx link retransmits timeouts paused",
            "host": "cpu memory",
        }.items()
        if name.split("_")[0] in names.split()
    )
    value = {
        "temp": "55 + (random() * 20)::INT",
        "power": "500 + (random() * 180)::INT",
        "utilisation": "0.9 + random() / 10",
        "sm": "1400 + (random() * 40)::INT * 15",
        "tx": "(random() * 1e14)::BIGINT",
        "rx": "(random() * 1e14)::BIGINT",
        "paused": "(random() * 1e9)::BIGINT",
        "cpu": "random() / 2",
        "memory": "0" if name.endswith("corrected") else "(random() * 1e12)::BIGINT",
    }.get(name.split("_")[0], "CASE WHEN random() < 0.001 THEN (random() * 100)::INT ELSE 0 END")
    return f"CASE WHEN kind = '{of}' THEN {value} END"


def _errors(files: Sequence[str]) -> str:
    """Every hour of the year is read: the errors of each device by month."""
    return (
        "SELECT node, kind, device, hour_ns // 2629800000000000 AS month, sum(link_errors), "
        "sum(ecc_corrected), max(temp_max_c), sum(tx_bytes), quantile_cont(power_mean_w, 0.99) "
        f"FROM {scan(HOURS, files)} GROUP BY ALL"
    )


def _seconds(what: Callable[[], object], times: int = TIMES) -> tuple[float, float]:
    """Best and median."""
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        what()
        taken.append(time.perf_counter() - began)
    return min(taken), sorted(taken)[len(taken) // 2]


def measure(archive: Archive, engines: Sequence[str]) -> None:
    """Print the table."""
    print("| query | engine | best / median |\n|---|---|---|")
    here = Embedded()

    def report(name: str, engine: str, what: Callable[[], object], times: int = TIMES) -> None:
        best, median = _seconds(what, times)
        print(f"| {name} | {engine} | {best:.2f} s / {median:.2f} s |", flush=True)

    node = history(archive, Wanted()).by_component[0].name.partition("/")[0]
    for name, wanted in (
        ("everything", Wanted()),
        ("the node blamed most, with its months", Wanted(node)),
        ("a verdict", Wanted(verdict="NIC")),
        ("the last quarter", Wanted(since_ns=FIRST_NS + 270 * 24 * HOUR_NS)),
    ):
        report(f"`oncall history`: {name}", "local", lambda wanted=wanted: history(archive, wanted))
    report("`oncall diagnose --archive`: recall", "local", lambda: former_faults(archive, "a3", {}))
    report("notes", "local", lambda: rows_by(here, archive, NOTES, notes))

    def whole_year(engine: Engine) -> object:
        return rows_by(engine, archive, HOURS, _errors)

    report("every hour of every device", "local", lambda: whole_year(here), 3)
    for url in engines:
        with engine_at(url) as engine:
            whole_year(engine)  # workers start with the first
            report("every hour of every device", url, lambda engine=engine: whole_year(engine), 3)
            report("`oncall history`: everything", url,
                   lambda engine=engine: history(archive, Wanted(), engine), 3)  # fmt: skip


def main() -> None:
    """Synthesise where nothing lies, and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--place", type=Path)
    parser.add_argument("--ray", default="")
    asked = parser.parse_args()
    place = nullcontext(str(asked.place)) if asked.place else tempfile.TemporaryDirectory()
    with place as folder:
        Path(folder).mkdir(exist_ok=True)
        archive = Archive(Folder(Path(folder)))
        if not archive.files(HOURS):
            began = time.perf_counter()
            synthesise(archive, asked.nodes)
            print(f"synthesised in {time.perf_counter() - began:.0f} s")
        print(f"load {os.getloadavg()[0]:.1f}, {asked.nodes} of {OF_NODES} nodes")
        for size in upkeep.sizes(archive):
            rows = _rows(archive, size.dataset)
            print(f"{size.dataset}: {rows:,} rows, {size.files} files", end=", ")
            print(format_bytes(size.size_bytes))
        measure(archive, [f"ray://local?workers={n}" for n in asked.ray.split(",") if n])


def _rows(archive: Archive, dataset: str) -> int:
    files = [archive.place.address(path) for path, _ in archive.place.listed(dataset)]
    with connection(files) as con:
        return con.execute(f"SELECT count(*) FROM read_parquet({files})").fetchall()[0][0]


if __name__ == "__main__":
    main()
