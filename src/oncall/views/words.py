"""The wording that reports and screens share: who, when, how sure, what next.

Everything here returns plain text on one line, harmless (oncall.core.printable), as names of hosts
and frames of stacks are written by others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from oncall.core.nodeset import fold_hosts, fold_ranks
from oncall.core.printable import clean, short
from oncall.core.units import NS_PER_S, format_duration

if TYPE_CHECKING:
    from oncall.core.diagnosis import Blame, Diagnosis, Finding, Severity, Step, Suspect
    from oncall.rules.engine.engine import SoFar
    from oncall.views.snapshot import Ended

GLYPHS: dict[Severity, str] = {"critical": "✖", "warning": "▲", "info": "●"}
HEALTHY_GLYPH, UNSEEN_GLYPH = "✔", "?"

_WORST_FIRST: tuple[Severity, ...] = ("critical", "warning", "info")
_MOST_NAMES = 4
_MOST_CONSPICUOUS = 5  # findings for information, one line each
_MOST_FOLDED = 48  # characters of a folded set before it is cut
_LIBRARY = re.compile(r"( at )\S*/(?:site-packages|dist-packages|lib/python3\.\d+)/")
_BETWEEN = re.compile(r"; (?![^(]*\))")  # two parts of a sentence, not within brackets
_YEAR_2001_NS = 10**18


# ---------------------------------------------------------------------- who


def ranks_phrase(ranks: Iterable[int]) -> str:
    """`rank 5`, `ranks 0-2,4 (4 ranks)`; a long set is cut, its size never is."""
    numbers = sorted(set(ranks))
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    folded = _cut(fold_ranks(numbers))
    return f"ranks {folded}" + (f" ({len(numbers)} ranks)" if len(numbers) > 3 else "")


def hosts_phrase(nodes: Iterable[str]) -> str:
    """`gpu017` or `gpu[017-018]`; a long set is cut with its size."""
    names = sorted(set(nodes))
    folded = clean(fold_hosts(map(short, names)))
    return folded if len(folded) <= _MOST_FOLDED else f"{_cut(folded)} ({len(names)} nodes)"


def who(blame: Sequence[Blame]) -> str:
    """All that is blamed, folded: `ranks 3,5 on gpu017, stage 2`, `NIC mlx5_0 on gpu018`."""
    phrases: list[str] = []
    ranks = [one for one in blame if one.kind == "rank" and one.where.get("rank") is not None]
    if ranks:
        nodes = {str(one.where["node"]) for one in ranks if one.where.get("node")}
        place = f" on {hosts_phrase(nodes)}" if nodes else ""
        stages = {one.where.get("stage") for one in ranks}
        if len(stages) == 1 and None not in stages:
            place += f", stage {stages.pop()}"
        phrases.append(ranks_phrase(int(one.where["rank"]) for one in ranks) + place)
    nodes = {
        str(one.where["node"]) for one in blame if one.kind == "node" and one.where.get("node")
    }
    if nodes:
        phrases.append(f"{'nodes' if len(nodes) > 1 else 'node'} {hosts_phrase(nodes)}")
    others = [_thing(one) for one in blame if one.kind not in ("rank", "node")]
    return names_phrase([*phrases, *dict.fromkeys(others)]) or "no rank or node singled out"


def _thing(one: Blame) -> str:
    where = one.where
    label = {"gpu": "GPU", "nic": "NIC"}.get(one.kind, one.kind)
    name = f"{label} {short(str(where.get(one.kind, '?')))}"
    parts = [communicator(where) if one.kind == "group" else name]
    if one.kind == "port" and where.get("nic"):
        parts.append(f"of {short(str(where['nic']))}")
    if where.get("node"):
        parts.append(f"on {short(str(where['node']))}")
    return " ".join(parts)


def communicator(where: Mapping[str, Any]) -> str:
    """`communicator tp_3 (0x1f2e)`, by name and hash, or by whichever is known; `group 3 (0x1f2e)`,
    as PyTorch numbers its groups."""
    comm, name = where.get("comm"), where.get("comm_name")
    called = short(str(name or comm or "?"))
    kind = "group" if called.isdecimal() else "communicator"
    return f"{kind} {called} ({comm})" if name and comm else f"{kind} {called}"


def case_phrase(case: Mapping[str, Any]) -> str:
    """The case's keys but the job and the device it is about: `comm 0x1f2e, seq 13`; of a call that
    was never met: `AllReduce 13 on communicator tp_3 (0x1f2e)`."""
    known = {key: short(str(value)) for key, value in case.items() if value is not None}
    for said_elsewhere in ("job", "about"):
        known.pop(said_elsewhere, None)
    if "op" not in case or not {"comm", "seq"} <= known.keys():
        return ", ".join(f"{key} {value}" for key, value in known.items())
    return f"{known.get('op', 'operation')} {known['seq']} on {communicator(known)}"


def names_phrase(names: Sequence[str], most: int = _MOST_NAMES) -> str:
    """`a, b, c and 9 more`: the cut is said."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _cut(folded: str) -> str:
    if len(folded) <= _MOST_FOLDED:
        return folded
    return folded[: folded.rfind(",", 0, _MOST_FOLDED) + 1 or _MOST_FOLDED] + "…"


def frame_phrase(frame: str) -> tuple[str, bool]:
    """A stack frame with a library's path cut to what tells, and whether it is a library's."""
    short = _LIBRARY.sub(r"\1…/", clean(frame))
    return short, short != clean(frame)


# --------------------------------------------------------------------- when


def instant(at_ns: int, *, date: bool = True) -> str:
    """UTC to the second; a clock that does not tell the time of day (a simulator's) as seconds."""
    if at_ns < _YEAR_2001_NS:
        return f"t = {at_ns / NS_PER_S:.3f} s"
    try:
        moment = datetime.fromtimestamp(at_ns // NS_PER_S, UTC)
    except (ValueError, OverflowError, OSError):
        return f"t = {at_ns} ns"
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC" if date else "%H:%M:%S UTC")


def axis_phrases(first_ns: int, last_ns: int) -> tuple[str, str]:
    """The ends of a time axis: `01:49:51 UTC` and `01:52:04 UTC`, or `+133 ms` in one second."""
    first, last = (instant(at_ns, date=False) for at_ns in (first_ns, last_ns))
    return first, last if last != first else f"+{format_duration(last_ns - first_ns)}"


def evidence_phrase(since_ns: int | None, until_ns: int | None) -> str:
    """`evidence 2026-11-20 03:02:11 UTC to 03:14:15 UTC (12 min 4 s)`."""
    window = window_phrase(since_ns, until_ns)
    return window if since_ns is None or until_ns is None else f"evidence {window}"


def window_phrase(since_ns: int | None, until_ns: int | None) -> str:
    """`2026-11-20 03:02:11 UTC to 03:14:15 UTC (12 min 4 s)`."""
    if since_ns is None or until_ns is None:
        return "no timestamps"
    first, last = instant(since_ns), instant(until_ns)
    if first == last:
        return (
            first if since_ns == until_ns else f"{first} ({format_duration(until_ns - since_ns)})"
        )
    same_day = since_ns >= _YEAR_2001_NS and first[:10] == last[:10]
    last = instant(until_ns, date=False) if same_day else last
    return f"{first.removesuffix(' UTC')} to {last} ({format_duration(until_ns - since_ns)})"


# ------------------------------------------------------------------ verdict


def roots(diagnosis: Diagnosis) -> tuple[Finding, ...]:
    """The findings that nothing else explains, in the order of the diagnosis."""
    known = {finding.id for finding in diagnosis.findings}
    return tuple(one for one in diagnosis.findings if one.explained_by not in known)


def leading(diagnosis: Diagnosis) -> Finding | None:
    """The root cause that the headline is about; None where it says that nothing was found, or that
    the diagnosis is inconclusive: a finding for information decides nothing."""
    causes = [one for one in roots(diagnosis) if not costs_nothing(one)]
    if not causes or (not diagnosis.faults and diagnosis.doubt):
        return None
    return min(causes, key=lambda cause: (_WORST_FIRST.index(cause.severity), over(cause)))


def blaming(diagnosis: Diagnosis) -> list[Finding]:
    """The worst root causes alone, and nobody for what is for information: were a slow rank as red
    as the one that stopped the job, all would be."""
    faults = [one for one in roots(diagnosis) if one.severity != "info"]
    return [one for one in faults if one.severity == "critical"] or faults


def costs_nothing(finding: Finding) -> bool:
    """Whether it is a symptom that explains nothing: a line of information."""
    alone = finding.claim.kind == "symptom" and not finding.effect
    return alone and finding.severity == "info"


def in_full(diagnosis: Diagnosis, most: int, *, explain: bool) -> list[Finding]:
    """The findings to tell in full: the first roots, faults where there are any, else what is no
    symptom alone; or, where all is to be explained, each root followed by what it explains (`most`
    of either)."""
    shown: list[Finding] = []
    causes = roots(diagnosis)
    faults = [one for one in causes if one.severity != "info"]
    noted = [one for one in causes if not costs_nothing(one)]
    for root in (causes if explain else faults or noted)[:most]:
        shown.append(root)
        if explain:
            shown += [one for one in diagnosis.findings if one.explained_by == root.id][:most]
    return shown


def in_short(diagnosis: Diagnosis, shown: Sequence[Finding]) -> list[str]:
    """The roots that are not `shown` in full, one line each; of what is for information what it
    comes to, as nobody has to act on it."""
    known = {one.id for one in shown}
    others = [one for one in roots(diagnosis) if one.id not in known]
    faults = [one for one in others if one.severity != "info"]
    conspicuous = [one for one in others if one.severity == "info"]
    lines = [f"{one.id}  {sentence(one)}" for one in (*faults, *conspicuous[:_MOST_CONSPICUOUS])]
    more = len(conspicuous) - _MOST_CONSPICUOUS
    return lines if more <= 0 else [*lines, f"{more} more for information, in --format json"]


def stops(finding: Finding) -> bool:
    """Whether it says that the job has stopped: as an effect, or as what explains that."""
    said = finding.claim.kind == "effect" or bool(finding.effect)
    return said and "stop" in finding.claim.effects and finding.lost is None


def over(finding: Finding) -> bool:
    """Whether the evidence shows that what slowed the job does so no more."""
    return finding.lost is not None and finding.until_ns is not None


def span_phrase(duration_ns: int) -> str:
    """`58 s`: to the second, as people time."""
    return format_duration(max(round(duration_ns / NS_PER_S), 1) * NS_PER_S)


def ended_phrase(ended: Ended, now_ns: int | None) -> str:
    """`ended 3 min ago, once, 58 s`."""
    ago = f" {span_phrase(now_ns - ended.until_ns)} ago" if now_ns is not None else ""
    often = "once" if ended.times == 1 else f"{ended.times} times"
    in_all = "" if ended.times == 1 else " in all"
    return f"ended{ago}, {often}, {span_phrase(ended.lasted_ns)}{in_all}"


def headline(diagnosis: Diagnosis, until_ns: int | None = None) -> tuple[str, Severity | None, str]:
    """The verdict in one line: its glyph, its severity (None without finding) and the sentence.

    With `until_ns`, the moment shown, a hang says for how long, and what else there is since when
    and for how long.
    """
    causes = roots(diagnosis)
    if (lead := leading(diagnosis)) is None:
        glyph = UNSEEN_GLYPH if diagnosis.doubt else HEALTHY_GLYPH
        return glyph, None, _nothing_found(diagnosis) + _also(len(causes))
    worst = lead.severity
    first = sorted((cause for cause in causes if cause.severity == worst), key=over)
    parts = _alike(first)
    also = _also(len(causes) - len(first))
    if len(parts) > 1:
        more = f"; and {len(parts) - 2} more" if len(parts) > 2 else ""
        kind = "findings for information" if worst == "info" else "root causes"
        said = f"{len(parts)} {kind}. {'; '.join(parts[:2])}{more}{also}"
        return GLYPHS[worst], worst, said
    earliest = min(first, key=lambda one: (one.at_ns is None, one.at_ns))
    return GLYPHS[worst], worst, parts[0] + since(earliest, until_ns) + also


def _alike(causes: Sequence[Finding]) -> list[str]:
    """A sentence for each title and host: the ranks of a host that stopped together are one."""
    together: dict[tuple[str, frozenset[str]], list[Finding]] = {}
    for number, cause in enumerate(causes):
        nodes = frozenset(str(one.where.get("node") or number) for one in cause.blame)
        together.setdefault((cause.title, nodes), []).append(cause)
    return [
        sentence(replace(alike[0], blame=tuple(one for each in alike for one in each.blame)))
        for alike in together.values()
    ]


def _also(lesser: int) -> str:
    return f"; {lesser} lesser {'finding' if lesser == 1 else 'findings'}" if lesser else ""


def sentence(cause: Finding) -> str:
    """What the job lost, what caused it, and who is blamed, as far as each is known: `Slow
    computation (18 % lost): GPU throttled, rank 12 on gpu003`."""
    lost = f" ({percent(cause.lost.share)} lost)" if cause.lost else ""
    title = clean(cause.title)
    said = f"{clean(cause.effect)}{lost}: {title}" if cause.effect else f"{title}{lost}"
    if not cause.blame:
        return said
    return f"{said}{',' if cause.effect else ':'} {who(cause.blame)}"


def conclusion(cause: Finding) -> str:
    """The last sentence of its story that says something; empty if none does."""
    return next((clean(step.say) for step in reversed(cause.story) if step.say), "")


def found_so_far(so_far: SoFar) -> str:
    """How far a diagnosis is, and what it says so far: `✖ Missing call: rank 3 so far; 4 of 20
    rulebooks have run`."""
    run = f"{so_far.run} of {so_far.of} rulebooks have run"
    if so_far.worst is None:
        return run
    return f"{GLYPHS[so_far.worst.severity]} {sentence(so_far.worst)} so far; {run}"


def since(cause: Finding, until_ns: int | None) -> str:
    """`, for 10 min` of a hang at the moment shown; else `, since 03:10:00 UTC (10 min)`, and of
    what is over `, 03:10:00 to 03:11:00 UTC`; nothing of what has lasted for less than a second."""
    if cause.at_ns is None:
        return ""
    if over(cause):
        return f", {window_phrase(cause.at_ns, cause.until_ns)}"
    if until_ns is None or until_ns - cause.at_ns < NS_PER_S:
        return f", since {instant(cause.at_ns)}"
    if until_ns < cause.at_ns + NS_PER_S:
        return ""
    lasts = format_duration((until_ns - cause.at_ns) // NS_PER_S * NS_PER_S)
    if cause.fault_class == "hang":
        return f", for {lasts}"
    return f", since {instant(cause.at_ns, date=False)} ({lasts})"


def _nothing_found(diagnosis: Diagnosis) -> str:
    coverage = diagnosis.coverage
    if diagnosis.pending:
        return f"Nothing stops the job; {clean(diagnosis.doubt)}"
    if diagnosis.doubt:
        return f"Inconclusive: {doubts(diagnosis)[0]}"
    if coverage.ranks_seen < coverage.ranks:
        return f"No fault found in the {coverage.of_ranks} seen"
    return "No fault found"


def doubt(diagnosis: Diagnosis) -> str:
    """Why it is inconclusive, the likeliest suspect first: `most likely rank 15: others wait for it
    49 % of the time; this could be chance`."""
    return "; ".join(doubts(diagnosis))


def doubts(diagnosis: Diagnosis) -> list[str]:
    """The same in parts: the first is the headline's, the others say why it is not certain."""
    first = [suspicion(one, "most likely ") for one in diagnosis.suspects[:1]]
    return [part for one in (*first, clean(diagnosis.doubt)) for part in _BETWEEN.split(one)]


def suspicion(suspect: Suspect, how: str = "") -> str:
    """`most likely rank 15: others wait for it 49 % of the time`; without a name where nobody is
    known."""
    why = clean(suspect.why)
    return f"{how}{who(suspect.blame)}: {why}" if suspect.blame else why


def rows_phrase(step: Step) -> str:
    """`15 rows`: the evidence behind a step."""
    return f"{step.rows:,} {'row' if step.rows == 1 else 'rows'}"


def answer(step: Step) -> str:
    """The step's answer as a sentence."""
    return "Unknown." if step.answer == "unknown" else f"{step.answer.capitalize()}."


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def confidence_phrase(finding: Finding) -> str:
    """`90 %, because the log names it`; of several reasons, each with its own share."""
    sure = percent(finding.confidence)
    if len(finding.reasons) == 1:
        return f"{sure}, because {clean(finding.reasons[0].why)}"
    reasons = (f"{clean(one.why)} ({percent(one.value)})" for one in finding.reasons)
    return ": ".join(filter(None, (sure, "; ".join(reasons))))


def ruled_out(finding: Finding) -> list[str]:
    """Verdicts with why they were turned away from, those of one reason together."""
    verdicts: dict[str, list[str]] = {}
    for one in finding.ruled_out:
        verdicts.setdefault(clean(one.because), []).append(clean(one.verdict))
    return [f"{', '.join(names)}: {because}" for because, names in verdicts.items()]


def consequences(diagnosis: Diagnosis, root: Finding) -> list[str]:
    """What `root` explains, one line a verdict: `F2-F8 slow S1, Slow at start: ranks 0-6`."""
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in diagnosis.findings:
        if finding.explained_by == root.id:
            key = (finding.rulebook, finding.verdict, finding.title)
            groups.setdefault(key, []).append(finding)
    return [
        clean(
            f"{names_phrase([one.id for one in members], 3)}  {title} ({rulebook} {verdict}): "
            + who([blame for one in members for blame in one.blame])
        )
        for (rulebook, verdict, title), members in groups.items()
    ]


def next_parts(step: str) -> list[tuple[bool, str]]:
    """A next step as (is a command, text): what stands in backticks and has a space, or a line
    that starts with `$ `, is a command to be copied whole; an option alone is none."""
    parts: list[tuple[bool, str]] = []
    for line in step.strip().splitlines():
        if line.lstrip().startswith("$ "):
            parts.append((True, clean(line.strip()[2:])))
            continue
        for index, piece in enumerate(re.split(r"`([^`\s-][^`\s]*+\s[^`]*+)`", line)):
            if piece.strip(" .,;:") or (index % 2 == 0 and piece.strip() and not parts):
                parts.append((index % 2 == 1, clean(piece)))
    return parts


def first_command(advice: Iterable[str]) -> str:
    """The first command of what to do next; empty if it suggests none."""
    parts = (part for one in advice for part in next_parts(one))
    return next((said for is_command, said in parts if is_command), "")


def next_command(diagnosis: Diagnosis) -> str:
    """What to type about the headline: of an inconclusive one, what would decide."""
    lead = leading(diagnosis)
    return first_command(lead.next if lead else [diagnosis.would_decide])


def drawn(finding: Finding) -> str:
    """What the lines drawn with a finding show, as a heading."""
    return (finding.picture or "traffic").capitalize()
