"""The diagnosis as GitHub-flavoured markdown, no HTML but empty comments: the whole report; a
ticket of one page for whoever takes over, without SQL and sources; and a finding as one line for a
chat."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from oncall.core.diagnosis import Diagnosis, Finding, Step
from oncall.core.printable import clean, clean_lines, harmless
from oncall.views import coverage_words, words

_SPECIAL = re.compile(r"([\\`*_\[\]<>|~&$!])")

# What GitHub makes a link of, and whom it would call: a backslash helps against the first only.
_ADDRESS = re.compile(r"\b(https?|ftp|mailto|xmpp|www)([:.])", re.IGNORECASE)
_MENTIONED = re.compile(r"(?<![A-Za-z0-9_])@(?=[A-Za-z0-9])")
MENTION = "<!-- -->"  # after the @

_NO_DRAWINGS: Mapping[str, Sequence[str]] = MappingProxyType({})


def to_markdown(
    diagnosis: Diagnosis,
    *,
    explain: bool = False,
    drawings: Mapping[str, Sequence[str]] = _NO_DRAWINGS,
) -> str:
    """The whole diagnosis, nothing capped. `explain` adds each step's fact, SQL and parameters;
    `drawings` are lines shown with the finding of that id."""
    return "\n".join(_document(diagnosis, explain, drawings)) + "\n"


def escape(text: str) -> str:
    """Plain text as markdown that shows exactly that text."""
    escaped = _ADDRESS.sub(r"\1\\\2", _SPECIAL.sub(r"\\\1", clean(text)))
    escaped = _MENTIONED.sub(f"@{MENTION}", escaped)
    numbered = re.sub(r"^(\d+)([.)])(?=\s|$)", r"\1\\\2", escaped)
    return re.sub(r"^([#+=-])", r"\\\1", numbered)


def _document(
    diagnosis: Diagnosis, explain: bool, drawings: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    glyph, severity, sentence = words.headline(diagnosis)
    yield f"# {glyph} {f'{severity.capitalize()}: ' if severity else ''}{escape(sentence)}"
    yield ""
    evidence = words.evidence_phrase(diagnosis.since_ns, diagnosis.until_ns)
    yield f"Job {_code(diagnosis.job) if diagnosis.job else 'without a name'}, {evidence}."
    if diagnosis.result == "inconclusive":
        yield from _section("Not certain", words.doubts(diagnosis)[1:])
    yield from _section("Other suspects", map(words.suspicion, diagnosis.suspects[1:]))
    if diagnosis.would_decide:
        yield from ("", "## What would settle it, while the job is alive", "")
        yield from _advice(diagnosis.would_decide)
    shown = words.in_full(diagnosis, len(diagnosis.findings), explain=explain)
    for finding in shown:
        yield from _finding(diagnosis, finding, explain, drawings.get(finding.id, ()))
    yield from _section("Also found", words.in_short(diagnosis, shown))
    yield from _coverage(diagnosis, explain)


def _finding(
    diagnosis: Diagnosis, finding: Finding, explain: bool, drawing: Sequence[str]
) -> Iterator[str]:
    yield from ("", f"## {finding.id}: {escape(words.sentence(finding))}")
    yield from (
        "",
        f"- **Verdict:** {escape(f'{finding.rulebook} {finding.verdict}')}, "
        f"{finding.fault_class}, {finding.severity}",
    )
    if case := words.case_phrase(finding.case):
        yield f"- **Case:** {escape(case)}"
    if finding.at_ns is not None:
        yield f"- **Since:** {words.instant(finding.at_ns)}"
    if finding.seen_before:
        yield f"- **Seen before:** {escape(finding.seen_before)}"
    yield f"- **Confidence:** {escape(words.confidence_phrase(finding))}"
    yield from ("", "### Why", "")
    for number, step in enumerate(finding.story, start=1):
        yield from _step(number, step, explain)
    for stack in finding.stacks:
        yield from ("", f"### Rank {stack.rank}, {escape(stack.at)}", "")
        yield from _block(map(clean, stack.frames))
    if drawing:
        yield from ("", f"### {words.drawn(finding)}", "", *_block(drawing))
    if finding.next:
        yield from ("", "### Do next", "")
        for advice in finding.next:
            yield from _advice(advice)
    yield from _section("Explained by", [finding.explained_by] if finding.explained_by else [])
    yield from _section("Explains", words.consequences(diagnosis, finding))
    yield from _section("Ruled out", words.ruled_out(finding))
    yield from _section("Sources", finding.sources)


def _step(number: int, step: Step, explain: bool) -> Iterator[str]:
    indent = " " * len(f"{number}. ")
    parts = []
    if step.ask:
        parts.append(f"{escape(step.ask)} **{words.answer(step)}**")
    if step.say:
        parts.append(escape(step.say))
    yield f"{number}. {' '.join(parts)}"
    if explain and step.fact:
        values = "".join(f", {_code(f'${name} = {value}')}" for name, value in step.params.items())
        yield from ("", f"{indent}Fact {_code(step.fact)}: {words.rows_phrase(step)}{values}", "")
        yield from (indent + line for line in _block(clean_lines(step.sql), "sql"))
        yield ""


def _advice(advice: str) -> Iterator[str]:
    lines: list[str] = []
    for is_command, text in words.next_parts(advice):
        lines += [*_block([text], "sh")] if is_command else [escape(text)]
    for number, line in enumerate(lines):
        yield ("  " if number else "- ") + line


def _coverage(diagnosis: Diagnosis, explain: bool) -> Iterator[str]:
    coverage = diagnosis.coverage
    yield from ("", "## Coverage", "", escape(coverage_words.seen_phrase(coverage)))
    gaps = [coverage_words.gap_phrase(gap) for gap in coverage.gaps]
    if gaps:
        yield from ("", *(f"- {escape(gap)}" for gap in gaps))
    for gap in coverage.gaps if explain else ():
        if gap.details:
            yield from ("", *_block(clean_lines(gap.details)))
    yield from ("", f"Checked: {escape(coverage_words.checked_phrase(diagnosis))}.")
    yield from _section(
        "Not to be trusted", map(coverage_words.contradiction_phrase, coverage.contradictions)
    )
    yield from _section("Not checked", coverage_words.skipped_phrases(coverage.skipped_rules))
    yield from _section("Notes", diagnosis.notes)


def _section(title: str, items: Iterable[str]) -> Iterator[str]:
    lines = [f"- {escape(item)}" for item in items]
    if lines:
        yield from ("", f"### {title}", "", *lines)


def _block(lines: Iterable[str], language: str = "") -> Iterator[str]:
    """A fenced block; the fence is longer than any run of backticks inside."""
    body = list(map(harmless, lines))
    longest = max((len(run) for line in body for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    yield from (fence + language, *body, fence)


def _code(text: str) -> str:
    """A code span of exactly `text`."""
    body = clean(text)
    fence = "`" * (max((len(run) for run in re.findall("`+", body)), default=0) + 1)
    pad = " " if body.startswith("`") or body.endswith("`") else ""
    return f"{fence}{pad}{body}{pad}{fence}"


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
    if why := words.conclusion(finding):
        said += f" {why}"
    command = words.first_command(finding.next)
    return said + (f" Next: {command}" if command else "")


def _ticket(diagnosis: Diagnosis, until_ns: int | None) -> Iterator[str]:
    glyph, severity, sentence = words.headline(diagnosis, until_ns)
    yield f"# {glyph} {f'{severity.capitalize()}: ' if severity else ''}{escape(sentence)}"
    evidence = words.evidence_phrase(diagnosis.since_ns, diagnosis.until_ns)
    job = f"Job {escape(diagnosis.job)}" if diagnosis.job else "A job without a name"
    yield from (
        "",
        f"{job}, {evidence}, {escape(coverage_words.seen_phrase(diagnosis.coverage))}.",
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
    if why := words.conclusion(finding):
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


def _unseen(diagnosis: Diagnosis) -> Iterator[str]:
    coverage = diagnosis.coverage
    said = [coverage_words.gap_phrase(gap) for gap in coverage.gaps[:_MOST_OTHERS]]
    if lacking := coverage_words.unseen_phrase(coverage.skipped_rules):
        said.append(lacking)
    if said:
        yield from ("", "## Not seen", "")
        yield from (f"- {escape(one)}" for one in said)
