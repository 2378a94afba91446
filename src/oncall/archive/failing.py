"""Devices that are failing slowly: whose errors, by the hours that were rolled up, come far more
often than those of the rest of the fleet. Information for the day, never a page at night."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from oncall.archive.engine import Embedded, Engine, rows_by
from oncall.archive.history import Wanted
from oncall.archive.layout import DEVICES, HOURS, scan
from oncall.archive.layout import newest as counted_once
from oncall.archive.store import Archive

LEAST = 10  # errors: fewer may be one event
TIMES = 10.0  # what three quarters of the fleet stay below: load and age differ by less
FEW = 3  # other devices: fewer are no fleet
RISING = 2.0  # times the errors a day of the first half of the time
_HOUR_NS = 3_600 * 10**9
_HOURS_A_DAY = 24
# What only counts errors has no unit: bytes and paused time are the load.
_ERRORS = {
    device.kind: [one.column.name for one in device.measures
                  if one.how == "gained" and not one.column.unit]
    for device in DEVICES
}  # fmt: skip
_ALL = [name for names in _ERRORS.values() for name in names]


@dataclass(frozen=True)
class Failing:
    """A device and what it counted in `hours`; the fleet's median and upper quartile are of as many
    devices of its kind as counted it at all, errors a day. `trend`: rising, falling or steady."""

    kind: str
    node: str
    device: str
    counted: str
    errors: int
    hours: int
    a_day: float
    fleet_median: float
    fleet_upper: float
    fleet: int
    trend: str


@dataclass(frozen=True)
class Fleet:
    """The answer: those that are failing, the worst first; when, Unix ns, and of how many devices
    of each kind hours are known."""

    since_ns: int
    until_ns: int
    devices: Mapping[str, int]
    failing: tuple[Failing, ...]


@dataclass
class _Hours:
    """What a device counted in each half of the time, and in how many hours."""

    hours: Any  # (2,)
    errors: Any  # (2, measures); NaN: it does not count that


def failing(
    archive: Archive, within_ns: int, cluster: str | None = None, engine: Engine | None = None
) -> Fleet | None:
    """Of the last `within_ns` that the archive holds; None if it holds no hours."""
    engine = engine or Embedded()
    everything = Wanted(cluster=cluster)
    newest = rows_by(engine, archive, HOURS, _newest, everything.partition)
    until_ns = max((row[0] for row in newest if row[0] is not None), default=None)
    if until_ns is None:
        return None
    until_ns += _HOUR_NS
    since_ns = until_ns - within_ns
    found = _hours(archive, Wanted(cluster=cluster, since_ns=since_ns), until_ns, engine)
    kinds = {kind: sum(key[0] == kind for key in found) for kind in _ERRORS}
    worst = sorted(
        _outliers(found), key=lambda one: (-one.a_day / max(one.fleet_upper, 1), one.node)
    )
    return Fleet(since_ns, until_ns, {k: n for k, n in kinds.items() if n}, tuple(worst))


def _newest(files: Any) -> str:
    return f"SELECT max(hour_ns) FROM {scan(HOURS, files)}"


def _hours(
    archive: Archive, wanted: Wanted, until_ns: int, engine: Engine
) -> dict[tuple[str, str, str], _Hours]:
    assert wanted.since_ns is not None
    middle_ns = (wanted.since_ns + until_ns) // 2
    sums = ", ".join(f"sum({name})" for name in _ALL)

    def select(files: Any) -> str:
        hours = counted_once(HOURS, scan(HOURS, files), f"hour_ns >= {wanted.since_ns}")
        return (
            f"SELECT kind, node, device, (hour_ns >= {middle_ns})::INTEGER AS half, count(*), "
            f"{sums} FROM ({hours}) GROUP BY ALL"
        )

    found: dict[tuple[str, str, str], _Hours] = defaultdict(
        lambda: _Hours(np.zeros(2), np.full((2, len(_ALL)), np.nan))
    )
    for kind, node, device, half, hours, *errors in rows_by(
        engine, archive, HOURS, select, wanted.partition
    ):
        one = found[kind, node, device]
        one.hours[half] += hours
        counted = np.array([np.nan if error is None else error for error in errors], dtype=float)
        one.errors[half] = np.where(
            np.isnan(one.errors[half]), counted, one.errors[half] + np.nan_to_num(counted)
        )
    return found


def _outliers(found: Mapping[tuple[str, str, str], _Hours]) -> Iterator[Failing]:
    for kind, names in _ERRORS.items():
        keys = [key for key in found if key[0] == kind]
        for name in names:
            place = _ALL.index(name)
            counting = [key for key in keys if not np.isnan(found[key].errors[:, place]).all()]
            errors = np.array([np.nansum(found[key].errors[:, place]) for key in counting])
            hours = np.array([found[key].hours.sum() for key in counting])
            a_day = errors / np.maximum(hours, 1) * _HOURS_A_DAY
            for number, key in enumerate(counting):
                others = np.delete(a_day, number)
                if len(others) < FEW or errors[number] < LEAST:
                    continue
                upper = float(np.quantile(others, 0.75))
                if a_day[number] > TIMES * upper:
                    halves = found[key].errors[:, place] / np.maximum(found[key].hours, 1)
                    yield Failing(
                        *key, name, int(errors[number]), int(hours[number]), float(a_day[number]),
                        float(np.median(others)), upper, len(counting), _trend(*halves),
                    )  # fmt: skip


def _trend(before: float, since: float) -> str:
    before, since = np.nan_to_num(before), np.nan_to_num(since)
    if since >= RISING * before:
        return "rising"
    return "falling" if before >= RISING * since else "steady"
