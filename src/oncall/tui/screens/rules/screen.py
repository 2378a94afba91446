"""The rulebooks with their results, and an editor that tries a change before it is saved.

Typed text lives in buffers, one per rulebook, and on disk as drafts: neither leaving the screen nor
a crash loses it.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
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
    SaveRulebook,
)
from oncall.core.errors import OncallError
from oncall.tui.screens.rules import drafts, model
from oncall.tui.screens.rules.buffer import Buffer
from oncall.tui.screens.rules.editor import RuleEditor
from oncall.tui.screens.rules.external_editor import edited_outside
from oncall.tui.screens.rules.pane import RulePane
from oncall.tui.screens.rules.watching import WatchingScreen
from oncall.tui.shell.action import ActionEntry
from oncall.tui.shell.goto import Target
from oncall.tui.shell.lines.status import KeyBar
from oncall.tui.shell.messages import Answered, Copy, GoTo, Refused
from oncall.tui.shell.state import State
from oncall.tui.widgets.prompt import Choice, Prompt
from oncall.tui.widgets.reading_list import ReadingList
from oncall.views.snapshot import DryRun, Problem, RuleLine

_CHECKED_AFTER_S = 0.3  # of not typing
_READ_AFTER_S = 0.15  # that the cursor rests on a rulebook in the list


def _no_rule(screen: RulesScreen) -> str | None:
    return None if screen.buffer else "no rulebook is open"


def _nothing_to_try(screen: RulesScreen) -> str | None:
    if why := _no_rule(screen):
        return why
    return None if screen.state.snapshot else "there is no evidence yet to try it on"


def _no_fact(screen: RulesScreen) -> str | None:
    if why := _nothing_to_try(screen):
        return why
    return None if screen.fact() else "the cursor is not in a fact"


def _nothing_to_save(screen: RulesScreen) -> str | None:
    if why := _no_rule(screen):
        return why
    buffer = screen.buffer
    return None if buffer and buffer.unsaved else "nothing has changed"


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


class RulesScreen(WatchingScreen):
    """The list of rulebooks, and one of them being edited."""

    ACTIONS = ACTIONS
    CSS_PATH = "rules.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (120, "-medium")]  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__()
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
            self.ask("list", ListRulebooks(), "reading the rulebooks")
        elif state.filter != before.filter:
            self._list()
        if not self.focused:
            self._rule_list.focus()

    def _list(self) -> None:
        unsaved = self._drafts.unsaved()
        if self._drafts.open is not None and not self._rule(self._drafts.open):
            unsaved.append(self._drafts.open)  # saved just now, and not listed yet
        items = model.rule_items(self._rules, dict.fromkeys(unsaved), self.state.filter)
        self._rule_list.show(items)

    @property
    def _rule_list(self) -> ReadingList:
        return self.query_one("#rule-list", ReadingList)

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
            self.ask("text", GetRulebookText(name))
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
            self.set_timer(_READ_AFTER_S, partial(self._load_if_there, message.item.name))

    def _load_if_there(self, name: str) -> None:
        if self._rule_list.item is not None and self._rule_list.item.name == name:
            self._load(name)

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
            self.ask("check", CheckRulebook(buffer.name, buffer.text), "checking")

    def action_keep(self) -> None:
        """Save, if it has been shown what that changes; else show it, and be asked again."""
        if (buffer := self.buffer) is None:
            return
        if buffer.may_be_saved:
            self._run("keep", "Save", SaveRulebook(buffer.name, buffer.text))
        else:
            self._saving = buffer.text
            self.action_dry_run()

    def action_new(self) -> None:
        def left(name: str | None) -> None:
            if name:
                self.ask("new", NewRulebook(name.strip()))

        taken = {rule.name for rule in self._rules} | set(self._drafts.unsaved())
        hint = "A name of lower-case letters, digits, - and _."
        problem = partial(model.problem_of_name, taken)
        self.app.push_screen(Prompt("new rule", hint=hint, problem_of=problem), left)

    def action_editor(self) -> None:
        if (buffer := self.buffer) is None:
            return
        try:
            said = edited_outside(self.app, drafts.keep(buffer.name, buffer.text))
        except OncallError as error:
            self.tell(str(error))
            return
        self._pane.editor.text = said  # what changed is typed, like any other change

    # ------------------------------------------------------------------ answers

    def on_answered(self, message: Answered) -> None:
        match message.question.query:
            case ListRulebooks():
                self._listed(message.value)
            case GetRulebookText(name) if message.question.group == f"{self.entry.id}.text":
                self._read(name, message.value)
            case GetRulebookText(name):
                self._read_anew(name, message.value)
            case NewRulebook(name):
                self._enter(Buffer(name, None, message.value))
                self._rule_list.go_to(name)
                self._to_editor()
            case CheckRulebook() as asked:
                self._checked(asked, message.value)
            case DryRunRulebook() as asked:
                self._tried(asked, message.value)
            case SaveRulebook() as asked:
                self._saved(asked, str(message.value))
            case _:
                self.show_trial(message)

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

    def _saved(self, asked: SaveRulebook, path: str) -> None:
        if buffer := self._drafts.of(asked.name):
            self._put(buffer.written(asked.text))
            self._keep_draft()
        self._pane.show_saved(path)
        self.ask("list", ListRulebooks(), "")

    def on_refused(self, message: Refused) -> None:
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

    def _listed(self, rules: tuple[RuleLine, ...]) -> None:
        super()._listed(rules)
        if (wanted := self._wanted) is not None and rules:
            self._wanted = None
            self.on_go_to(GoTo(wanted))

    def copies(self) -> list[Copy]:
        copies = []
        if self._rule_list.has_focus and (item := self._rule_list.item):
            copies.append(Copy("l", "line", item.copy))
        if buffer := self.buffer:
            copies.append(Copy("r", "rulebook", buffer.text))
        return copies
