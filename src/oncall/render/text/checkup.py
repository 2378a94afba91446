"""What `oncall doctor` found, as text at 80 columns and as JSON: equal results folded."""

from __future__ import annotations

import json
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from oncall.core.nodeset import fold_hosts, fold_ranks
from oncall.core.printable import clean, typed
from oncall.fleet.checkup.doctor import Checkup, summary
from oncall.fleet.checkup.doctor_here import Check
from oncall.fleet.checkup.job_checkup import JobCheckup, not_checked
from oncall.fleet.outcome import REASONS, Outcome, of_any_host

WIDTH = 80
_WAYS = {"in-process": "SSH in this process", "openssh": "OpenSSH"}
_GLYPHS = {"ok": "✔", "wrong": "✖", "absent": "·", "unknown": "?"}


def fleet_text(checkups: Sequence[Checkup]) -> str:
    """Hosts with the same troubles in one paragraph, the worst of them last, before the count."""
    groups: dict[tuple[object, ...], list[Checkup]] = defaultdict(list)
    for checkup in checkups:
        troubles = (of_any_host(checkup.host, trouble.what) for trouble in checkup.troubles)
        groups[tuple(troubles)].append(checkup)
    lines: list[str] = []
    for _, group in sorted(groups.items(), key=lambda item: (bool(item[0]), -len(item[1]))):
        lines += [*_group(group), ""]
    well = sum(checkup.well for checkup in checkups)
    lines.append(f"{well} of {len(checkups)} nodes are healthy")
    lines += _ways(checkups)
    return "\n".join(lines) + "\n"


def _group(group: Sequence[Checkup]) -> Iterator[str]:
    first = group[0]
    count = f" ({len(group)})" if len(group) > 1 else ""
    glyph = "✔" if first.well else "✖" if first.kind != "ok" else "▲"
    names = clean(fold_hosts(checkup.host for checkup in group))
    yield from flow(f"{glyph} {names}{count}" + ("  ok" if first.well else ""), "  ")
    for trouble in first.troubles:
        what = of_any_host(first.host, trouble.what) if len(group) > 1 else trouble.what
        yield from flow(clean(what), "    ", "  ")
        if trouble.next:
            # To be copied: never wrapped.
            yield "    $ " + typed(trouble.next, host=first.host)
    if first.kind == "ok":
        yield from flow(clean(" · ".join(summary(group))), "    ", "  ")


def _ways(checkups: Sequence[Checkup]) -> Iterator[str]:
    """How the hosts were reached, or not, and why so."""
    ways: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for checkup in checkups:
        if checkup.transport:
            verb = "Reached" if checkup.kind == "ok" else "Tried"
            way = _WAYS.get(checkup.transport, checkup.transport)
            ways[verb, way, checkup.why].append(checkup.host)
    for (verb, way, why), hosts in sorted(ways.items(), key=lambda item: -len(item[1])):
        text = f"{verb} by {way}: {fold_hosts(hosts)} ({why})"
        yield from flow(clean(text), "  ")


def here_text(checks: Sequence[Check]) -> str:
    """One line a check; what to type is below it."""
    room = max(len(check.name) for check in checks) + 2
    lines: list[str] = []
    for check in checks:
        head = f"{_GLYPHS[check.state]} {check.name:<{room}}"
        lines += flow(head + clean(check.text), " " * len(head))
        if check.next:
            lines.append(f"{'':{len(head)}}$ {clean(check.next)}")
    wrong = sum(check.state == "wrong" for check in checks)
    unknown = sum(check.state == "unknown" for check in checks)
    if unknown:
        lines += ["", f"{unknown} of {len(checks)} checks could not be made"]
    else:
        lines += ["", f"{wrong} of {len(checks)} checks failed" if wrong else "All checks passed"]
    return "\n".join(lines) + "\n"


def job_text(checkups: Sequence[JobCheckup], outcomes: Mapping[str, Outcome]) -> str:
    """What a running job would leave: a section for each set of equal processes."""
    lines: list[str] = []
    for one in checkups:
        ranks = f"ranks {fold_ranks(one.ranks)}" if one.ranks else f"{one.processes} processes"
        versions = ", ".join(f"{name} {version}" for name, version in one.versions.items())
        head = f"job {one.job}: {ranks} on {fold_hosts(one.hosts)}"
        head += f" ({versions})" if versions else ""
        lines += [*flow(clean(head), "  "), "", here_text(one.checks)]
    failed: dict[str, list[str]] = defaultdict(list)
    for outcome in not_checked(outcomes):
        failed[REASONS[outcome.kind]].append(outcome.host)
    for reason, hosts in failed.items():
        lines += flow(clean(f"not checked: {fold_hosts(hosts)} {reason}"), "  ")
    return "\n".join(lines).rstrip("\n") + "\n"


def job_json(checkups: Sequence[JobCheckup], outcomes: Mapping[str, Outcome]) -> str:
    return _json(
        well=all(one.well and one.complete for one in checkups) and not not_checked(outcomes),
        processes=[asdict(one) for one in checkups],
        hosts=[
            {"host": host, "outcome": one.kind, "message": one.message}
            for host, one in outcomes.items()
        ],
    )


def fleet_json(checkups: Sequence[Checkup]) -> str:
    return _json(
        well=all(checkup.well for checkup in checkups),
        hosts=[_checkup(checkup) for checkup in checkups],
    )


def here_json(checks: Sequence[Check]) -> str:
    return _json(
        well=all(check.state != "wrong" for check in checks), checks=[*map(asdict, checks)]
    )


def _checkup(checkup: Checkup) -> dict[str, Any]:
    fields = asdict(checkup)
    status = fields.pop("status")
    troubles = [
        {"what": trouble.what, "next": trouble.next.format(host=checkup.host)}
        for trouble in checkup.troubles
    ]
    kept = (
        "node",
        "oncall_version",
        "protocol",
        "collector",
        "shards",
        "rings",
        "images",
        "free_bytes",
    )
    return fields | {key: status.get(key) for key in kept} | {"troubles": troubles}


def _json(**content: object) -> str:
    return json.dumps({"schema": 1} | content, indent=2) + "\n"


def flow(text: str, rest: str, first: str = "") -> Iterable[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
