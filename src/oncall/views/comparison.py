"""One run against another: what takes longer, where, and by how much, beyond the noise of both.

Noise is measured: each run's values are cut into parts in the order of time, as the account of lost
time does, and what differs has to differ between nearly all parts of the one and of the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.lost_time import account_of
from oncall.analysis.lost_time.named_steps import read_steps
from oncall.analysis.lost_time.programs import read_programs
from oncall.analysis.lost_time.ways import Evidence
from oncall.evidence.coverage import measure
from oncall.evidence.incident import Incident

_LIMITS = Limits()
_NEARLY_ALL = 0.95  # of the pairs of parts: what 5 % and 95 % quantiles say elsewhere
_DEVIATIONS = 5.0  # of the ranks' ratios, robust: one rank of thousands is no chance then
_SIGMA = 1.4826  # of a normal distribution, in median deviations
_LEAST_VALUES = 4  # of a measure: of fewer there is no noise to know

# Each yields name, and its values in the order of time, ns.
_LISTS = """
    WITH named AS (SELECT job, comm, any_value(coalesce(role, name)) AS label
        FROM comms GROUP BY job, comm)
    SELECT concat_ws(' ', op, format_bytes(bytes), 'on ' || label),
        list(t_min_ns ORDER BY at_ns)
    FROM rounds LEFT JOIN named USING (job, comm) WHERE basis = 'duration'
    GROUP BY op, bytes, label ORDER BY sum(t_min_ns) DESC"""
_STEPS = "SELECT list(cost ORDER BY attempt, nth) FROM step_times"
# A rank's work is that before its rounds on the communicators of the label that has most of it.
_WORK = """
    WITH named AS (SELECT job, comm, any_value(coalesce(role, name, comm::VARCHAR)) AS label
        FROM comms GROUP BY job, comm),
    work AS (SELECT label, rank, seq, own_ns FROM own_time JOIN named USING (job, comm)
        WHERE own_ns IS NOT NULL),
    most AS (SELECT label FROM work GROUP BY label ORDER BY sum(own_ns) DESC, label LIMIT 1)
    SELECT rank, list(own_ns ORDER BY seq) FROM work SEMI JOIN most USING (label)
    GROUP BY rank ORDER BY rank"""
_CONFIGURED = ("world_size", "tp", "pp", "dp", "ep", "cp", "micro_batches", "chunks", "layers",
               "schedule", "framework")  # fmt: skip
_FACTS = {
    "NCCL": "SELECT string_agg(DISTINCT code, ', ') FROM log_events WHERE kind = 'nccl_version'",
    "driver": "SELECT string_agg(DISTINCT text, ', ') FROM log_events "
    "WHERE kind = 'version' AND code = 'driver'",
    "GPU": "SELECT string_agg(DISTINCT model, ', ') FROM devices WHERE kind = 'gpu'",
    "NIC": "SELECT string_agg(DISTINCT model, ', ') FROM devices WHERE kind = 'nic'",
    "NIC firmware": "SELECT string_agg(DISTINCT firmware, ', ') FROM devices WHERE kind = 'nic'",
    "stopped in": "SELECT string_agg(DISTINCT concat_ws(' ', op, seq), ', ') FROM unmet_calls "
    "WHERE state = 'stopped'",
    "GPU driver or firmware": "SELECT string_agg(DISTINCT firmware, ', ') FROM devices "
    "WHERE kind = 'gpu'",
}
_READ = ("rounds", "own_time", "step_times", "operations", "members", "profiled_work",
         "unmet_calls")  # fmt: skip


@dataclass(frozen=True)
class Run:
    """What one run measured: values of each measure in the order of time, ns; the median own work
    of each rank, ns; and what it ran with, as recorded."""

    ranks: int
    measures: Mapping[str, Any]
    work: Mapping[int, float]
    facts: Mapping[str, str]


@dataclass(frozen=True)
class Change:
    """A measure in both runs, ns. `ratio`: of the other to the base, with its 5 % and 95 %
    quantiles over pairs of parts, of a rank those of nearly all ranks; `certain`: it differs beyond
    the noise."""

    name: str
    base_ns: float
    other_ns: float
    ratio: float
    low: float
    high: float
    certain: bool


@dataclass(frozen=True)
class Comparison:
    """Changes of measures that both runs have, of ranks that stand out among the others (against
    what all changed by), and facts that differ: (name, base, other), "" where not recorded."""

    changes: tuple[Change, ...]
    ranks: tuple[Change, ...]
    facts: tuple[tuple[str, str, str], ...]


def run_of(incident: Incident) -> Run:
    """What the incident of one job measured. Raises RelationFailed."""
    incident.provide(_READ)
    con = incident.con
    measures = {"iteration": _iterations(incident)}
    measures |= {name: np.asarray(values, float) for name, values in con.execute(_LISTS).fetchall()}
    work = {int(rank): np.asarray(values, float) for rank, values in con.execute(_WORK).fetchall()}
    if work:
        rounds = min(map(len, work.values()))
        together = np.stack([values[:rounds] for values in work.values()])
        measures["work of a rank"] = np.median(together, axis=0)
    known = {name: values for name, values in measures.items() if len(values) >= _LEAST_VALUES}
    medians = {rank: float(np.median(values)) for rank, values in work.items() if len(values)}
    return Run(measure(con)[0].ranks_seen, known, medians, dict(_facts(con)))


def _iterations(incident: Incident) -> Any:
    """The lengths of iterations: by the account of lost time, else as the log states them."""
    con = incident.con
    for (job,) in con.execute("SELECT DISTINCT job FROM operations").fetchall():
        programs = read_programs(con, job, _LIMITS)
        if programs is not None:
            account = account_of(Evidence(programs, _LIMITS, read_steps(con, job, programs)))
            if account is not None:
                return np.asarray(account.length_ns, float)
    ((logged,),) = con.execute(_STEPS).fetchall()
    return np.asarray(logged or (), float)


def _facts(con: Any) -> Iterator[tuple[str, str]]:
    for name in _CONFIGURED:
        ((value,),) = con.execute(
            f"SELECT string_agg(DISTINCT {name}::VARCHAR, ', ') FROM jobs"
        ).fetchall()
        yield name.replace("_", " "), value or ""
    for name, select in _FACTS.items():
        ((value,),) = con.execute(select).fetchall()
        yield name, value or ""


def compared(base: Run, other: Run) -> Comparison:
    """What differs; measures in the order of the base: the iteration, then what takes most."""
    changes = tuple(
        _change(name, values, other.measures[name])
        for name, values in base.measures.items()
        if name in other.measures
    )
    facts = tuple(
        (name, value, other.facts.get(name, ""))
        for name, value in base.facts.items()
        if value != other.facts.get(name, "")
    )
    return Comparison(changes, tuple(_ranks(base, other)), facts)


def _change(name: str, base: Any, other: Any) -> Change:
    pairs = np.divide.outer(_parts(other), np.maximum(_parts(base), 1)).ravel()
    low, high = np.quantile(pairs, (1 - _NEARLY_ALL, _NEARLY_ALL))
    base_ns, other_ns = float(np.median(base)), float(np.median(other))
    ratio = other_ns / max(base_ns, 1)
    certain = abs(ratio - 1) >= _LIMITS.least_gain and (low > 1 or high < 1)
    return Change(name, base_ns, other_ns, ratio, float(low), float(high), bool(certain))


def _parts(values: Any) -> Any:
    """The medians of parts of a run, in the order of time."""
    return np.array([np.median(part) for part in np.array_split(
        values, min(_LIMITS.enough, len(values)))])  # fmt: skip


def _ranks(base: Run, other: Run) -> Iterator[Change]:
    """Ranks whose work changed by clearly more than that of all, most first."""
    common = base.work.keys() & other.work.keys()
    both = sorted(rank for rank in common if base.work[rank] > 0 and other.work[rank] > 0)
    if len(both) < _LIMITS.few:
        return
    before, since = (np.array([run.work[rank] for rank in both]) for run in (base, other))
    ratio = since / before
    of_all = float(np.median(ratio))
    scatter = _DEVIATIONS * _SIGMA * float(np.median(np.abs(ratio - of_all)))
    beyond = np.abs(ratio / of_all - 1)
    stands_out = (np.abs(ratio - of_all) > scatter) & (beyond >= _LIMITS.least_gain)
    for place in np.argsort(-ratio, kind="stable"):
        if stands_out[place]:
            low, high = of_all - scatter, of_all + scatter
            yield Change(f"work of rank {both[place]}", float(before[place]),
                         float(since[place]), float(ratio[place]), low, high, True)  # fmt: skip
