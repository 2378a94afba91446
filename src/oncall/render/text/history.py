"""The history of an archive: tables at 80 columns, or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime

from oncall.archive.episodes import Episode
from oncall.archive.history import History, Month, Tally, Wanted
from oncall.archive.store import Damaged
from oncall.core.printable import harmless
from oncall.core.units import counted, format_bytes, format_duration, format_number

_MOST = 15  # rows of a table; JSON has all
_MOST_EPISODES = 40
_WIDTH = 80
_NS_PER_S = 10**9
_DAY_NS = 86400 * _NS_PER_S


def to_json(found: History, damaged: Sequence[Damaged]) -> str:
    """Everything, for programs; `left_out` are the files that could not be read."""
    fields = {"schema": 1, **asdict(found), "left_out": [asdict(one) for one in damaged]}
    return json.dumps(fields, indent=2) + "\n"


def to_text(found: History, wanted: Wanted) -> str:
    """The tables, or the story of the component that is wanted."""
    body = _story(found, wanted.component) if wanted.component is not None else _tables(found)
    lines = "\n".join((*_head(found), *body)).splitlines()
    return "".join(f"{harmless(line).rstrip()}\n" for line in lines)


def _head(found: History) -> Iterator[str]:
    held = found.held
    if held.first_ns is None or held.last_ns is None:
        yield "No incident in the archive, of what was asked for."
        return
    yield (
        f"{counted(held.incidents, 'incident')} of {counted(held.jobs, 'job')}, "
        f"{held.faults:,} with a fault, {_day(held.first_ns)} to {_day(held.last_ns)}"
    )


def _tables(found: History) -> Iterator[str]:
    if not found.episodes:
        yield from (("No fault among them.",) if found.held.incidents else ())
        return
    yield from ("", f"{'kind':<22} {'times':>6} {'different':>10}  {'last':<10}  one every")
    yield from map(_tally, found.by_kind)
    yield from ("", f"{'verdict':<22} {'times':>6} {'different':>10}  {'last':<10}  one every")
    yield from _cut([_tally(one) for one in found.by_verdict])
    if found.by_component:
        yield from ("", f"{'component':<22} {'times':>6}  {'last':<10}  verdicts")
        yield from _cut(["\n".join(_component(one)) for one in found.by_component])


def _tally(one: Tally) -> str:
    name = _fitting(one.name, 22)
    different = f"{one.components:>10,}" if one.components else f"{'':10}"
    return f"{name:<22} {one.times:>6,} {different}  {_day(one.last_ns)}  {_mean(one)}"


def _component(one: Tally) -> Iterator[str]:
    verdicts = ", ".join(f"{name} {times}" for name, times in one.verdicts)
    lead = f"{_fitting(one.name, 22):<22} {one.times:>6,}  {_day(one.last_ns)}  "
    yield lead + _fitting(verdicts, _WIDTH - len(lead))
    if one.fixed_by:
        yield _fitting(f"    last fixed by: {one.fixed_by}", _WIDTH)


def _mean(one: Tally) -> str:
    mean_ns = one.mean_between_ns
    if mean_ns is None:
        return ""
    return f"{mean_ns / _DAY_NS:.0f} d" if mean_ns >= 10 * _DAY_NS else format_duration(mean_ns)


def _story(found: History, component: str) -> Iterator[str]:
    times = len(found.episodes)
    if not times:
        yield f"{component} was never blamed."
    else:
        often = "once" if times == 1 else f"{times:,} times"
        mean = _mean(found.by_component[0]) if len(found.by_component) == 1 else ""
        yield f"{component} was blamed {often}{f', once every {mean}' if mean else ''}."
        yield from ("", f"{'since (UTC)':<16}  {'verdict':<22} {'component':<22} incident")
        if times > _MOST_EPISODES:
            yield f"... {times - _MOST_EPISODES} earlier ones, in --format json"
        for one in found.episodes[-_MOST_EPISODES:]:
            yield from _episode(one)
    yield from _months(found.months)


def _episode(one: Episode) -> Iterator[str]:
    verdict = _fitting(f"{one.rulebook} {one.verdict}", 22)
    at = datetime.fromtimestamp(one.first_ns // _NS_PER_S, UTC).strftime("%Y-%m-%d %H:%M")
    place = _fitting(one.component or one.job, 22)
    yield f"{at}  {verdict:<22} {place:<22} {one.incidents[-1]}"
    yield _fitting(f"{'':18}{one.title}, job {one.job}", _WIDTH)
    if one.fixed_by:
        yield _fitting(f"{'':18}fixed by: {one.fixed_by}", _WIDTH)


def _months(months: Sequence[Month]) -> Iterator[str]:
    """The counters of each device that went up, and its heat, by month."""
    if not months:
        return
    yield from ("", f"{'month':<8} {'device':<12} {'hours':>6}  counted")
    lines = []
    for one in months:
        device = f"{one.kind} {one.device}" if one.device else one.kind
        values = ", ".join(_value(name, value) for name, value in one.values.items() if value)
        lead = f"{one.month:<8} {_fitting(device, 12):<12} {one.hours:>6,}  "
        lines.append(lead + _fitting(values, _WIDTH - len(lead)))
    yield from _cut(lines, _MOST_EPISODES)


def _value(name: str, value: float) -> str:
    label = name.replace("_", " ")
    if name.endswith("_bytes"):
        return f"{label.removesuffix(' bytes')} {format_bytes(value)}"
    if name.endswith("_ns"):
        return f"{label.removesuffix(' ns')} {format_duration(value)}"
    if name == "temp_max_c":
        return f"at most {value:.0f} °C"
    if name == "sm_clock_min_mhz":
        return f"clock down to {value:.0f} MHz"
    return f"{label} {format_number(value)}"


def _cut(lines: list[str], most: int = _MOST) -> Iterator[str]:
    yield from lines[:most]
    if len(lines) > most:
        yield f"... {len(lines) - most:,} more, in --format json"


def _fitting(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _day(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns // _NS_PER_S, UTC).strftime("%Y-%m-%d")
