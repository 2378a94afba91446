"""The rulebooks on disk, which others may change while the console shows them."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial

from oncall.console.rulebook_queries import GetRulebookText, ListRulebooks
from oncall.tui.drawing.abstract import AbstractMeta
from oncall.tui.screens.rules import model
from oncall.tui.screens.rules.drafts import Buffer, DraftStore
from oncall.tui.shell.screen import ConsoleScreen
from oncall.views.snapshot import RuleLine

_LOOKED_AGAIN_AFTER_S = 2.0


class WatchingScreen(ConsoleScreen, metaclass=AbstractMeta):
    """Keeps the list of rulebooks, and judges the evidence again when they have changed."""

    def __init__(self) -> None:
        super().__init__()
        self._drafts = DraftStore()
        self._rules: tuple[RuleLine, ...] = ()

    # -------------------------------------------------- what the screen does of it

    @abstractmethod
    def _list(self) -> None:
        """Show the list of rulebooks."""

    @abstractmethod
    def _tell(self) -> None:
        """Show what is known of the chosen one."""

    @abstractmethod
    def _enter(self, buffer: Buffer) -> None:
        """Put a rulebook into the editor."""

    # ------------------------------------------------------------------- watching

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
        """The rulebooks, perhaps changed by somebody else since they were listed last."""
        before = {rule.name: rule for rule in self._rules}
        self._rules = rules
        for rule in rules:
            known = before.get(rule.name)
            if known is not None and rule.broken and not known.broken:
                self.tell(f"{rule.name}: {rule.path}: {rule.broken}")
            if known is not None and rule.written_ns != known.written_ns:
                self._changed_outside(rule.name)
        if before and model.in_force(rules) != model.in_force(tuple(before.values())):
            self.app.judge_again()
        self._list()
        self._tell()

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
