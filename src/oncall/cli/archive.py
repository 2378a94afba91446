"""`oncall archive`: keep incidents and hourly roll-ups for years."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import duckdb
import typer

from oncall.archive.store import Archive, chosen_archive
from oncall.cli.commands import group
from oncall.cli.options import InventoryOption, JobOption, rulebooks_in_force, warn
from oncall.core.errors import ExitCode, OncallError, Unreadable, UsageError, short_reason
from oncall.core.json_text import json_of
from oncall.core.printable import clean
from oncall.core.units import counted, format_bytes, parse_duration_ns

if TYPE_CHECKING:
    from oncall.archive.store import Archive
    from oncall.evidence.incident import Incident

app = group("Keep incidents and hourly roll-ups for years.")

_LARGEST_BYTES = 64 << 20  # of a diagnosis as JSON


@app.command()
def add(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH...",
            help="Saved incidents (*.oncall), diagnoses (*.json, of --format json), or folders of "
            "them.",
        ),
    ],
    archive: ArchiveOption = None,
    cluster: ClusterOption = None,
) -> None:
    """Add incidents: their findings, and the hours that they measured.

    An incident is diagnosed with the rulebooks in force; added twice, it counts once. Files that
    cannot be read are reported, the others are added, and the exit code is 2.
    """
    kept, name = chosen_archive(archive, cluster, create=True)
    failed = False
    for path in _incidents_in(paths):
        try:
            _print(f"{path}: {_added(kept, path, name)}")
        except (OncallError, OSError, duckdb.Error) as error:
            text = short_reason(error)
            warn(text if text.startswith(str(path)) else f"{path}: {text}")
            failed = True
    warn_of_damage(kept)
    if failed:
        raise typer.Exit(ExitCode.BAD_INPUT)


def _incidents_in(paths: list[Path]) -> Iterator[Path]:
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        found = sorted(one for end in ("oncall", "json") for one in path.rglob(f"*.{end}"))
        if not found:
            raise UsageError(f"{path}: no *.oncall or *.json in this folder")
        yield from found


def _added(archive: Archive, path: Path, cluster: str) -> str:
    """Add one incident; what happened, in words."""
    from oncall.archive.incidents import rows_of

    now_ns = time.time_ns()
    if path.suffix == ".json":
        rows = rows_of(_document(path), cluster, now_ns)
        hours = 0
    else:
        rows, hours = _diagnosed(archive, path, cluster, now_ns)
    incident = rows[0]["incident"]
    if not archive.add(rows):
        return f"incident {incident} is in the archive already"
    findings = len({row.get("finding") for row in rows} - {None})
    measured = f", {hours:,} hours of devices" if hours else ""
    return f"incident {incident} added, {counted(findings, 'finding')}{measured}"


def _document(path: Path) -> Any:
    from oncall.importers.files import open_file

    try:
        with open_file(path) as file:
            text = file.read(_LARGEST_BYTES + 1)
        if len(text) > _LARGEST_BYTES:
            raise Unreadable(f"larger than {format_bytes(_LARGEST_BYTES)}: not a diagnosis")
        return json_of(text)
    except ValueError as error:
        raise Unreadable(f"not JSON: {error}") from error


def _diagnosed(
    archive: Archive, path: Path, cluster: str, now_ns: int
) -> tuple[list[dict[str, Any]], int]:
    """The rows of a saved incident, and how many hours of devices it measured."""
    from oncall.archive.history import hosts_of
    from oncall.archive.incidents import rows_of
    from oncall.evidence.incident import Incident
    from oncall.evidence.window import keep_job
    from oncall.render.contract import document
    from oncall.use_case.diagnose import diagnose

    read = rulebooks_in_force(None, True)
    with Incident.open(path) as incident:
        job = keep_job(incident.con, None)
        incident.disbelieve()
        hours = archive.add_hours(incident.con, cluster, job or "unnamed", now_ns)
        hosts = hosts_of(incident)
        diagnosis = diagnose(incident, read.in_force, job or None, set_aside=read.skipped)
        return rows_of(document(diagnosis), cluster, now_ns, hosts), hours


@app.command()
def hours(
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="[DIR]", help="A folder of shards. Default: query the nodes."),
    ] = None,
    archive: ArchiveOption = None,
    cluster: ClusterOption = None,
    job: JobOption = None,
    hosts: Annotated[
        str | None, typer.Option(metavar="NODESET", help="Nodes to query, such as gpu[001-512].")
    ] = None,
    inventory: InventoryOption = None,
    since: Annotated[
        str, typer.Option(metavar="DURATION", help="How far back the readings are rolled up.")
    ] = "2h",
) -> None:
    """Add hourly roll-ups of what collectors hold: one row an hour of each GPU, NIC and host.

    Run it once an hour, with two hours of readings: an hour that was rolled up twice counts once,
    the more complete one.
    """
    from oncall.evidence.window import keep_job
    from oncall.use_case.gathering import Wanted, gather_fleet, read_shards
    from oncall.use_case.recordings import shards_in

    kept, name = chosen_archive(archive, cluster, create=True)
    read = rulebooks_in_force(None, True)
    wanted = Wanted(job, since)
    shards = shards_in(paths or ())
    if paths and not shards:
        raise UsageError(f"{' '.join(paths)}: no shards of collectors in it")
    with ExitStack() as stack:
        if shards:
            gathered = read_shards(shards, wanted, read.in_force)
        else:
            gathered = gather_fleet(wanted, hosts, inventory, read.in_force)
        incident: Incident = stack.enter_context(gathered.incident)
        found_job = keep_job(incident.con, gathered.job)
        incident.disbelieve()
        rows = kept.add_hours(incident.con, name, found_job or "unnamed", time.time_ns())
    whose = f"job {found_job or 'unnamed'}"
    if rows:
        _print(f"{counted(rows, 'hour')} of devices of {whose}")
    else:
        _print(f"nothing added: no readings of GPUs, NICs or hosts of {whose} in the last {since}")


@app.command()
def solved(
    incident: Annotated[
        str, typer.Argument(metavar="INCIDENT", help="As `oncall history` lists it.")
    ],
    fixed_by: Annotated[
        str, typer.Argument(metavar="TEXT", help='What fixed it: "reseated the cable".')
    ],
    archive: ArchiveOption = None,
) -> None:
    """Note what fixed an incident. The last note counts; an empty one removes it."""
    kept, _ = chosen_archive(archive)
    kept.solved(incident, clean(fixed_by.strip()), time.time_ns())
    _print(f"incident {incident}: fixed by: {fixed_by.strip() or 'unknown'}")


@app.command()
def compact(archive: ArchiveOption = None) -> None:
    """Rewrite each month of a job as one file. Others may read and add meanwhile."""
    from oncall.archive.upkeep import compact as compacted

    kept, _ = chosen_archive(archive)
    done = [count for _, count in compacted(kept)]
    warn_of_damage(kept)
    _print(f"{counted(sum(done), 'file')} became {len(done):,}" if done else "nothing to compact")


@app.command()
def expire(
    keep: Annotated[
        str, typer.Option(metavar="DURATION", help="How long findings and notes are kept.")
    ] = "1000d",
    keep_hours: Annotated[
        str, typer.Option(metavar="DURATION", help="How long hourly roll-ups are kept.")
    ] = "400d",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print what would be deleted.")
    ] = False,
    archive: ArchiveOption = None,
) -> None:
    """Delete months that are older than the retention times."""
    from oncall.archive import upkeep
    from oncall.archive.layout import month_of

    kept, _ = chosen_archive(archive)
    now_ns = time.time_ns()
    before, hours_before = (
        month_of(max(0, now_ns - parse_duration_ns(one))) for one in (keep, keep_hours)
    )
    files = bytes_ = 0
    for path, size in upkeep.expire(kept, before, hours_before, dry_run=dry_run):
        files, bytes_ = files + 1, bytes_ + size
        if dry_run:
            _print(path)
    _print(
        f"{'would delete' if dry_run else 'deleted'} {counted(files, 'file')}, "
        f"{format_bytes(bytes_)}: findings before {before}, hours before {hours_before}"
    )


@app.command()
def verify(
    set_aside: Annotated[
        bool,
        typer.Option("--set-aside", help="Rename damaged files to *.damaged, never read again."),
    ] = False,
    archive: ArchiveOption = None,
) -> None:
    """Read every value of every file, and report those that are damaged or half-written.

    Exits with 1 if there are any.
    """
    from oncall.archive import upkeep

    kept, _ = chosen_archive(archive)
    sound = 0
    damaged = []
    for one in upkeep.verify(kept):
        sound += one is None
        if one is not None:
            damaged.append(one)
            _print(f"damaged: {one.path}: {one.why}")
            if set_aside:
                _print(f"  now {kept.place.set_aside(one.path)}")
    for size in upkeep.sizes(kept):
        _print(
            f"{size.dataset}: {counted(size.files, 'file')} in "
            f"{counted(size.partitions, 'partition')}, {format_bytes(size.size_bytes)}"
        )
    _print(f"{counted(sound, 'file')} sound, {len(damaged):,} damaged")
    if damaged:
        raise typer.Exit(ExitCode.FINDING)


def _print(text: str) -> None:
    sys.stdout.write(f"{clean(text)}\n")


ArchiveOption = Annotated[
    str | None,
    typer.Option(
        "--archive",
        metavar="PLACE",
        help="The archive: a folder, or s3://BUCKET/PREFIX. Default: `place` under [archive] of "
        "the configuration.",
    ),
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="The cluster. Default: `cluster` under [archive], else `default`."
    ),
]


def warn_of_damage(archive: Archive) -> None:
    """Report on stderr what queries left out."""
    for phrase in archive.damage_phrases():
        warn(phrase)
