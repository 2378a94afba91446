"""One rulebook being edited: its name, its text, and the result of checking or trying it; and
rules, problems, results of dry runs and tests as lines to read."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import TextArea

from oncall.core.errors import RulebookError
from oncall.core.printable import clean
from oncall.core.units import format_duration
from oncall.tui.drawing.literal import LiteralText
from oncall.tui.drawing.states import role_styles
from oncall.tui.screens.rules.editor import Buffer, RuleEditor
from oncall.tui.widgets.reading_list import Item, Paragraph, ReadingList, Role, line, readable, text
from oncall.tui.widgets.sheet_table import SheetTable, sheet
from oncall.views import words
from oncall.views.snapshot import DryRun, Problem, RuleLine, Table


class RulePane(Vertical):
    """Shows a `Buffer`. What is typed comes out as `TextArea.Changed`."""

    def __init__(self, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.checks = True  # below the text: what is wrong with it
        self._why_skipped = ""

    def compose(self) -> ComposeResult:
        yield LiteralText(id="rule-title")
        yield RuleEditor(id="rule-text")
        yield Outcome(id="outcome")

    @property
    def editor(self) -> RuleEditor:
        return self.query_one(RuleEditor)

    @property
    def outcome(self) -> Outcome:
        return self.query_one(Outcome)

    def load(self, buffer: Buffer, rule: RuleLine | None) -> None:
        """Load another rulebook, or the same one again, without counting that as typing."""
        self.checks = True
        with self.prevent(TextArea.Changed):
            self.editor.load_text(buffer.text)
        self.tell(buffer, rule)
        self.show_problems(buffer)

    def tell(self, buffer: Buffer, rule: RuleLine | None) -> None:
        """The title, and what is wrong in the lines where it is wrong. `rule` is as listed."""
        styles = role_styles(self)
        title = Text.assemble((f"{buffer.name}.yaml  ", styles["strong"]))
        if buffer.unsaved:
            title.append("● not saved, kept as a draft", styles["value"])
        else:
            title.append(rule.path if rule else "", styles["faint"])
        self.query_one("#rule-title", LiteralText).update(title)
        self.editor.mark(buffer.problems or ())
        why_skipped = rule.why_skipped if rule else ""
        if why_skipped != self._why_skipped:
            self._why_skipped = why_skipped
            self.show_problems(buffer)

    def show_problems(self, buffer: Buffer) -> None:
        """What is wrong, unless something was run since the last change: that stays."""
        if self.checks:
            self.outcome.show_lines("Check", check_items(buffer.problems, self._why_skipped))

    def await_outcome(self, title: str) -> None:
        """A trial runs: its outcome replaces the result of the check."""
        self.checks = False
        self.outcome.show_lines(title, said_items("…", "faint"))

    def show_dry_run(self, run: DryRun, saving: bool) -> None:
        """`saving`: it was made because the text is to be saved."""
        then = ": problems, not saved" if run.problems else ": press ctrl+s again to save"
        self.outcome.show_lines(f"Dry run{then if saving else ''}", dry_run_items(run))

    def show_failure(self, error: Exception) -> None:
        if isinstance(error, RulebookError):
            wrong = [Problem(one.line, one.column, one.message) for one in error.problems]
            self.outcome.show_lines("Failed", problem_items(wrong))
        else:
            self.outcome.show_lines("Failed", said_items(str(error), "critical"))

    def fact(self) -> str | None:
        """The fact that the cursor is in."""
        return fact_at(self.editor.text, self.editor.cursor_location[0])

    @on(ReadingList.Chosen, "#outcome-lines")
    def _to_problem(self, message: ReadingList.Chosen) -> None:
        """Enter on a problem goes to its line."""
        message.stop()
        if message.item is not None and (place := place_of(message.item)) is not None:
            self.editor.focus()
            self.editor.move_cursor(place, center=True)


class Outcome(Vertical):
    """The last result; the next one takes its place."""

    def compose(self) -> ComposeResult:
        yield LiteralText(id="outcome-title")
        yield ReadingList(id="outcome-lines")
        yield SheetTable(id="outcome-rows")

    def show_lines(self, title: str, items: Sequence[Item]) -> None:
        self._entitle(title)
        self.query_one(SheetTable).display = False
        lines = self.query_one(ReadingList)
        lines.display = True
        lines.show(items)

    def show_rows(self, title: str, rows: Table) -> None:
        shown = sheet(rows)
        shared = f"every row: {shown.shared}" if shown.shared else ""
        self._entitle(f"{title} · {shown.counted}", shared)
        self.query_one(ReadingList).display = False
        table = self.query_one(SheetTable)
        table.display = bool(shown.rows)
        table.show(shown)

    def _entitle(self, title: str, more: str = "") -> None:
        styles = role_styles(self)
        text = Text(title, styles["heading"])
        if more:
            text.append(f"\n{more}", styles["faint"])
        self.query_one("#outcome-title", LiteralText).update(text)


_NEW = "not saved yet"
_FACTS = re.compile(r"^facts:\s*(#.*)?$")
_FACT = re.compile(r"^( +)([A-Za-z_]\w*):(?:\s|$)")


def rule_items(
    rules: Sequence[RuleLine], unsaved: Collection[str] = (), pattern: str = ""
) -> tuple[Item, ...]:
    """The rulebooks with their results: first those with findings, then those that could not be
    checked, then the rest; rules that exist only as unsaved text last."""
    known = {rule.name for rule in rules}
    items = [_rule(rule, rule.name in unsaved) for rule in sorted(rules, key=_place)]
    items += [_unsaved(name) for name in unsaved if name not in known]
    wanted = pattern.lower()
    return tuple(one for one in items if wanted in f"{one.name} {one.copy}".lower())


def _place(rule: RuleLine) -> int:
    """What matters first: a broken file, what found something, what does not know."""
    if rule.broken:
        return 0
    if not rule.enabled:
        return 4
    if re.match(r"[1-9]", rule.outcome):
        return 1
    return 3 if rule.outcome in ("nothing", "") else 2


def in_force(rules: Sequence[RuleLine]) -> tuple[object, ...]:
    """What decides over verdicts: files, as they were written, and what is wrong with them."""
    return tuple(
        (rule.path, rule.written_ns, rule.broken, rule.enabled, rule.changed_by) for rule in rules
    )


def _rule(rule: RuleLine, unsaved: bool) -> Item:
    outcome = clean(rule.outcome)
    glyph, role = _glyph(rule)
    broken = clean(rule.broken)
    said = f"{outcome}: {clean(rule.why_skipped)}" if rule.why_skipped else outcome or broken
    name: tuple[tuple[str, Role], ...] = ((f"{glyph} ", role), (rule.name, "strong"))
    if unsaved:
        name += ((" ● unsaved", "value"),)
    return Item(
        name=rule.name,
        paragraphs=(
            Paragraph("", name, (outcome, role), folds=False),
            *_wrong(rule, broken),
            Paragraph("  ", ((clean(rule.title), "plain"),)),
            *_result(rule),
        ),
        copy=f"{rule.name}: {clean(rule.title)} ({rule.status}), {said}; {rule.path}",
    )


def _wrong(rule: RuleLine, broken: str) -> Iterator[Paragraph]:
    """What is wrong with the site's file, and what is in force instead."""
    if not broken:
        return
    yield Paragraph("  ", ((f"✖ {_file(rule.path)} {broken}", "critical"),))
    if not rule.title:
        instead = "this rulebook is not used"
    else:
        instead = "the shipped rulebook is used" if rule.shipped else "used without that file"
    yield Paragraph("  ", ((instead, "warning"),))


def _result(rule: RuleLine) -> Iterator[Paragraph]:
    """Why it could not run; else how long it took. And whose it is."""
    about: tuple[tuple[str, Role], ...] = ((" · ".join(_about(rule)), "faint"),)
    if rule.why_skipped:
        yield Paragraph("  ", ((clean(rule.why_skipped), "faint"),))
        if rule.shipped and rule.enabled and not rule.changed_by:
            return
    took = f"in {format_duration(rule.seconds * 1e9)}" if rule.seconds is not None else ""
    yield Paragraph("  ", about, (took, "faint"), folds=False)


def _about(rule: RuleLine) -> Iterator[str]:
    """A rulebook's status, its origin, and who changed it."""
    if rule.title:
        yield "shipped" if rule.shipped else "site"
    yield rule.status
    if rule.changed_by:
        yield "changed by " + ", ".join(_file(one) for one in rule.changed_by)
    if not rule.enabled:
        yield "off"


def _file(by: str) -> str:
    """The name of a file; what is none, such as an option, as it is."""
    return clean(by.rpartition("/")[2] if by.startswith("/") else by)


def _glyph(rule: RuleLine) -> tuple[str, Role]:
    """The outcome as a glyph; its word is beside it."""
    if rule.broken and not rule.title:
        return "✖", "critical"
    if not rule.enabled:
        return "·", "faint"
    if rule.worst is not None:
        return words.GLYPHS[rule.worst], rule.worst
    if rule.outcome == "nothing":
        return words.HEALTHY_GLYPH, "healthy"
    return words.UNSEEN_GLYPH, "unseen"


def _unsaved(name: str) -> Item:
    said = Paragraph("", (("● ", "value"), (name, "strong")), (_NEW, "value"), folds=False)
    return Item(name, (said,), copy=f"{name}: {_NEW}")


# ------------------------------------------------------------------- the editor


def fact_at(rulebook: str, row: int) -> str | None:
    """The name of the fact that the 0-based line `row` belongs to."""
    found: str | None = None
    indent: str | None = None
    within = False
    for number, said in enumerate(rulebook.splitlines()):
        if number > row:
            break
        if said[:1] not in ("", " ", "#"):  # a key of the rulebook itself
            within, found, indent = bool(_FACTS.match(said)), None, None
        elif within and (match := _FACT.match(said)):
            indent = match[1] if indent is None else indent
            found = match[2] if match[1] == indent else found
    return found


def check_items(problems: Sequence[Problem] | None, why_skipped: str) -> tuple[Item, ...]:
    """What is wrong with the text, and why the rulebook did not run on this evidence."""
    said = f"did not run on this evidence: {clean(why_skipped)}"
    skipped = readable("skipped", said, f"{words.UNSEEN_GLYPH} ", "unseen")
    return (*problem_items(problems), *((skipped,) if why_skipped else ()))


def problem_items(problems: Sequence[Problem] | None) -> tuple[Item, ...]:
    """What is wrong, by line. None: it is being checked."""
    if problems is None:
        return (text("checking", line("checking …", "faint")),)
    if not problems:
        return (text("fine", line("✔ no problems", "healthy")),)
    return tuple(
        Item(
            name=f"problem {number} {problem.message}",
            paragraphs=(
                Paragraph(
                    f"{problem.line:>4}:{problem.column:<3} ",
                    ((clean(problem.message), "critical"),),
                ),
            ),
            copy=f"{problem.line}:{problem.column}: {clean(problem.message)}",
        )
        for number, problem in enumerate(problems)
    )


def dry_run_items(run: DryRun) -> tuple[Item, ...]:
    """Which verdicts come, go and stay, on the snapshot that is on the screen."""
    if run.problems:
        return problem_items(run.problems)
    return tuple(_dry_run(run))


def _dry_run(run: DryRun) -> Iterator[Item]:
    if not (run.gained or run.lost):
        stays = "no verdict changes" if run.kept else "no findings, as before"
        yield text("same", line(f"✔ {stays}", "healthy"))
    changes: tuple[tuple[str, str, Role, tuple[str, ...]], ...] = (
        (" + ", "added", "warning", run.gained),
        (" − ", "removed", "critical", run.lost),
        (" = ", "kept", "faint", run.kept),
    )
    for sign, title, role, found in changes:
        for said in found:
            yield _change(sign, title, role, clean(said))


def _change(sign: str, title: str, role: Role, said: str) -> Item:
    parts: tuple[tuple[str, Role], ...] = ((f"{title:<8}", role), (said, "plain"))
    return Item(f"{title} {said}", (Paragraph(sign, parts),), copy=f"{title}: {said}")


def result_items(table: Table) -> tuple[Item, ...]:
    """Tests with their results: name, result, what differs."""
    if not table.rows:
        return (text("no tests", line("this rulebook has no tests", "warning")),)
    return tuple(_test(number, [clean(str(value)) for value in row])
                 for number, row in enumerate(table.rows))  # fmt: skip


def _test(number: int, cells: list[str]) -> Item:
    name, result, difference = (*cells, "", "", "")[:3]
    passed = result.lower().startswith(("pass", "ok", "✔"))
    role: Role = "healthy" if passed else "critical"
    glyph = words.HEALTHY_GLYPH if passed else words.GLYPHS["critical"]
    head = Paragraph(f" {glyph} ", ((f"{result}  ", role), (name, "plain")))
    more = (line(difference, "critical", "   "),) if difference and not passed else ()
    return Item(f"test {number}", (head, *more), copy=f"{result}: {name} {difference}".strip())


def said_items(said: str, role: Role = "plain") -> tuple[Item, ...]:
    """One sentence in place of a result."""
    return (readable("said", said, "", role),)


def problem_of_name(taken: Collection[str], name: str) -> str | None:
    """Why no new rulebook can have that name."""
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", name.strip()):
        return "use lower-case letters, digits, - and _, such as slow_loader"
    return f"rulebook {name.strip()} already exists" if name.strip() in taken else None


def place_of(item: Item) -> tuple[int, int] | None:
    """The 0-based line and column that a problem's line names."""
    match = re.match(r"(\d+):(\d+): ", item.copy)
    return (int(match[1]) - 1, int(match[2]) - 1) if match else None
