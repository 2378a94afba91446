"""The rulebooks with their results, and an editor that tries a change before it is saved.

Typed text lives in buffers, one per rulebook, and on disk as drafts: neither leaving the screen nor
a crash loses it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.timer import Timer
from textual.widgets import TextArea

from oncall.console.rulebook_queries import (
    CheckRulebook,
    DryRunRulebook,
    GetRulebookText,
    ListRulebooks,
    NewRulebook,
    RunFact,
    RunTests,
    SaveRulebook,
)
from oncall.console.session import Query
from oncall.core.errors import OncallError
from oncall.tui.screens.rules import pane
from oncall.tui.screens.rules.editor import (
    Buffer,
    DraftStore,
    RuleEditor,
    edited_outside,
    keep_file,
)
from oncall.tui.screens.rules.pane import RulePane
from oncall.tui.shell.actions import Needs, needs
from oncall.tui.shell.goto import Target
from oncall.tui.shell.keys import ActionEntry, always
from oncall.tui.shell.lines import KeyBar
from oncall.tui.shell.messages import Answer, Copy, GoTo, Refused
from oncall.tui.shell.screen import ConsoleScreen
from oncall.tui.shell.state import State
from oncall.tui.widgets.prompt import Choice, Prompt
from oncall.tui.widgets.reading_list import ReadingList
from oncall.views.snapshot import DryRun, Problem, RuleLine, Table

_CHECKED_AFTER_S = 0.3  # of not typing
_LOOKED_AGAIN_AFTER_S = 2.0


_no_rule: Needs[RulesScreen] = needs(
    "no rulebook is open", lambda screen: screen.buffer is not None, always
)
_nothing_to_try: Needs[RulesScreen] = needs(
    "there is no evidence yet to try it on", lambda screen: screen.state.snapshot, _no_rule
)
_no_fact: Needs[RulesScreen] = needs(
    "the cursor is not in a fact", lambda screen: screen.fact(), _nothing_to_try
)
_nothing_to_save: Needs[RulesScreen] = needs(
    "nothing has changed", lambda screen: screen.buffer and screen.buffer.unsaved, _no_rule
)

ACTIONS: tuple[ActionEntry[Any], ...] = (
    ActionEntry("rules.keep", "ctrl+s", "Save rule",
                "Save the text to the site's rulebook folder, after showing which verdicts change.",
                _nothing_to_save, bar=True),
    ActionEntry("rules.dry_run", "ctrl+r", "Dry run",
                "Show which verdicts on the current evidence this text adds and removes.",
                _nothing_to_try, bar=True),
    ActionEntry("rules.fact", "ctrl+g", "Run fact",
                "Run only the fact under the cursor and show its rows.", _no_fact, bar=True),
    ActionEntry("rules.tests", "ctrl+t", "Tests",
                "Run the rulebook's tests on this text, saved or not.", _no_rule, bar=True),
    ActionEntry("rules.editor", "e,ctrl+o", "$EDITOR",
                "Edit the text in $VISUAL or $EDITOR.", _no_rule, bar=True),
    ActionEntry("rules.new", "a", "New rule", "Create a rulebook from a template.", bar=True),
)  # fmt: skip


class RulesScreen(ConsoleScreen):
    """The list of rulebooks, which others may change meanwhile, and one of them being edited."""

    ACTIONS = ACTIONS
    CSS_PATH = "rules.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (120, "-medium")]  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__()
        self._drafts = DraftStore()
        self._rules: tuple[RuleLine, ...] = ()
        self._saving: str | None = None  # the text to be saved once its dry run is seen
        self._checking: Timer | None = None
        self._wanted: Target | None = None  # gone to before the rulebooks were listed

    def compose_body(self) -> ComposeResult:
        with Horizontal(id="rules"):
            yield ReadingList(id="rule-list")
            yield RulePane(id="editing")

    # ------------------------------------------------------------------ showing

    def show(self, state: State, before: State | None) -> None:
        if before is None:
            self._tell()  # in other colours, perhaps
        if before is None or state.snapshot is not before.snapshot:
            self.ask("list", ListRulebooks(), self._listed, "reading the rulebooks")
        elif state.filter != before.filter:
            self._list()
        if not self.focused:
            self._rule_list.focus()

    def _list(self) -> None:
        unsaved = self._drafts.unsaved()
        if self._drafts.open is not None and not self._rule(self._drafts.open):
            unsaved.append(self._drafts.open)  # saved just now, and not listed yet
        items = pane.rule_items(self._rules, dict.fromkeys(unsaved), self.state.filter)
        self._rule_list.show(items)

    @property
    def _rule_list(self) -> ReadingList:
        return self.query_one("#rule-list", ReadingList)

    @property
    def buffer(self) -> Buffer | None:
        """The rulebook in the editor."""
        return self._drafts.buffer

    def fact(self) -> str | None:
        """The fact that the cursor of the editor is in."""
        return self._pane.fact()

    @property
    def _pane(self) -> RulePane:
        return self.query_one(RulePane)

    # -------------------------------------------------------------- the buffers

    def _tell(self) -> None:
        """Of the rulebook in the editor, whether it is saved and what is wrong."""
        if (buffer := self.buffer) is not None:
            self._pane.tell(buffer, self._rule(buffer.name))
            self.query_one(KeyBar).show(self.state)

    def _put(self, buffer: Buffer) -> None:
        """What is known of a rulebook has changed."""
        if self._drafts.put(buffer):
            self._list()
        if buffer.name == self._drafts.open:
            self._tell()

    def _load(self, name: str) -> None:
        """Into the editor: what is typed of it already, else what the session has."""
        if name == self._drafts.open:
            return
        if buffer := self._drafts.of(name):
            self._enter(buffer)
        elif self._rule(name):
            self.ask("text", GetRulebookText(name), partial(self._read, name))
        elif buffer := self._drafts.read(name, None):
            self._enter(buffer)

    def _enter(self, buffer: Buffer) -> None:
        self._drafts.open = buffer.name
        self._put(buffer)
        self._pane.load(buffer, self._rule(buffer.name))
        if buffer.problems is None:
            self._check()

    def _keep_draft(self) -> None:
        try:
            self._drafts.keep_draft()
        except OncallError as error:
            self.tell(str(error))

    def on_unmount(self) -> None:
        with suppress(OncallError):  # there is no line left to say it in
            self._drafts.keep_draft()

    # ------------------------------------------------------- what the reader does

    @on(ReadingList.Moved, "#rule-list")
    def _another_rule(self, message: ReadingList.Moved) -> None:
        message.stop()
        if message.item is not None:
            self.after_rest(partial(self._load, message.item.name))

    @on(ReadingList.Chosen, "#rule-list")
    def _edit(self, message: ReadingList.Chosen) -> None:
        message.stop()
        if message.item is not None:
            self._load(message.item.name)
            self._to_editor()

    def _to_editor(self) -> None:
        self.add_class("editing")
        self.call_after_refresh(self._pane.editor.focus)

    @on(TextArea.Changed)
    def _typed(self, message: TextArea.Changed) -> None:
        message.stop()
        if self.buffer is None:
            return
        self._saving, self._pane.checks = None, True
        self._put(self.buffer.typed(message.text_area.text))
        if self._checking is not None:
            self._checking.stop()
        self._checking = self.set_timer(_CHECKED_AFTER_S, self._check)

    @on(RuleEditor.Left)
    def _leave_editor(self, message: RuleEditor.Left) -> None:
        message.stop()
        self.leave()

    def leave(self) -> bool:
        """Out of the editor, having asked what becomes of a text that is not saved."""
        if not self._pane.has_focus_within:
            return False
        buffer = self.buffer
        if buffer is None or not buffer.unsaved:
            self._to_list()
        else:
            choices = [("k", "keep as a draft"), ("s", "save"), ("d", "discard")]
            self.app.push_screen(Choice(f"{buffer.name} is not saved:", choices), self._leave_with)
        return True

    def _leave_with(self, key: str | None) -> None:
        buffer = self.buffer
        if key is None or buffer is None:
            return
        if key == "s":
            self.action_keep()
            return
        self._keep_draft()
        if key == "d":
            self._drafts.forget(buffer.name)
            self._load(buffer.name)
            self._list()
        self._to_list()

    def _to_list(self) -> None:
        self.remove_class("editing")
        self._rule_list.focus()

    # --------------------------------------------------------- asking the session

    def _check(self) -> None:
        self._keep_draft()
        if (buffer := self.buffer) is not None:
            query = CheckRulebook(buffer.name, buffer.text)
            self.ask("check", query, partial(self._checked, query), "checking")

    def _run(
        self, what: str, title: str, query: Query[Answer], take: Callable[[Answer], object]
    ) -> None:
        """Ask something about the text; the answer takes the place of the check."""
        self._pane.await_outcome(title)
        self.ask(what, query, take, title)

    def action_dry_run(self) -> None:
        if buffer := self.buffer:
            query = DryRunRulebook(buffer.name, buffer.text)
            self._run("dry_run", "Dry run", query, partial(self._tried, query))

    def action_fact(self) -> None:
        if (buffer := self.buffer) and (fact := self.fact()):
            title, query = f"Fact {fact}", RunFact(buffer.name, buffer.text, fact)
            self._run("fact", title, query, partial(self._pane.outcome.show_rows, title))

    def action_tests(self) -> None:
        if buffer := self.buffer:
            query = RunTests(buffer.name, buffer.text)
            self._run("tests", "Tests", query, partial(self._tested, buffer.name))

    def action_keep(self) -> None:
        """Save, if it has been shown what that changes; else show it, and be asked again."""
        if (buffer := self.buffer) is None:
            return
        if buffer.may_be_saved:
            query = SaveRulebook(buffer.name, buffer.text)
            self._run("keep", "Save", query, partial(self._saved, query))
        else:
            self._saving = buffer.text
            self.action_dry_run()

    def action_new(self) -> None:
        def left(name: str | None) -> None:
            if name:
                name = name.strip()
                self.ask("new", NewRulebook(name), partial(self._begin, name))

        taken = {rule.name for rule in self._rules} | set(self._drafts.unsaved())
        hint = "A name of lower-case letters, digits, - and _."
        problem = partial(pane.problem_of_name, taken)
        self.app.push_screen(Prompt("new rule", hint=hint, problem_of=problem), left)

    def action_editor(self) -> None:
        if (buffer := self.buffer) is None:
            return
        try:
            said = edited_outside(self.app, keep_file(buffer.name, buffer.text))
        except OncallError as error:
            self.tell(str(error))
            return
        self._pane.editor.text = said  # what changed is typed, like any other change

    # ------------------------------------------------------------------ answers

    def _begin(self, name: str, text: str) -> None:
        self._enter(Buffer(name, None, text))
        self._rule_list.go_to(name)
        self._to_editor()

    def _read(self, name: str, text: str) -> None:
        if buffer := self._drafts.read(name, text):
            self._enter(buffer)
            if buffer.unsaved:
                self.tell(f"{name}: opened your draft; esc offers to discard it")

    def _checked(self, asked: CheckRulebook, problems: tuple[Problem, ...]) -> None:
        if buffer := self._drafts.of(asked.name):
            self._put(buffer.checked(asked.text, problems))
        if self.buffer and asked.name == self.buffer.name:
            self._pane.show_problems(self.buffer)

    def _tried(self, asked: DryRunRulebook, run: DryRun) -> None:
        if buffer := self._drafts.of(asked.name):
            self._put(buffer.dry_run(asked.text, run))
        self._pane.show_dry_run(run, saving=asked.text == self._saving)

    def _tested(self, name: str, results: Table) -> None:
        title = f"Tests of {name} with the text shown"
        self._pane.outcome.show_lines(title, pane.result_items(results))

    def _saved(self, asked: SaveRulebook, path: Path) -> None:
        if buffer := self._drafts.of(asked.name):
            self._put(buffer.written(asked.text))
            self._keep_draft()
        said = pane.said_items(f"✔ written to {path}", "healthy")
        self._pane.outcome.show_lines("Saved", said)
        self.ask("list", ListRulebooks(), self._listed, "")

    def refused(self, message: Refused) -> None:
        self._saving = None
        self._pane.show_failure(message.error)

    def go_to(self, target: Target) -> str | None:
        """A rulebook by its name or one of its verdicts, once the rulebooks are listed."""
        if not self._rules:
            self._wanted = target
            return None
        value = str(target.value)
        by_verdict = (rule.name for rule in self._rules if value.upper() in rule.verdicts)
        found = self._rule_list.go_to(next(by_verdict, value.lower()))
        return None if found else "no rulebook has that name or verdict"

    # ------------------------------------------------------ the rulebooks on disk

    def on_mount(self) -> None:
        self.set_interval(_LOOKED_AGAIN_AFTER_S, self._look_again)

    def _look_again(self) -> None:
        """Somebody may have changed a file, or broken it."""
        if self.in_sight and self._rules:
            self.ask("list", ListRulebooks(), self._listed, "")

    def _rule(self, name: str) -> RuleLine | None:
        """As it is listed; None for one that is only typed."""
        return next((rule for rule in self._rules if rule.name == name), None)

    def _listed(self, rules: tuple[RuleLine, ...]) -> None:
        """The rulebooks, perhaps changed by somebody else since they were listed last: then the
        evidence is judged again."""
        before = {rule.name: rule for rule in self._rules}
        self._rules = rules
        for rule in rules:
            known = before.get(rule.name)
            if known is not None and rule.broken and not known.broken:
                self.tell(f"{rule.name}: {rule.path}: {rule.broken}")
            if known is not None and rule.written_ns != known.written_ns:
                self._changed_outside(rule.name)
        if before and pane.in_force(rules) != pane.in_force(tuple(before.values())):
            self.app.judge_again()
        self._list()
        self._tell()
        if (wanted := self._wanted) is not None and rules:
            self._wanted = None
            self.on_go_to(GoTo(wanted))

    def _changed_outside(self, name: str) -> None:
        """What is typed stays; a text that was only looked at is read anew."""
        buffer = self._drafts.of(name)
        if buffer is not None and not buffer.unsaved:
            text = GetRulebookText(name)
            self.ask(f"changed {name}", text, partial(self._read_anew, name), "")

    def _read_anew(self, name: str, said: str) -> None:
        buffer = self._drafts.of(name)
        if buffer is None or buffer.unsaved or buffer.saved == said:
            return
        was_open = self._drafts.open == name
        self._drafts.forget(name)
        if was_open:
            self._enter(Buffer(name, said, said))

    def copies(self) -> list[Copy]:
        copies = []
        if self._rule_list.has_focus and (item := self._rule_list.item):
            copies.append(Copy("l", "line", item.copy))
        if buffer := self.buffer:
            copies.append(Copy("r", "rulebook", buffer.text))
        return copies
