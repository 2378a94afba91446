"""Findings weighed against each other: agreement, root cause before consequence, order, ids."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from oncall.core.diagnosis import Finding, Reason
from oncall.rules.engine.story import Draft, clip
from oncall.rules.language.template import hex_id

_SEVERITIES = {"critical": 0, "warning": 1, "info": 2}


def ranked(drafts: Sequence[Draft]) -> tuple[Finding, ...]:
    """The findings as they are shown: roots first, each consequence naming its root's id."""
    order = sorted(drafts, key=lambda draft: _strength(draft.finding))
    findings = [draft.finding for draft in order]
    roots = _roots(_explained(order))
    sure = _agreed(findings, [index for index, root in enumerate(roots) if root is None])
    for index, (confidence, reasons) in sure.items():
        findings[index] = replace(findings[index], confidence=confidence, reasons=reasons)

    def place(index: int) -> tuple[Any, ...]:
        root = roots[index]
        top = findings[index if root is None else root]
        return (root is not None, _strength(top), _strength(findings[index]))

    shown = sorted(range(len(findings)), key=place)
    ids = {index: f"F{number}" for number, index in enumerate(shown, start=1)}
    return tuple(
        replace(
            findings[index],
            id=ids[index],
            explained_by=None if (root := roots[index]) is None else ids[root],
        )
        for index in shown
    )


def _strength(finding: Finding) -> tuple[Any, ...]:
    """Severest first, then surest, then earliest; the rest only makes the order total."""
    at_ns = finding.at_ns
    case = tuple(str(value) for value in finding.case.values())
    return (
        _SEVERITIES[finding.severity],
        -finding.confidence,
        at_ns is None,
        at_ns or 0,
        finding.rulebook,
        finding.verdict,
        case,
    )


# ------------------------------------------------------------------ explaining


def _explained(drafts: Sequence[Draft]) -> list[set[int]]:
    """For each draft, the others that it says it explains."""
    index = _Index([draft.finding for draft in drafts])
    return [
        {other for row in draft.explains for other in index.matching(row, draft.finding)} - {number}
        for number, draft in enumerate(drafts)
    ]


class _Index:
    """Findings by what an `explains` row may name."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = findings
        self.by: dict[tuple[str, Any], set[int]] = defaultdict(set)
        for number, finding in enumerate(findings):
            self.by["verdict", finding.verdict].add(number)
            self.by["rulebook", finding.rulebook].add(number)
            self.by["comm", finding.case.get("comm")].add(number)
            # What a finding blames may be named, too: a rank, alone or of a group, a host, a whole
            # communicator.
            for blame in finding.blame:
                for column in ("rank", "node", "comm"):
                    self.by[column, blame.where.get(column)].add(number)
                for rank in blame.where.get("ranks") or ():
                    self.by["rank", rank].add(number)
        with_comm = {
            n for (column, value), of in self.by.items() if column == "comm" and value for n in of
        }
        self.of_any_comm = set(range(len(findings))) - with_comm

    def matching(self, row: Mapping[str, Any], by: Finding) -> set[int]:
        """Findings of the same job that match every value of the row; NULLs say nothing, and a
        finding without a communicator is not distinguished by one."""
        wanted = [
            self.by.get((column, hex_id(value)), set()) | self.of_any_comm
            if column == "comm"
            else self.by.get((column, value), set())
            for column, value in row.items()
            if value is not None
        ]
        if not wanted:
            return set()
        job = by.case.get("job")
        return {
            number
            for number in set.intersection(*wanted)
            if job is None or self.findings[number].case.get("job", job) == job
        }


def _roots(explains: Sequence[set[int]]) -> list[int | None]:
    """For each finding the root that explains it, None for the roots themselves.

    Findings are numbered strongest first. In a cycle that nothing outside explains, the
    strongest is the root; what several roots explain belongs to the strongest of them.
    """
    sources = _sources(explains)
    root: list[int | None] = [None] * len(explains)
    seen = set(sources)
    for source in sources:
        waiting = [source]
        while waiting:
            for other in explains[waiting.pop()]:
                if other not in seen:
                    seen.add(other)
                    root[other] = source
                    waiting.append(other)
    return root


def _sources(explains: Sequence[set[int]]) -> list[int]:
    """The strongest member of each strongly connected group that no other group explains."""
    finished = _by_finish(explains)
    explained_by: list[set[int]] = [set() for _ in explains]
    for number, others in enumerate(explains):
        for other in others:
            explained_by[other].add(number)
    sources: list[int] = []
    grouped: set[int] = set()
    # Kosaraju: against the edges, the last to finish reaches only its own group.
    for start in reversed(finished):
        if start in grouped:
            continue
        group, waiting = {start}, [start]
        while waiting:
            new = explained_by[waiting.pop()] - group - grouped
            group |= new
            waiting += new
        if all(explained_by[member] <= group for member in group):
            sources.append(min(group))
        grouped |= group
    return sorted(sources)


def _by_finish(explains: Sequence[set[int]]) -> list[int]:
    """Numbers in the order a depth-first search leaves them."""
    finished: list[int] = []
    seen: set[int] = set()
    for start in range(len(explains)):
        if start in seen:
            continue
        seen.add(start)
        stack = [(start, iter(sorted(explains[start])))]
        while stack:
            number, others = stack[-1]
            following = next((other for other in others if other not in seen), None)
            if following is None:
                finished.append(number)
                stack.pop()
            else:
                seen.add(following)
                stack.append((following, iter(sorted(explains[following]))))
    return finished


# ------------------------------------------------------------------- agreement


def _agreed(
    findings: Sequence[Finding], roots: Iterable[int]
) -> dict[int, tuple[float, tuple[Reason, ...]]]:
    """Raised confidence where independent rulebooks blame the same rank or node.

    With confidences a and b, both become 1 - (1-a)(1-b); of each other rulebook only its surest
    agreeing finding counts.
    """
    numbers = list(roots)
    declared: dict[tuple[str, Any], set[int]] = defaultdict(set)
    for number in numbers:
        for column, value, sought in _blamed(findings[number]):
            if not sought:
                declared[column, value].add(number)
    raised: dict[int, tuple[float, tuple[Reason, ...]]] = {}
    for number in numbers:
        finding = findings[number]
        surest: dict[str, tuple[float, tuple[str, Any]]] = {}
        for column, value, sought in sorted(_blamed(finding), key=str):
            for other in sorted(declared[column, value]) if sought else ():
                name, sure = findings[other].rulebook, findings[other].confidence
                if name != finding.rulebook and sure > surest.get(name, (0.0, None))[0]:
                    surest[name] = (sure, (column, value))
        if surest:
            raised[number] = _raise(finding, surest)
    return raised


def _blamed(finding: Finding) -> set[tuple[str, Any, bool]]:
    """What a finding declares (False) and what it seeks in others (True) to agree with them.

    Two agree on a rank, or on a node if at least one of them knows no rank.
    """
    keys: set[tuple[str, Any, bool]] = set()
    for blame in finding.blame:
        rank, node = blame.where.get("rank"), blame.where.get("node")
        if rank is not None:
            keys |= {("rank", rank, False), ("rank", rank, True)}
        if node is not None:
            keys |= {
                ("on node", node, False),
                ("node" if rank is not None else "on node", node, True),
            }
        if node is not None and rank is None:
            keys.add(("node", node, False))
    return keys


def _raise(
    finding: Finding, surest: Mapping[str, tuple[float, tuple[str, Any]]]
) -> tuple[float, tuple[Reason, ...]]:
    doubt = 1 - finding.confidence
    reasons = list(finding.reasons)
    for name, (sure, (column, value)) in sorted(surest.items()):
        doubt *= 1 - sure
        who = f"{column.removeprefix('on ')} {value}"
        reasons.append(Reason("agreement", sure, f"the rulebook {name} blames {who} too"))
    return clip(1 - doubt), tuple(reasons)
