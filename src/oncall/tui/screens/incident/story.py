"""A finding's story as items to read one after the other. Pure; the words are the report's.

The cursor is on an item: a step, a command, a stack. Headings and plain lines lie between. `copy`
is the text that the copy key takes of an item.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count

from oncall.core.diagnosis import Diagnosis, Finding, Stack, Step
from oncall.core.printable import clean
from oncall.core.units import format_duration
from oncall.fleet.outcome import REASONS, lost_gateways_phrases
from oncall.tui.widgets.reading_list import (
    Item,
    Paragraph,
    Role,
    frame_lines,
    heading,
    line,
    readable,
    text,
)
from oncall.views import coverage_words, words
from oncall.views.snapshot import Snapshot

MOST_FRAMES = 8


def story(snapshot: Snapshot, finding: Finding | None) -> tuple[Item, ...]:
    """The story of a finding; of none: what was seen, what was checked and what was not."""
    if finding is None:
        return tuple(_seen(snapshot))
    return tuple(_finding(snapshot.diagnosis, finding))


def _finding(diagnosis: Diagnosis, finding: Finding) -> Iterator[Item]:
    case = words.case_phrase(finding.case)
    since = f"since {words.instant(finding.at_ns)}" if finding.at_ns is not None else ""
    lasted = finding.until_ns is not None and finding.claim.kind != "event"
    until = f"until {words.instant(finding.until_ns or 0)}" if lasted else ""
    about = (f"{finding.id} {finding.rulebook} {finding.verdict}", case, f"{since} {until}".strip())
    yield text("about", line(" · ".join(filter(None, about)), "faint"))
    if finding.seen_before:
        yield readable("seen before", f"Seen before: {clean(finding.seen_before)}")
    yield from _steps(finding)
    yield from _advice(finding.next)
    yield from _stacks(finding.stacks)
    yield from _section("Explains", words.consequences(diagnosis, finding))
    yield from _section("Ruled out", words.ruled_out(finding))
    yield from _confidence(finding)


def _steps(finding: Finding) -> Iterator[Item]:
    yield heading("Why")
    asked = count(1)
    for index, step in enumerate(finding.story):
        lead = f"{next(asked):2} " if step.ask else " → "
        yield Item(
            name=f"step {index}",
            paragraphs=tuple(_step(lead, step)),
            step=index if step.fact else None,
            copy=" ".join(filter(None, (clean(step.ask), clean(step.say)))),
        )


def _step(lead: str, step: Step) -> Iterator[Paragraph]:
    rows: tuple[str, Role] = (words.rows_phrase(step) if step.fact else "", "faint")
    if step.ask:
        # `yes` is no good news and `no` no bad news: an answer is strong, not coloured.
        asked: tuple[tuple[str, Role], ...] = (
            (clean(step.ask) + "  ", "plain"),
            (words.answer(step), "strong"),
        )
        yield Paragraph(lead, asked, rows)
        if step.say:
            yield line(clean(step.say), lead="   ")
    elif step.say:
        yield Paragraph(lead, ((clean(step.say), "strong"),), rows)


def _advice(advice: Iterable[str], title: str = "Do next") -> Iterator[Item]:
    """Each sentence and each command on its own, so that a key copies exactly it."""
    numbered = [(a, p, part) for a, one in enumerate(advice) for p, part in
                enumerate(words.next_parts(one))]  # fmt: skip
    if numbered:
        yield heading(title)
    for sentence, part, (is_command, said) in numbered:
        role: Role = "command" if is_command else "plain"
        lead = "   $ " if is_command else " • " if part == 0 else "   "
        yield Item(
            name=f"next {sentence}.{part}",
            paragraphs=(Paragraph(lead, ((said, role),)),),
            copy=said,
            kind="command" if is_command else "text",
        )


def _stacks(stacks: Iterable[Stack]) -> Iterator[Item]:
    """The stacks of blamed ranks; ranks with equal stacks together."""
    places: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for stack in stacks:
        places.setdefault((stack.at, stack.frames), []).append(stack.rank)
    for number, ((at, frames), ranks) in enumerate(places.items()):
        who = words.ranks_phrase(ranks)
        yield heading(f"{who[0].upper()}{who[1:]}, {clean(at)}", f"stack heading {number}")
        yield Item(
            name=f"stack {number}",
            paragraphs=tuple(frame_lines(frames, MOST_FRAMES, "   ")),
            copy="\n".join(map(clean, frames)),
            rank=ranks[0],
        )


def _confidence(finding: Finding) -> Iterator[Item]:
    yield heading(f"Confidence {words.percent(finding.confidence)}", "confidence heading")
    for number, reason in enumerate(finding.reasons):
        said = f"{clean(reason.name)}: {clean(reason.why)}"
        yield text(f"reason {number}", line(said, lead=f" {words.percent(reason.value):>5}  "))


def _seen(snapshot: Snapshot) -> Iterator[Item]:
    """What was seen, checked and not: for a healthy snapshot, the whole answer. The verdict itself
    is on the screen already."""
    diagnosis, coverage = snapshot.diagnosis, snapshot.diagnosis.coverage
    if diagnosis.doubt and (not diagnosis.findings or diagnosis.result == "inconclusive"):
        advice = "No findings does not mean the job is healthy."
        yield text("doubt", line(advice, "warning"))
        yield from _section("Not certain", words.doubts(diagnosis)[1:])
        yield from _section("Other suspects", map(words.suspicion, diagnosis.suspects[1:]))
        if diagnosis.would_decide:
            settles = "What would settle it, while the job is alive"
            yield from _advice([diagnosis.would_decide], settles)
    yield heading("Coverage")
    yield readable("coverage", coverage_words.seen_phrase(coverage))
    for number, gap in enumerate(coverage.gaps):
        yield readable(f"gap {number}", coverage_words.gap_phrase(gap), " ? ", "warning")
    ill = [host for host in snapshot.hosts if host.silent or host.collector or host.slowness]
    if ill or snapshot.lost_gateways:
        yield heading("Hosts with problems")
    for phrase in lost_gateways_phrases(snapshot.lost_gateways):
        yield readable(phrase, phrase, " ? ")
    for host in ill:
        age = f", last answer {format_duration(host.age_ns)} ago" if host.age_ns is not None else ""
        why = f": {host.message}" if host.message else ""
        what = REASONS[host.kind] + why + age if host.silent else host.collector or host.slowness
        yield readable(f"host {host.host}", clean(f"{host.host}: {what}"), " ? ")
    yield heading("Checked")
    for name in diagnosis.checked:
        seconds = snapshot.timings_s.get(name)
        took = f"  in {format_duration(seconds * 1e9)}" if seconds is not None else ""
        of_site = " (site)" if name in diagnosis.site_rulebooks else ""
        paragraph = Paragraph(" ✔ ", ((name + of_site, "plain"), (took, "faint")))
        yield text(f"checked {name}", paragraph)
    if not diagnosis.checked:
        yield text("unchecked", line("no rulebook could run", "warning", lead=" ? "))
    failed = coverage_words.without_lacking(coverage.skipped_rules)
    yield from _section("Not checked", coverage_words.failed_phrases(failed))
    yield from _section("Not recorded", coverage_words.lacking_phrases(coverage.skipped_rules))
    yield from _section("Notes", [clean(note) for note in diagnosis.notes])


# -------------------------------------------------------------------- pieces


def _section(title: str, lines: Iterable[str]) -> Iterator[Item]:
    for number, said in enumerate(lines):
        if not number:
            yield heading(title)
        yield readable(f"{title.lower()} {number}", said)
