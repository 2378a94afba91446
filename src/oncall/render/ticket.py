"""A ticket of one page for whoever takes over, and a finding as one line for a chat: what is wrong,
why, what to do, what was not seen; no SQL and no sources."""

from __future__ import annotations

from collections.abc import Iterator

from oncall.core.diagnosis import Diagnosis, Finding
from oncall.core.printable import clean
from oncall.render.markdown import escape
from oncall.views import coverage_words, words

_MOST_CAUSES = 3
_MOST_OTHERS = 5  # further causes, a line each
_MOST_ADVICE = 4


def to_ticket(diagnosis: Diagnosis, until_ns: int | None = None) -> str:
    """The diagnosis as Markdown; `until_ns` is the moment shown."""
    return "\n".join(_ticket(diagnosis, until_ns)) + "\n"


def to_line(diagnosis: Diagnosis, finding: Finding | None, until_ns: int | None = None) -> str:
    """`llama-70b: Not-entered hang: rank 13 on gpu002, for 10 min (93 %). Next: ssh ...`; without
    finding the verdict."""
    job = f"{clean(diagnosis.job)}: " if diagnosis.job else ""
    if finding is None:
        command = words.next_command(diagnosis)
        said = job + words.headline(diagnosis, until_ns)[2]
        return said + (f". Next: {command}" if command else "")
    who = f": {words.who(finding.blame)}" if finding.blame else ""
    sure = words.percent(finding.confidence)
    said = f"{job}{clean(finding.title)}{who}{words.since(finding, until_ns)} ({sure})."
    if why := _conclusion(finding):
        said += f" {why}"
    command = words.first_command(finding.next)
    return said + (f" Next: {command}" if command else "")


def _ticket(diagnosis: Diagnosis, until_ns: int | None) -> Iterator[str]:
    glyph, severity, sentence = words.headline(diagnosis, until_ns)
    yield f"# {glyph} {f'{severity.capitalize()}: ' if severity else ''}{escape(sentence)}"
    window = words.window_phrase(diagnosis.since_ns, diagnosis.until_ns)
    job = f"Job {escape(diagnosis.job)}" if diagnosis.job else "A job without a name"
    yield from (
        "",
        f"{job}, evidence {window}, {escape(coverage_words.seen_phrase(diagnosis.coverage))}.",
    )
    causes = words.roots(diagnosis)
    for finding in causes[:_MOST_CAUSES]:
        yield from _cause(diagnosis, finding)
    others = causes[_MOST_CAUSES : _MOST_CAUSES + _MOST_OTHERS]
    if others:
        yield from ("", "## Also")
        yield ""
        for one in others:
            yield f"- {escape(one.title)}: {escape(words.who(one.blame))}"
        if more := len(causes) - _MOST_CAUSES - len(others):
            yield f"- and {more} more"
    yield from _unseen(diagnosis)


def _cause(diagnosis: Diagnosis, finding: Finding) -> Iterator[str]:
    yield from ("", f"## {escape(finding.title)}: {escape(words.who(finding.blame))}", "")
    if why := _conclusion(finding):
        yield f"- {escape(why)}"
    if finding.at_ns is not None:
        yield f"- Since {words.instant(finding.at_ns)}."
    yield f"- Confidence {words.percent(finding.confidence)}."
    follows = words.consequences(diagnosis, finding)
    if follows:
        yield f"- Explains {len(follows)} more: {escape(words.names_phrase(follows, 2))}"
    if finding.next:
        yield from ("", "Do next:", "")
    for advice in finding.next[:_MOST_ADVICE]:
        parts = (f"`{said}`" if command else escape(said)
                 for command, said in words.next_parts(advice))  # fmt: skip
        yield f"- {' '.join(parts)}"


def _conclusion(finding: Finding) -> str:
    """The last sentence of the story that says something."""
    said = [clean(step.say) for step in finding.story if step.say]
    return said[-1] if said else ""


def _unseen(diagnosis: Diagnosis) -> Iterator[str]:
    coverage = diagnosis.coverage
    said = [coverage_words.gap_phrase(gap) for gap in coverage.gaps[:_MOST_OTHERS]]
    if lacking := coverage_words.unseen_phrase(coverage.skipped_rules):
        said.append(lacking)
    if said:
        yield from ("", "## Not seen", "")
        yield from (f"- {escape(one)}" for one in said)
