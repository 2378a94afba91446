"""What an archive answers: who was blamed how often, what fixed it, how long until the next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from oncall.archive.engine import Embedded, Engine, rows_by
from oncall.archive.episodes import COLUMNS, Episode, merged, notes, partial, quoted, summary
from oncall.archive.layout import FINDINGS, HOURS, MEASURES, NOTES, Partition, month_of, scan
from oncall.archive.layout import newest as counted_once
from oncall.archive.place import connection
from oncall.archive.store import Archive
from oncall.evidence.incident import Incident
from oncall.evidence.schema import BY_NAME

_OVER_MONTHS = {"gained": "sum", "max": "max", "min": "min"}
_MONTHLY = tuple(measure for measure in MEASURES if measure.how in _OVER_MONTHS)


@dataclass(frozen=True)
class Wanted:
    """What is asked about; None: everything. `component` is a node or one of its devices. `names`:
    what a `rulebook.VERDICT` that has a new name is called now."""

    component: str | None = None
    verdict: str | None = None
    cluster: str | None = None
    since_ns: int | None = None
    until_ns: int | None = None
    names: Mapping[str, str] = field(default_factory=dict)

    def partition(self, one: Partition) -> bool:
        """Whether a partition may hold some of it."""
        return self.cluster in (None, one.cluster) and (
            self.since_ns is None or one.month >= month_of(self.since_ns)
        )

    @property
    def times(self) -> str:
        """The incidents of the time asked about, as SQL."""
        bounds = [f"until_ns >= {self.since_ns}"] if self.since_ns is not None else []
        bounds += [f"until_ns < {self.until_ns}"] if self.until_ns is not None else []
        return " AND ".join(bounds) or "true"

    @property
    def where(self) -> str:
        """The blames asked about, as SQL."""
        parts = [self.times]
        if self.component is not None:
            parts.append(f"{quoted(self.component)} IN (node, component)")
        if self.verdict is not None:
            renamed = (zip(*map(_parts, names), strict=True) for names in self.names.items())
            asked = {now for pairs in renamed for was, now in pairs if was == self.verdict}
            listed = ", ".join(map(quoted, sorted({self.verdict, *asked})))
            parts.append(f"(verdict IN ({listed}) OR rulebook IN ({listed}))")
        return " AND ".join(parts)


def _parts(name: str) -> list[str]:
    return name.split(".")


@dataclass(frozen=True)
class Held:
    """What the archive holds of the time and cluster asked about."""

    incidents: int
    faults: int
    jobs: int
    first_ns: int | None
    last_ns: int | None


@dataclass(frozen=True)
class Tally:
    """How often something was blamed. `mean_between_ns` is the mean time from one to the next,
    None if there was one only; `fixed_by` is what fixed it last, `verdicts` with how often each."""

    name: str
    times: int
    components: int
    first_ns: int
    last_ns: int
    mean_between_ns: int | None
    verdicts: tuple[tuple[str, int], ...]
    fixed_by: str


@dataclass(frozen=True)
class Month:
    """A month of a device in hours that were rolled up."""

    month: str
    kind: str
    device: str
    hours: int
    values: dict[str, Any]


@dataclass(frozen=True)
class History:
    """The answer. `episodes` are in time order; tallies those of most times first."""

    held: Held
    by_kind: tuple[Tally, ...]
    by_verdict: tuple[Tally, ...]
    by_component: tuple[Tally, ...]
    episodes: tuple[Episode, ...]
    months: tuple[Month, ...]


def history(archive: Archive, wanted: Wanted, engine: Engine | None = None) -> History:
    """Everything about what is wanted; the months of a component only if one is named."""
    engine = engine or Embedded()
    held = _held(archive, wanted, engine)
    found = episodes(archive, wanted, engine)

    def tallies(name: Callable[[Episode], str | None]) -> tuple[Tally, ...]:
        return tuple(_tallies(found, name))

    return History(
        held,
        tallies(lambda one: one.kind or "nobody"),
        tallies(lambda one: f"{one.rulebook} {one.verdict}"),
        tallies(lambda one: one.component),
        found,
        _months(archive, wanted, engine),
    )


def episodes(archive: Archive, wanted: Wanted, engine: Engine | None = None) -> tuple[Episode, ...]:
    """The episodes, oldest first, each with what fixed it."""
    engine = engine or Embedded()
    rows = rows_by(
        engine,
        archive,
        FINDINGS,
        lambda files: partial(files, wanted.where, wanted.names),
        wanted.partition,
    )
    fixes = _fixes(archive, wanted)
    names = [name for name, _ in COLUMNS]
    with connection([]) as con:
        con.execute(f"CREATE TEMP TABLE parts ({', '.join(map(' '.join, COLUMNS))})")
        if rows:
            con.execute(
                f"INSERT INTO parts SELECT {', '.join(f'unnest(?::{t}[])' for _, t in COLUMNS)}",
                [list(column) for column in zip(*rows, strict=True)],
            )
        whole = con.execute(merged("parts") + " ORDER BY first_ns, component").fetchall()
    return tuple(
        Episode(**dict(zip(names, row, strict=True)), fixed_by=_last_fix(row[-1], fixes))
        for row in whole
    )


def _fixes(archive: Archive, wanted: Wanted) -> dict[str, tuple[int, str]]:
    rows = rows_by(Embedded(), archive, NOTES, notes, wanted.partition)
    return {incident: (written_ns, fixed_by) for incident, fixed_by, written_ns in rows}


def _last_fix(incidents: Iterable[str], fixes: dict[str, tuple[int, str]]) -> str:
    noted = [fixes[incident] for incident in incidents if incident in fixes]
    return max(noted)[1] if noted else ""


def _held(archive: Archive, wanted: Wanted, engine: Engine) -> Held:
    rows = rows_by(
        engine, archive, FINDINGS, lambda files: summary(files, wanted.times), wanted.partition
    )
    return Held(
        incidents=sum(row[2] for row in rows),
        faults=sum(row[3] for row in rows),
        jobs=len({row[:2] for row in rows}),
        first_ns=min((row[4] for row in rows), default=None),
        last_ns=max((row[5] for row in rows), default=None),
    )


def _mean_between_ns(those: Sequence[Episode]) -> int | None:
    if len(those) < 2:
        return None
    return (those[-1].first_ns - those[0].first_ns) // (len(those) - 1)


def _tallies(found: Iterable[Episode], name: Callable[[Episode], str | None]) -> list[Tally]:
    groups: dict[str, list[Episode]] = {}
    for one in found:
        if (key := name(one)) is not None:
            groups.setdefault(key, []).append(one)
    tallies = [
        Tally(
            name=key,
            times=len(those),
            components=len({one.component for one in those if one.component}),
            first_ns=those[0].first_ns,
            last_ns=max(one.last_ns for one in those),
            mean_between_ns=_mean_between_ns(those),
            verdicts=tuple(Counter(f"{one.rulebook} {one.verdict}" for one in those).most_common()),
            fixed_by=next((one.fixed_by for one in reversed(those) if one.fixed_by), ""),
        )
        for key, those in groups.items()
    ]
    return sorted(tallies, key=lambda one: (-one.times, -one.last_ns, one.name))


def _months(archive: Archive, wanted: Wanted, engine: Engine) -> tuple[Month, ...]:
    """The months of a component's node, and of the device if one is named."""
    if wanted.component is None:
        return ()
    node, _, device = wanted.component.partition("/")
    device = device.removeprefix("gpu")
    where = f"node = {quoted(node)}" + (f" AND device = {quoted(device)}" if device else "")
    if wanted.since_ns is not None:
        where += f" AND hour_ns >= {wanted.since_ns}"
    values = ", ".join(
        f"{_OVER_MONTHS[one.how]}({one.column.name}) AS {one.column.name}" for one in _MONTHLY
    )

    def select(files: Any) -> str:
        return (
            "SELECT strftime(make_timestamp_ns(hour_ns), '%Y-%m') AS month, kind, device, "
            f"count(*) AS hours, {values} "
            f"FROM ({counted_once(HOURS, scan(HOURS, files), where)}) GROUP BY ALL"
        )

    parts: dict[tuple[str, str, str], list[tuple[Any, ...]]] = {}
    for row in rows_by(engine, archive, HOURS, select, wanted.partition):
        parts.setdefault(row[:3], []).append(row[3:])
    return tuple(_month(key, rows) for key, rows in sorted(parts.items()))


def _month(key: tuple[str, str, str], rows: list[tuple[Any, ...]]) -> Month:
    """One month of partial ones: a node's hours lie with each job that it ran."""
    merge: dict[str, Callable[[list[Any]], Any]] = {"sum": sum, "max": max, "min": min}
    values: dict[str, Any] = {}
    for number, measure in enumerate(_MONTHLY, start=1):
        known = [row[number] for row in rows if row[number] is not None]
        if known:
            values[measure.column.name] = merge[_OVER_MONTHS[measure.how]](known)
    return Month(*key, hours=sum(row[0] for row in rows), values=values)


# Former incidents as evidence: what rules and reports of a new incident read of the archive.

TABLE = "archived_findings"
_MOST = 100_000  # of the newest: a year of 1,000 nodes has some 5,000


def former_faults(archive: Archive, cluster: str, names: Mapping[str, str]) -> tuple[Episode, ...]:
    """What was blamed in the cluster's incidents, oldest first; `names` as in `Wanted`."""
    return episodes(archive, Wanted(cluster=cluster, names=names))[-_MOST:]


def recall(incident: Incident, former: Sequence[Episode]) -> None:
    """Add former faults to the incident's evidence, in the place of those it was saved with."""
    if not former:
        return
    incident.con.execute(f"DELETE FROM {TABLE}")
    columns = {column: column for column in BY_NAME[TABLE].column_names}
    columns |= {"past_job": "job", "found_ns": "first_ns"}
    incident.append(
        TABLE,
        {to: [getattr(one, field) or None for one in former] for to, field in columns.items()},
    )


def hosts_of(incident: Incident) -> dict[int, str]:
    """The host of each rank whose host is recorded."""
    rows = incident.con.execute(
        "SELECT rank, max(node) FROM (SELECT rank, node FROM ranks UNION ALL "
        "SELECT rank, node FROM log_events) WHERE rank >= 0 AND node IS NOT NULL GROUP BY rank"
    ).fetchall()
    return dict(rows)
