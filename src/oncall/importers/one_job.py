"""Whether recordings of different kinds, or several logs, are of one job, by what they say
themselves; and of which the operations count, where two recorded the same.

Old dumps in a folder that jobs share are the normal case. Ranks, hosts and times of two jobs that
are joined as one give a third job that never ran. What fits is decided by majority: the world
size, the hosts and the processes of ranks that both name, and the times either agree or differ.
Evidence that lies far apart in time is never joined, whatever else agrees.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oncall.core.places import host
from oncall.core.units import format_duration
from oncall.evidence.incident import Incident
from oncall.evidence.schema import TABLES
from oncall.evidence.window import TIMED
from oncall.importers.files import modified_ns

FAR_NS = 24 * 3600 * 10**9  # beyond what clocks of other time zones differ by
_NEAR_NS = 3600 * 10**9  # dumps, logs and profiles of one failure
_FILE_TIME_NS = 10**6  # looks that one file holds are nanoseconds before its own time
_YEAR_2001_NS = 10**18  # times before are those of a simulator
# What only a job leaves: a row there is of one, a row of others if it names a rank.
_OF_A_JOB = ("jobs", "ranks", "ops", "logged_steps", "watchdog_reports")
_OF_RANKS = ("log_events", "thread_stacks", "launches")

Rows = Mapping[str, int]  # table -> how many rows it has


@dataclass(frozen=True)
class OneKind:
    """What was read of one kind: its files, and its rows in every table, from and to."""

    kind: str
    files: Sequence[Path]
    since: Rows
    until: Rows


@dataclass(frozen=True)
class Identity:
    """What one kind of recording, or one file of it, says of its job. `processes` are each rank's
    by its process id or its host: the same way in all that are compared."""

    kind: str
    world_size: int | None = None
    hosts: frozenset[str] = frozenset()
    processes: frozenset[tuple[int, int | str]] = frozenset()
    first_ns: int | None = None
    last_ns: int | None = None


def keep_one_job(
    incident: Incident, read: Sequence[OneKind], wanted: str | None
) -> dict[Path, str]:
    """Take back the rows of all jobs but one, and say of which files and why: the job that is
    `wanted` by the name given here, else the newest, of two as new the larger."""
    known = {each.kind: identity for each in read if (identity := identify(incident, each))}
    jobs = jobs_of(known.values())
    if len(jobs) < 2:
        return {}
    names = {"+".join(sorted(one.kind for one in job)): job for job in jobs}
    left_out: dict[Path, str] = {}
    for name, problem in _others(names, wanted).items():
        for each in read:
            if each.kind in {one.kind for one in names[name]}:
                _remove(incident, each)
                left_out |= dict.fromkeys(each.files, problem)
    return left_out


def files_of_others(found: Mapping[Path, Identity], wanted: str | None) -> dict[Path, str]:
    """The files of one kind that are of other jobs than the one that `keep_one_job` would keep, and
    why; a job is called after its newest file."""
    jobs: list[tuple[Identity, list[Path]]] = []
    for path in sorted(found, key=lambda path: found[path].last_ns or 0, reverse=True):
        for place, (job, paths) in enumerate(jobs):
            if not differences(job, found[path]):
                jobs[place] = (_joined(job, found[path]), [*paths, path])
                break
        else:
            jobs.append((found[path], [path]))
    paths_of = {paths[0].name: paths for _, paths in jobs}
    others = _others({paths[0].name: [job] for job, paths in jobs}, wanted)
    return {path: problem for name, problem in others.items() for path in paths_of[name]}


def _joined(one: Identity, other: Identity) -> Identity:
    firsts, lasts = (
        [at_ns for at_ns in each if at_ns is not None]
        for each in ((one.first_ns, other.first_ns), (one.last_ns, other.last_ns))
    )
    return Identity(
        one.kind,
        max(one.world_size or 0, other.world_size or 0) or None,
        one.hosts | other.hosts,
        one.processes | other.processes,
        min(firsts, default=None),
        max(lasts, default=None),
    )


def _others(names: Mapping[str, Sequence[Identity]], wanted: str | None) -> dict[str, str]:
    """The jobs that are not kept, and why: the `wanted` one is, else the newest, of two as new the
    larger."""
    kept = names.get(wanted or "") or max(names.values(), key=_worth)
    problems = {}
    for name, job in names.items():
        if job is kept:
            continue
        why = next(filter(None, (differences(part, one) for part in kept for one in job)))
        chosen = "one asked for" if wanted in names else _better(kept, job)
        problems[name] = (
            f"not used: of another job ({'; '.join(why)}); the {chosen} is diagnosed "
            f"(--job {name} chooses this one)"
        )
    return problems


def keep_one_recorder(incident: Incident, read: Sequence[OneKind]) -> None:
    """Of ranks whose operations several recorders have, take back those of all that know less of
    them than another: whether they completed, then their sizes, without which calls were guessed
    from what ran. Each recorder numbers communicators and calls in its own way: of operations that
    count twice, a rank seems to wait in one while it is in the other."""
    con = incident.con
    says = "count(coalesce(done::BIGINT, ended_ns, duration_ns, observed_ns)) > 0, count(bytes) > 0"
    known = {
        each.kind: con.execute(f"SELECT {says} FROM ops WHERE {_of(each, 'ops')}").fetchall()
        for each in read
        if each.since["ops"] < each.until["ops"]
    }
    most = max(known.values(), default=None)
    knowing = [each for each in read if known.get(each.kind) == most and each.kind in known]
    better = " OR ".join(f"({_of(each, 'ops')})" for each in knowing)
    names = ", ".join(one.kind for one in knowing)
    for each in read:
        if known.get(each.kind, most) == most:
            continue
        ranks = f"SELECT rank FROM ops WHERE {better}"
        for table in ("comms", "ops"):
            theirs = f"{_of(each, table)} AND rank IN ({ranks})"
            con.execute(f"DELETE FROM {table} WHERE {theirs}")
        note = f"its calls are not used; {names} has more about the same calls"
        con.execute(
            "UPDATE recordings SET note = concat_ws('; ', note, ?) WHERE kind = ?",
            [note, each.kind],
        )


def _worth(job: Sequence[Identity]) -> tuple[int, int]:
    return max(one.last_ns or 0 for one in job), max(one.world_size or 0 for one in job)


def _better(kept: Sequence[Identity], other: Sequence[Identity]) -> str:
    return "newest" if _worth(kept)[0] > _worth(other)[0] else "largest"


def rows_so_far(incident: Incident) -> Rows:
    """How many rows each table has: where those of what is read next begin."""
    sizes = "SELECT table_name, estimated_size FROM duckdb_tables() WHERE NOT temporary"
    return dict(incident.con.execute(sizes).fetchall())


def identify(incident: Incident, read: OneKind) -> Identity | None:
    """What the rows of one kind say of their job; None if they are of hosts or of the network,
    whose job or none."""

    def asked(table: str, what: str, where: str = "true") -> list[tuple[Any, ...]]:
        sql = f"SELECT {what} FROM {table} WHERE {_of(read, table)} AND {where}"
        return incident.con.execute(sql).fetchall()

    known = any(read.since[table] < read.until[table] for table in _OF_A_JOB)
    if not known and not any(asked(table, "1", "rank IS NOT NULL LIMIT 1") for table in _OF_RANKS):
        return None
    ((size,),) = asked("jobs", "max(world_size)")
    places = asked("ranks", "DISTINCT rank, node, pid")
    instants = [
        instant
        for table, columns in TIMED.items()
        if read.since[table] < read.until[table]
        for column in columns
        for row in asked(table, f"min({column}), max({column})", f"{column} > {_YEAR_2001_NS}")
        for instant in row
        if instant is not None
    ]
    return Identity(
        read.kind,
        size,
        frozenset(host(str(node)) for _, node, _ in places if node is not None),
        frozenset((rank, pid) for rank, _, pid in places if pid is not None),
        *((min(instants), max(instants)) if instants and not _of_files(instants, read) else ()),
    )


def _of_files(instants: Sequence[int], read: OneKind) -> bool:
    """Whether the last time is that of a file, which states none: it may be when it was copied."""
    last_ns = max(instants)
    written = (modified_ns(path) for path in read.files if path.is_file())
    return any(abs(last_ns - at_ns) < _FILE_TIME_NS for at_ns in written)


def differences(one: Identity, other: Identity) -> list[str]:
    """What says that the two are of different jobs; empty if they are of one."""
    apart: list[str] = []
    alike = 0
    gap_ns = _gap_ns(one, other)
    if gap_ns is not None:
        phrase = f"{format_duration(abs(gap_ns))} {'later' if gap_ns > 0 else 'earlier'}"
        if abs(gap_ns) > FAR_NS:
            return [phrase, *_sizes(one, other)]
        # Of one kind, what is later may be of a later start.
        apart += [phrase] if abs(gap_ns) > _NEAR_NS and one.kind != other.kind else []
        alike += abs(gap_ns) <= _NEAR_NS
    apart += _sizes(one, other)
    alike += one.world_size is not None and one.world_size == other.world_size
    if one.hosts and other.hosts:
        apart += [] if one.hosts & other.hosts else ["other hosts"]
        alike += bool(one.hosts & other.hosts)
    both = {rank for rank, _ in one.processes} & {rank for rank, _ in other.processes}
    if both:
        apart += [] if one.processes & other.processes else ["other processes of the same ranks"]
        alike += bool(one.processes & other.processes)
    return apart if len(apart) > alike else []


def _gap_ns(one: Identity, other: Identity) -> int | None:
    """How much later the other begins than the one ends, below 0 if it ends before the one begins;
    0 if they overlap, None where a time is not known."""
    if one.first_ns is None or other.first_ns is None:
        return None
    assert one.last_ns is not None and other.last_ns is not None
    return max(other.first_ns - one.last_ns, 0) or min(other.last_ns - one.first_ns, 0)


def _sizes(one: Identity, other: Identity) -> list[str]:
    sizes = (other.world_size, one.world_size)
    if None in sizes or sizes[0] == sizes[1]:
        return []
    return [f"{sizes[0]} ranks, not {sizes[1]}"]


def jobs_of(found: Iterable[Identity]) -> list[list[Identity]]:
    """The jobs, each with the kinds of recordings that fit together."""
    jobs: list[list[Identity]] = []
    for identity in sorted(found, key=lambda one: one.last_ns or 0, reverse=True):
        for job in jobs:
            if not any(differences(part, identity) for part in job):
                job.append(identity)
                break
        else:
            jobs.append([identity])
    return jobs


def _of(read: OneKind, table: str) -> str:
    """The condition of its rows in a table. Nothing is removed while recordings are read."""
    return f"rowid >= {read.since[table]} AND rowid < {read.until[table]}"


def _remove(incident: Incident, read: OneKind) -> None:
    for table in TABLES:
        if read.since[table.name] < read.until[table.name]:
            incident.con.execute(f"DELETE FROM {table.name} WHERE {_of(read, table.name)}")
