"""What the incident screen lists: findings, root causes first, and the coverage. Pure.

A finding is identified by what it blames for which verdict, not by its number or its place: numbers
change with every new snapshot, and the reader's place must not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from oncall.core.diagnosis import Diagnosis, Finding
from oncall.core.printable import clean
from oncall.tui.widgets.reading_list import Item, Paragraph, Role
from oncall.views import coverage_words, lost_gpu_time, words
from oncall.views.snapshot import Ended, Snapshot

_MOST_EARLIER = 5
_MOST_ENDED = 5  # the log has all
MOST_FOLDED = 60  # consequences listed under one root


@dataclass(frozen=True)
class Headline:
    """The verdict, readable at a glance, and the line under it."""

    glyph: str
    severity: Role  # of oncall.core.diagnosis, or healthy, or unseen
    sentence: str
    about: str  # when, from where


@dataclass(frozen=True)
class Line:
    """One line of the list. `name` is its identity; `finding` None: what was seen."""

    name: str
    finding: Finding | None
    glyph: str
    severity: Role
    title: str
    who: str = ""
    aside: str = ""  # at the right: the confidence
    depth: int = 0  # 1: a consequence
    folds: int = 0  # consequences folded under it
    opened: bool = False
    new: bool = False
    past: bool = False  # it has ended


@dataclass(frozen=True)
class Incident:
    """The list and the headline of one snapshot."""

    headline: Headline
    lines: tuple[Line, ...]
    earlier: tuple[str, ...] = ()  # what rulebooks that have yet to run said of another moment

    def line(self, name: str) -> Line | None:
        return next((line for line in self.lines if line.name == name), None)


SEEN = "seen"  # the name of the line that tells the coverage


def incident(
    snapshot: Snapshot,
    opened: frozenset[str] = frozenset(),
    known: frozenset[str] | None = None,
    kept: str | None = None,
    pattern: str = "",
    faults_only: bool = False,
) -> Incident:
    """The incident of a snapshot.

    opened: names of roots whose consequences are shown
    known: names that the reader has had before; others are marked new (None: all are known)
    kept: the name of a line that is shown though it be folded: the reader is there
    pattern: only findings whose line contains it, in any case
    faults_only: nothing that is merely worth knowing
    """
    diagnosis = snapshot.diagnosis
    names = finding_names(diagnosis)
    explained: dict[str, list[Finding]] = {}
    for finding in diagnosis.findings:
        explained.setdefault(finding.explained_by or "", []).append(finding)
    lines: list[Line] = []
    for root in sorted(words.roots(diagnosis), key=words.over):
        name = names[root.id]
        followers = explained.get(root.id, [])
        unfolded = name in opened or any(names[one.id] == kept for one in followers)
        lines.append(_line(root, name, known, folds=len(followers), opened=unfolded))
        if unfolded:
            lines += [_line(one, names[one.id], known, depth=1) for one in followers[:MOST_FOLDED]]
            if more := len(followers[MOST_FOLDED:]):
                said = f"{more:,} more, in the report"
                lines.append(Line(f"{name}|more", root, "…", "faint", said, depth=1))
    past = [_ended_line(one, snapshot.moment.at_ns) for one in snapshot.ended[:_MOST_ENDED]]
    if faults_only:
        lines = [line for line in lines if line.severity != "info"]
    if pattern:
        lines, past = (
            [line for line in some if pattern.lower() in _searched(line).lower()]
            for some in (lines, past)
        )
    seen = _seen_line(snapshot)
    # Of an inconclusive diagnosis what would decide comes first; findings for information follow.
    decides = diagnosis.result == "inconclusive" and diagnosis.would_decide
    lines = [seen, *lines] if decides else [*lines, seen]
    return Incident(headline(snapshot), (*lines, *past), _earlier(snapshot))


def headline(snapshot: Snapshot) -> Headline:
    """The verdict in a sentence; that nothing was found is said as plainly as a finding."""
    diagnosis = snapshot.diagnosis
    glyph, severity, sentence = words.headline(diagnosis, snapshot.moment.at_ns)
    lead = words.leading(diagnosis)
    began_ns = lead.at_ns if lead else None
    pending = len(diagnosis.pending)
    # The sentence may say so itself.
    parts = (
        f"{pending} rulebooks have yet to run" if pending and lead else "",
        f"since {words.instant(began_ns)}"
        if began_ns is not None and ", since " not in sentence
        else "",
        *_lost(snapshot),
        words.window_phrase(diagnosis.since_ns, diagnosis.until_ns),
        clean(snapshot.origin),
    )
    return Headline(
        glyph=glyph,
        severity=severity or ("unseen" if diagnosis.doubt else "healthy"),
        sentence=sentence,
        about=" · ".join(part for part in parts if part),
    )


def _lost(snapshot: Snapshot) -> tuple[str, ...]:
    """What the running job's first fault has cost so far."""
    at_ns, found = snapshot.moment.at_ns, lost_gpu_time.losing(snapshot.diagnosis)
    if not (snapshot.moment.live and found and at_ns):
        return ()
    return (lost_gpu_time.phrase(found[0], at_ns),)


def _earlier(snapshot: Snapshot) -> tuple[str, ...]:
    """What is being judged again, with the moment that it was judged for."""
    if (earlier := snapshot.earlier) is None or not earlier.findings:
        return ()
    at = f"at {words.instant(earlier.at_ns, date=False)}" if earlier.at_ns else "before"
    said = (
        f"  {words.GLYPHS[one.severity]} {clean(one.title)}: {words.who(one.blame)}"
        for one in earlier.findings[:_MOST_EARLIER]
    )
    more = len(earlier.findings) - _MOST_EARLIER
    return (f"Found {at}, not yet judged for this moment:", *said) + (
        (f"  and {more} more",) if more > 0 else ()
    )


def finding_names(diagnosis: Diagnosis) -> dict[str, str]:
    """The identity of every finding by its id in this snapshot; equal ones are counted."""
    counted: Counter[str] = Counter()
    names: dict[str, str] = {}
    for finding in diagnosis.findings:
        blame = sorted(f"{one.kind} {dict(one.where)}" for one in finding.blame)
        name = "|".join((finding.rulebook, finding.verdict, *blame))
        names[finding.id] = f"{name}|{counted[name]}"
        counted[name] += 1
    return names


def place(lines: Sequence[Line], wanted: str | None, was_at: int) -> int:
    """Where the reader's line is now: by its name; else by its verdict, whose blame may have
    changed; else the line at the same place. If nothing is wanted: the first."""
    names = [line.name for line in lines]
    if wanted is None:
        return 0
    if wanted in names:
        return names.index(wanted)
    verdict = wanted.split("|")[:2]
    alike = (index for index, name in enumerate(names) if name.split("|")[:2] == verdict)
    return next(alike, max(0, min(was_at, len(names) - 1)))


def beginning(items: Sequence[Item], finding: Finding | None) -> str | None:
    """The item of a story that the cursor begins on: its conclusion, or the last step that has
    rows, so that the first key shows the culprit's; of what has no steps, the first."""
    steps = finding.story if finding else ()
    with_rows = [one.name for one in items if one.step is not None and steps[one.step].rows]
    readable = [one.name for one in items if one.reads]
    return with_rows[-1] if with_rows else readable[0] if readable else None


def step_at(items: Sequence[Item], item: Item | None, finding: Finding) -> int | None:
    """The step with rows that an item of the story shows, or the nearest above it; above all steps,
    the conclusion."""
    found = None
    for one in items:
        if one.step is not None and one.step < len(finding.story):
            found = one.step
        if found is not None and item is not None and one.name == item.name:
            break
    return found


def _line(
    finding: Finding,
    name: str,
    known: frozenset[str] | None,
    *,
    depth: int = 0,
    folds: int = 0,
    opened: bool = False,
) -> Line:
    return Line(
        name=name,
        finding=finding,
        glyph=words.GLYPHS[finding.severity],
        severity=finding.severity,
        title=clean(finding.title),
        who=words.who(finding.blame),
        aside=_until(finding) or words.percent(finding.confidence),
        past=words.over(finding),
        depth=depth,
        folds=folds,
        opened=opened,
        new=known is not None and name not in known,
    )


def _until(finding: Finding) -> str:
    """`until 03:12:00 UTC`, of what slows the job no more."""
    until_ns = finding.until_ns if words.over(finding) else None
    return f"until {words.instant(until_ns, date=False)}" if until_ns is not None else ""


def _ended_line(ended: Ended, now_ns: int | None) -> Line:
    """What later evidence does not have: what it was, without rows and commands, which were about
    the evidence of then."""
    was = ended.finding
    finding = replace(
        was,
        id="ended",
        until_ns=ended.until_ns,
        at_ns=ended.since_ns,
        story=tuple(replace(step, fact="") for step in was.story),
        next=(),
    )
    blame = sorted(f"{one.kind} {dict(one.where)}" for one in was.blame)
    return Line(
        name="|".join(("ended", was.rulebook, was.verdict, *blame)),
        finding=finding,
        glyph="◦",
        severity="faint",
        title=clean(was.title),
        who=words.who(was.blame),
        aside=words.ended_phrase(ended, now_ns),
        past=True,
    )


def _seen_line(snapshot: Snapshot) -> Line:
    """What was seen and checked: the whole answer of a healthy snapshot, never left out. Ranks that
    were seen before their collector died are no longer seen."""
    diagnosis, coverage = snapshot.diagnosis, snapshot.diagnosis.coverage
    silent = max(coverage.ranks - coverage.ranks_seen, 0)
    dead = sum(bool(host.collector) for host in snapshot.hosts)
    unknown = not coverage.ranks
    lacking = bool(unknown or silent or coverage.answered < coverage.nodes or dead)
    seen = coverage_words.seen_phrase(coverage)
    if dead:
        slow = sum(host.collector_slow for host in snapshot.hosts)
        how = "silent" if slow == dead else "dead or silent" if slow else "dead"
        seen += f" · {dead} {'collector' if dead == 1 else 'collectors'} {how}"
    unsure, title = lacking, "Coverage"
    if not diagnosis.findings or diagnosis.result == "inconclusive":
        unsure = bool(diagnosis.doubt or dead)
        title = "Inconclusive" if unsure else "No findings"
        title = "Nothing that stops the job" if diagnosis.pending else title
    glyph = words.UNSEEN_GLYPH if unsure else words.HEALTHY_GLYPH
    return Line(SEEN, None, glyph, "unseen" if unsure else "healthy", title, seen)


def items(incident: Incident) -> tuple[Item, ...]:
    """The lines as a list shows them, each on one line; what is folded is counted below."""
    earlier = (
        Item(f"earlier {number}", (Paragraph("", ((said, "faint"),), folds=False),), reads=False)
        for number, said in enumerate(incident.earlier)
    )
    return (*(_item(line) for line in incident.lines), *earlier)


def _item(line: Line) -> Item:
    title: list[tuple[str, Role]] = [
        (f"{line.glyph} ", line.severity),
        (
            f"{line.title}: {line.who}" if line.who else line.title,
            "faint" if line.past else "plain",
        ),
    ]
    if line.new:
        title.append(("  new", "value"))
    lead = "  └ " if line.depth else ""
    paragraphs = [Paragraph(lead, tuple(title), (line.aside, "faint"), folds=False)]
    if line.folds and not line.opened:
        folded = f"explains {line.folds} more {'finding' if line.folds == 1 else 'findings'}"
        paragraphs.append(Paragraph("  ▸ ", ((folded, "faint"),), folds=False))
    return Item(line.name, tuple(paragraphs), copy=f"{line.title}: {line.who}")


def _searched(line: Line) -> str:
    found = line.finding
    about = (found.id, found.rulebook, found.verdict, found.fault_class) if found else ()
    return " ".join((*about, line.title, line.who, line.severity))
