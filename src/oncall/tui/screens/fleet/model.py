"""The ranks of a job as a fleet: their states, their groups, and which of them the reader asked
for.

Pure functions of `Ranks`; indices below are positions in its arrays, not rank numbers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from oncall.core.errors import UsageError
from oncall.core.nodeset import expand_ranks
from oncall.core.printable import short
from oncall.core.units import NS_PER_S, format_duration
from oncall.tui.drawing.states import STATES
from oncall.tui.models.rates import Floats, value_phrase
from oncall.views.ranks.ranks import RankValues
from oncall.views.snapshot import HostAnswer, Ranks, RankState

if TYPE_CHECKING:
    from oncall.views.snapshot import Ints

Mask = npt.NDArray[np.bool_]

# Those that others wait for, or may: a hung rank is a victim.
FAULTS = (RankState.BLAMED, RankState.LATE, RankState.UNKNOWN)
_COUNTED = (*FAULTS, RankState.HUNG, RankState.WAITING, RankState.RUNNING)

# r12-n03, rack7gpu03, dgx-a100-12-03: what precedes the last number, if it holds one itself.
_RACK = re.compile(r"(.*[0-9])[^0-9]+[0-9]+[^0-9]*")
_ROLE_TERM = re.compile(r"([a-z_]+)[:=]?([0-9]+)")
_NUMBERS = re.compile(r"[0-9]+(?:-[0-9]+)?(?:,[0-9]+(?:-[0-9]+)?)*")


@dataclass(frozen=True)
class Groups:
    """`code` (n,): which group a rank is in; `labels[code]` names it for people."""

    by: str
    code: Ints
    labels: tuple[str, ...]


# ------------------------------------------------------------------ grouping


def groupings(ranks: Ranks) -> dict[str, str]:
    """What ranks can be grouped by, each with why it cannot be just now ("" where it can)."""
    racks = any(rack_of(node) for node in set(ranks.node))
    sample = next((node for node in ranks.node if node), "")
    why_no_rack = (
        "" if racks else f"host names such as {short(sample)} do not contain a rack" if sample else
        "no host names are known"
    )  # fmt: skip
    why_no_stage = "" if "pp" in ranks.groups else "no pipeline-parallel communicator was recorded"
    found = {"node": "", "rack": why_no_rack, "stage": why_no_stage}
    found |= {
        role: "" if role in ranks.groups else f"no {role} communicator was recorded"
        for role in dict.fromkeys(("tp", "dp", "pp", *ranks.groups))
    }
    return found


def next_grouping(ranks: Ranks, by: str) -> str:
    """The grouping after `by` that can be shown, around the end."""
    possible = [name for name, why_not in groupings(ranks).items() if not why_not]
    return possible[(possible.index(by) + 1) % len(possible)] if by in possible else possible[0]


def left_out_phrase(ranks: Ranks, before: str, by: str) -> str:
    """Why the groupings between two that can be shown cannot: `not by rack: ...`."""
    why = groupings(ranks)
    names = list(why)
    if before not in names or by not in names:
        return ""
    first, last = names.index(before) + 1, names.index(by)
    passed = names[first:last] if first <= last else names[first:] + names[:last]
    return " · ".join(f"not by {name}: {why[name]}" for name in passed)


def grouped(ranks: Ranks, by: str) -> Groups:
    """The groups in the order of their lowest rank; unknown ones last."""
    if by == "node":
        return _named(by, ranks.node, "node unknown")
    if by == "rack":
        rack = {node: rack_of(node) for node in set(ranks.node)}
        return _named(by, tuple(rack[node] for node in ranks.node), "rack unknown")
    number = stages(ranks) if by == "stage" else ranks.groups.get(by)
    if number is None:
        number = np.full(len(ranks), -1, dtype=np.int64)
    known, code = np.unique(
        np.where(number < 0, np.iinfo(np.int64).max, number), return_inverse=True
    )
    labels = tuple(
        f"{by} {one}" if one < np.iinfo(np.int64).max else f"no {by}" for one in known.tolist()
    )
    return Groups(by, code.astype(np.int64), labels)


def _named(by: str, names: tuple[str, ...], unknown: str) -> Groups:
    codes: dict[str, int] = {}
    code = [codes.setdefault(name, len(codes)) for name in names]
    labels = tuple(short(name) or unknown for name in codes)
    return Groups(by, np.array(code, dtype=np.int64), labels)


def rack_of(node: str) -> str:
    """The rack that a host name states: `r12-n03` is in r12, `gpu017` says nothing ("")."""
    match = _RACK.fullmatch(node.split(".", 1)[0])
    return match[1] if match else ""


def stages(ranks: Ranks) -> Ints:
    """(n,) pipeline stage: the place of a rank among the ranks of its pp group; -1 unknown."""
    stage = np.full(len(ranks), -1, dtype=np.int64)
    group = ranks.groups.get("pp")
    if group is None or not len(ranks):
        return stage
    order = np.lexsort((ranks.rank, group))
    first = np.r_[True, np.diff(group[order]) != 0]
    start = np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))
    stage[order] = np.arange(len(order)) - start
    stage[group < 0] = -1
    return stage


# ----------------------------------------------------------------- selection


def faults(state: Ints) -> Mask:
    """Ranks that keep others waiting or left no evidence; if there are none, ranks that hang."""
    found = np.isin(state, FAULTS)
    return found if found.any() else state == RankState.HUNG


def matching(ranks: Ranks, text: str) -> Mask:
    """The ranks that fit every term: `0-7`, `gpu01` (node or NIC), `late`, `tp3`, `stage:1`.

    Raises UsageError for a role that this job does not have.
    """
    fits = np.ones(len(ranks), dtype=np.bool_)
    for term in text.lower().split():
        fits &= _fits(ranks, term)
    return fits


def _fits(ranks: Ranks, term: str) -> Mask:
    if _NUMBERS.fullmatch(term):
        return np.isin(ranks.rank, expand_ranks(term))
    for state in RankState:
        if len(term) > 1 and state.name.lower().startswith(term):
            return np.equal(ranks.state, state)
    if (role := _ROLE_TERM.fullmatch(term)) and (role[1] in ranks.groups or role[1] == "stage"):
        number = stages(ranks) if role[1] == "stage" else ranks.groups[role[1]]
        return np.equal(number, int(role[2]))
    if role and role[1] in ("tp", "dp", "pp", "ep", "cp"):
        raise UsageError(f"no {role[1]} communicator was recorded in this job")
    node = np.array([term in one.lower() for one in ranks.node], dtype=np.bool_)
    return node | np.array([term in one.lower() for one in ranks.nic], dtype=np.bool_)


def rank_phrase(ranks: Ranks, rank: int) -> str:
    """`rank 137 on gpu034 · GPU 1 · mlx5_1 · hung for 10 min · tp 68, pp 137`; groups that all
    ranks are in are left out."""
    if (at := ranks.place(rank)) is None:
        return ""
    state = STATES[int(ranks.state[at])].name
    waited_ns = int(ranks.waited_ns[at])
    waits = "" if ranks.state[at] in (RankState.WAITING, RankState.HUNG) else ", waits"
    tells = {role: bool((code != code[0]).any()) for role, code in ranks.groups.items()}
    number, gpu = {role: int(code[at]) for role, code in ranks.groups.items()}, int(ranks.gpu[at])
    parts = [
        f"rank {rank}" + (f" on {short(ranks.node[at])}" if ranks.node[at] else ""),
        f"GPU {gpu}" if gpu >= 0 else "",
        short(ranks.nic[at]),
        # Not `blamed for 10 min`: that is how long it waits.
        state + (f"{waits} for {format_duration(waited_ns)}" if waited_ns >= 0 else ""),
        ", ".join(f"{role} {one}" for role, one in number.items() if one >= 0 and tells[role]),
    ]
    return " · ".join(part for part in parts if part)


def node_phrase(hosts: Sequence[HostAnswer], node: str) -> str:
    """`last answer 95 s ago`, `collector dead: ...`: how old what is known of a node is."""
    for host in hosts:
        if host.host == node and host.age_ns is not None:
            if host.collector:
                return f"collector {'silent' if host.collector_slow else 'dead'}: {host.collector}"
            ago = f"last answer {format_duration(host.age_ns // NS_PER_S * NS_PER_S)} ago"
            return f"{host.slowness}, {ago}" if host.slowness else ago
        if host.host == node and host.silent:
            return "never answered"
    return ""


LEVELS = 10


def levels(values: Floats) -> Ints:
    """(n,) 0 for the least value to 9 for the greatest; -1 where nothing is known."""
    known = np.isfinite(values)
    level = np.full(len(values), -1, dtype=np.int64)
    if known.any():
        low, high = float(values[known].min()), float(values[known].max())
        share = (values[known] - low) / ((high - low) or 1.0)
        level[known] = np.minimum((share * LEVELS).astype(np.int64), LEVELS - 1)
    return level


def measure_phrase(values: RankValues) -> str:
    """`temperature 31 °C to 84 °C, 4 ranks without`: what the digits 0 to 9 stand for."""
    known = values.value[np.isfinite(values.value)]
    low, high = (value_phrase(float(one), values.unit) for one in (known.min(), known.max()))
    left_out = len(values.value) - len(known)
    noun = "rank" if left_out == 1 else "ranks"
    without = f", {left_out:,} {noun} without" if left_out else ""
    return f"{values.measure}: 0 is {low}, 9 is {high}{without}"


def counts(state: Ints) -> tuple[tuple[RankState, int], ...]:
    """How many ranks are in each state that occurs, faults first."""
    number = np.bincount(state, minlength=len(RankState))
    return tuple((one, int(number[one])) for one in _COUNTED if number[one])


def counts_phrase(state: Ints) -> str:
    """`1 X · 14 ? · 4,080 H`."""
    return " · ".join(f"{number:,} {STATES[one].letter}" for one, number in counts(state))
