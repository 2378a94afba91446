"""What `oncall stacks` found, as text at 80 columns and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from oncall.core.nodeset import fold_hosts
from oncall.core.printable import clean
from oncall.fleet.outcome import REASONS, Outcome
from oncall.fleet.stacks import TakenStacks
from oncall.render.text.checkup import flow
from oncall.views.stacks import FoldedStacks, StackGroup, where
from oncall.views.words import frame_phrase

_MOST_GROUPS = 12
_MOST_MISSING = 8


def to_text(stacks: FoldedStacks, taken: TakenStacks, most_frames: int) -> str:
    """The headline, each group of equal stacks, and what is missing."""
    about = f"job {clean(stacks.job)} · stacks of {stacks.processes:,} process"
    about += "" if stacks.processes == 1 else "es"
    looks = f" · {stacks.looks} looks" if stacks.looks > 1 else ""
    sections = [
        [*flow(stacks.headline, "  "), *flow(about + looks, "  ")],
        *(list(_group(one, most_frames)) for one in stacks.groups[:_MOST_GROUPS]),
    ]
    if (more := len(stacks.groups) - _MOST_GROUPS) > 0:
        sections.append([f"… {more} more groups, in --format json"])
    sections.append(list(_missing(taken)))
    return "\n\n".join("\n".join(section) for section in sections if section) + "\n"


def to_json(stacks: FoldedStacks, taken: TakenStacks) -> str:
    """The same for programs, with all frames."""
    reported = {
        "schema": 1,
        "headline": stacks.headline,
        **asdict(stacks),
        "hosts": [
            {"host": host, "node": each.node, "outcome": each.kind, "message": each.message}
            for host, each in taken.outcomes.items()
        ],
        "missing": {problem: list(whose) for problem, whose in taken.problems.items()},
    }
    return json.dumps(reported, indent=2) + "\n"


def _group(group: StackGroup, most_frames: int) -> Iterator[str]:
    known = where(group)
    place = f" ({known})" if known else ""
    moves = ", moves" if group.moved else ""
    glyph = "✖ " if group.odd else ""
    yield from flow(f"{glyph}{group.who}: {group.activity}{moves}{place}", "  ")
    for frame in group.frames[:most_frames]:
        yield f"  {frame_phrase(frame)[0]}"
    if (more := len(group.frames) - most_frames) > 0:
        yield f"  … {more} more, with --frames {len(group.frames)}"


def _missing(taken: TakenStacks) -> Iterator[str]:
    failed: dict[str, list[str]] = {}
    for host, outcome in taken.outcomes.items():
        if outcome.kind != "ok":
            failed.setdefault(_reason(outcome), []).append(host)
    lines = [*_lines(failed), *_lines(taken.problems)]
    if lines:
        yield "Missing"
        for line in lines[:_MOST_MISSING]:
            yield from flow(line, "    ", "  ")


def _lines(missing: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for problem, whose in missing.items():
        are_hosts = not any(one.startswith(("process ", "file ")) for one in whose)
        names = fold_hosts(sorted(set(whose))) if are_hosts else ", ".join(whose[:4])
        yield f"{clean(names)}: {clean(problem)}"


def _reason(outcome: Outcome) -> str:
    general = REASONS[outcome.kind]
    return f"{general}: {outcome.message}" if outcome.message else general
