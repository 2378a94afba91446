"""The report in the terminal: verdict first, then why, what to do, and what could not be seen.

Readable at 80 columns, without colour and in a pipe. Styles are bold, dim and the terminal's own
red, yellow and cyan, so a light background works as well as a dark one; a severity is always
spelled out, never colour alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from itertools import count
from types import MappingProxyType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from oncall.core.diagnosis import Diagnosis, Finding, Severity, Step
from oncall.core.printable import clean, clean_lines, harmless, short
from oncall.views import coverage_words, words
from oncall.views.words import percent, who

if TYPE_CHECKING:
    from oncall.core.diagnosis import Diagnosis, Finding, Lost

WIDTH = 80
_WIDEST = 100  # longer lines are hard to read on any terminal

_HANGING = "     "
_MOST_ROOTS = 5
_MOST_LINES = 8
_MOST_FRAMES, _MOST_IN_SHORT = 3, 3
_NO_DRAWINGS: Mapping[str, Sequence[str]] = MappingProxyType({})
_STYLES: dict[Severity | None, str] = {
    "critical": "bold red",
    "warning": "bold yellow",
    "info": "bold cyan",
    None: "bold",
}


def to_text(
    diagnosis: Diagnosis,
    *,
    explain: bool = False,
    width: int = WIDTH,
    colour: bool = False,
    drawings: Mapping[str, Sequence[str]] = _NO_DRAWINGS,
) -> str:
    """The report, wrapped at `width` characters: at most about 20 lines a cause. `explain` adds
    each step's fact, SQL and parameters, what was ruled out, how the confidence came about, the
    sources and what was not checked. `drawings` are lines to show with the finding of that id.
    Without `colour` there is no control character in it but the line feed."""
    console = Console(
        file=StringIO(),
        width=width,
        force_terminal=colour,
        color_system="standard" if colour else None,
        legacy_windows=False,
    )
    with console.capture() as written:
        _report(_Page(console, drawings), diagnosis, explain=explain)
    return written.get()


def _report(page: _Page, diagnosis: Diagnosis, *, explain: bool) -> None:
    glyph, severity, sentence = words.headline(diagnosis)
    badge = f"{glyph} {severity.upper()}  " if severity else f"{glyph} "
    page.flow((badge + sentence, _STYLES[severity]))
    job = f"job {short(diagnosis.job)}" if diagnosis.job else "a job without a name"
    seen = coverage_words.seen_phrase(diagnosis.coverage)
    evidence = words.evidence_phrase(diagnosis.since_ns, diagnosis.until_ns)
    page.flow((f"{job} · {seen} · {evidence}", "dim"))
    doubts = words.doubts(diagnosis)[1:] if diagnosis.result == "inconclusive" else []
    page.section("Not certain", doubts)
    others = diagnosis.suspects[1 : 1 + _MOST_IN_SHORT]
    page.section("Other suspects", [words.suspicion(one) for one in others])
    shown = words.in_full(diagnosis, _MOST_ROOTS, explain=explain)
    titled = len(shown) > 1 or words.leading(diagnosis) is None
    if diagnosis.would_decide:  # before what is for information, which decides nothing
        page.blank()
        page.heading("What would settle it, while the job is alive")
        _advice(page, diagnosis.would_decide)
    for finding in shown:
        _finding(page, diagnosis, finding, titled=titled, explain=explain)
    page.section("Also found", words.in_short(diagnosis, shown))
    page.blank()
    _coverage(page, diagnosis, explain=explain)


def _finding(
    page: _Page, diagnosis: Diagnosis, finding: Finding, *, titled: bool, explain: bool
) -> None:
    """A finding in full. `titled` if the first line of the report does not say who it is."""
    page.blank()
    about = [
        finding.id,
        f"{finding.rulebook} {finding.verdict}",
        words.case_phrase(finding.case),
        f"confidence {words.percent(finding.confidence)}",
    ]
    if titled:
        badge = f"{finding.id} {words.GLYPHS[finding.severity]} {finding.severity.upper()}  "
        page.flow((badge + words.sentence(finding), _STYLES[finding.severity]))
        since = f"since {words.instant(finding.at_ns)}" if finding.at_ns is not None else ""
        about = [*about[1:], since]
    page.flow((" · ".join(part for part in about if part), "dim"))
    if finding.seen_before:
        page.labelled("Seen before", clean(finding.seen_before))
    for label, text in why(diagnosis, finding) if explain else ():
        page.labelled(label, text)
    page.heading("Why")
    asked, shown = count(1), set[str]()
    for step in finding.story:
        _step(page, f"{next(asked):3}. " if step.ask else "  →  ", step)
        if explain and step.fact:
            _fact(page, step, known=step.fact in shown)
            shown.add(step.fact)
    _stacks(page, finding, explain=explain)
    if drawing := page.drawings.get(finding.id):
        page.blank()
        page.heading(words.drawn(finding))
        page.verbatim(drawing, "  ", "")
    if finding.next:
        page.blank()
        page.heading("Do next")
        for advice in finding.next:
            _advice(page, advice)
    if finding.explained_by:
        page.labelled("Explained by", finding.explained_by)
    consequences = words.consequences(diagnosis, finding)
    page.section("Explains", consequences, most=_MOST_LINES if explain else _MOST_IN_SHORT)
    if not explain:
        return
    page.blank()
    page.labelled("More", f"`oncall explain {finding.rulebook}.{finding.verdict}`")
    page.section("Ruled out", words.ruled_out(finding))
    page.labelled("Confidence", words.confidence_phrase(finding))
    if finding.sources:
        page.labelled("Sources", "; ".join(map(clean, finding.sources)))


def _step(page: _Page, lead: str, step: Step) -> None:
    if step.ask:
        question = (f"{clean(step.ask)}  ", "")
        page.flow(question, (words.answer(step), "bold"), first=lead, rest=_HANGING)
        lead = _HANGING
    if step.say:
        page.flow((clean(step.say), "" if step.ask else "bold"), first=lead, rest=_HANGING)


def _fact(page: _Page, step: Step, *, known: bool) -> None:
    """The rows behind an answer; the SQL of a fact is shown once a finding."""
    values = "".join(f"; ${name} = {value}" for name, value in step.params.items())
    text = f"fact {step.fact}: {words.rows_phrase(step)}{'; its SQL is above' if known else values}"
    page.flow((clean(text), "cyan"), first=_HANGING, rest=_HANGING + "  ")
    if not known:
        page.verbatim(clean_lines(step.sql), _HANGING + "  ", "dim")


def _stacks(page: _Page, finding: Finding, *, explain: bool) -> None:
    for stack in finding.stacks:
        page.blank()
        page.heading(f"Rank {stack.rank}, {clean(stack.at)}")
        frames = stack.frames if explain else stack.frames[:_MOST_FRAMES]
        for frame in frames:
            text, library = words.frame_phrase(frame)
            page.flow((text, "dim" if library else ""), first="  ", rest="    ")
        if len(stack.frames) > len(frames):
            page.flow(
                (f"… {len(stack.frames) - len(frames)} more, with --explain", "dim"), first="  "
            )


def _advice(page: _Page, advice: str) -> None:
    first = "  • "
    for is_command, text in words.next_parts(advice):
        if is_command:
            page.verbatim([text], "      ", "bold")
        else:
            page.flow((text, ""), first=first, rest="    ")
        first = "    "


def _coverage(page: _Page, diagnosis: Diagnosis, *, explain: bool) -> None:
    """What was seen and what was not: with a finding or without, never left out."""
    coverage = diagnosis.coverage
    gaps = [coverage_words.gap_phrase(gap) for gap in coverage.gaps]
    page.section(
        "Not to be trusted", list(map(coverage_words.contradiction_phrase, coverage.contradictions))
    )
    if not explain:
        page.section("Not seen", gaps, most=_MOST_IN_SHORT)
        page.section(
            "Not checked",
            coverage_words.failed_phrases(coverage_words.without_lacking(coverage.skipped_rules)),
        )
        if not diagnosis.findings:
            page.section("Note", list(map(clean, diagnosis.notes)), most=_MOST_IN_SHORT)
            page.labelled("Checked", coverage_words.checked_phrase(diagnosis))
        if unseen := coverage_words.unseen_phrase(coverage.skipped_rules):
            page.labelled("Not recorded", f"{unseen} (--explain)")
        return
    page.labelled("Coverage", coverage_words.seen_phrase(coverage))
    page.listed(gaps)
    for gap in coverage.gaps:
        page.verbatim(clean_lines(gap.details), "    ", "dim")
    page.labelled("Checked", coverage_words.checked_phrase(diagnosis))
    page.section("Not checked", coverage_words.skipped_phrases(coverage.skipped_rules))
    page.section("Note", list(map(clean, diagnosis.notes)))


class _Page:
    """Lines with hanging indents on a rich console, nothing padded, nothing beyond the width."""

    def __init__(self, console: Console, drawings: Mapping[str, Sequence[str]]) -> None:
        self._console = console
        self.drawings = drawings
        self._width = min(console.width, _WIDEST)

    def blank(self) -> None:
        self._console.print()

    def flow(self, *parts: tuple[str, str], first: str = "", rest: str | None = None) -> None:
        """One paragraph of (text, style) parts, its first line after `first`, others after
        `rest`."""
        rest = " " * len(first) if rest is None else rest
        room = self._width - max(len(first), len(rest))
        lead = first
        for line in Text.assemble(*parts).wrap(self._console, max(room, 20)):
            self._print(Text(lead) + line)
            lead = rest

    def verbatim(self, lines: Iterable[str], indent: str, style: str) -> None:
        """Lines to be copied: never wrapped."""
        for line in lines:
            self._print(Text(indent) + Text(line, style))

    def heading(self, title: str) -> None:
        self.flow((title, "bold"))

    def labelled(self, label: str, text: str) -> None:
        self.flow((f"{label}  ", "bold"), (text, ""), rest="  ")

    def section(self, title: str, items: list[str], most: int = _MOST_LINES) -> None:
        if items:
            self.heading(title)
            self.listed(items, most)

    def listed(self, items: list[str], most: int = _MOST_LINES) -> None:
        """One line an item; what is cut is said."""
        for item in items[:most]:
            self.flow((item, ""), first="  ", rest="    ")
        if len(items) > most:
            more = f"… {len(items) - most} more, in --format json"
            self.flow((more, "dim"), first="  ")

    def _print(self, line: Text) -> None:
        line.plain = harmless(line.plain)
        line.rstrip()
        self._console.print(line, soft_wrap=True, highlight=False)


_KINDS = {"symptom": "a symptom", "event": "an event", "effect": "an effect"}


def why(diagnosis: Diagnosis, finding: Finding) -> tuple[tuple[str, str], ...]:
    """What decided a finding, as (label, text): what the job lost, what shows or explains it, and
    the number that made it a fault or information."""
    followers = [one for one in diagnosis.findings if one.explained_by == finding.id]
    above = [one for one in diagnosis.findings if one.id == finding.explained_by]
    shown = [one for one in (finding, *followers, *above) if one.claim.kind == "effect"]
    explains = f"{above[0].id} explains it: {clean(above[0].title)}" if above else ""
    return (
        ("Effect", _effect(finding, shown)),
        ("Witness", explains or _witness(finding, shown)),
        ("Number", _number(finding)),
    )


def _effect(finding: Finding, shown: list[Finding]) -> str:
    if not shown:
        itself = "; an event stands for itself" if finding.claim.kind == "event" else ""
        return f"none that the evidence shows{itself}"
    return f"{clean(shown[0].title)} ({shown[0].rulebook} {shown[0].verdict})"


def _witness(finding: Finding, shown: list[Finding]) -> str:
    name = f"{finding.rulebook} {finding.verdict}"
    if finding.claim.kind != "effect":
        return f"{name}, {_KINDS[finding.claim.kind]}: {who(finding.blame)}"
    others = sorted({one.rulebook for one in shown} - {finding.rulebook})
    too = f"; it is shown by {' and '.join(others)} too" if others else ""
    return f"no symptom or event of {who(finding.blame)} explains it{too}"


def _number(finding: Finding) -> str:
    if finding.lost is not None:
        return _cost(finding.lost)
    if not finding.reasons:
        return f"confidence {percent(finding.confidence)}"
    weakest = min(finding.reasons, key=lambda reason: reason.value)
    return f"confidence {percent(finding.confidence)}; what lowers it most: {clean(weakest.why)}"


def _cost(lost: Lost) -> str:
    share = f"{percent(lost.share)} of the time is lost"
    if lost.low is None:
        return f"{share}; the noise is not known"
    if lost.low > 0:
        return f"{share}, at least {percent(lost.low)} beyond noise: a fault"
    return f"{share}, and no more than noise could be: information"
