"""What can be done on the rulebook screen, and why it cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from oncall.tui.registry import ActionEntry

if TYPE_CHECKING:
    from oncall.tui.screen import ConsoleScreen
    from oncall.tui.screens.rules import RulesScreen


def _no_rule(screen: ConsoleScreen) -> str | None:
    return None if cast("RulesScreen", screen).buffer else "no rulebook is open"


def _nothing_to_try(screen: ConsoleScreen) -> str | None:
    if why := _no_rule(screen):
        return why
    return None if screen.state.world else "there is no evidence yet to try it on"


def _no_fact(screen: ConsoleScreen) -> str | None:
    if why := _nothing_to_try(screen):
        return why
    return None if cast("RulesScreen", screen).fact() else "the cursor is in no fact"


def _nothing_to_save(screen: ConsoleScreen) -> str | None:
    if why := _no_rule(screen):
        return why
    buffer = cast("RulesScreen", screen).buffer
    return None if buffer and buffer.unsaved else "nothing has been changed"


ACTIONS: tuple[ActionEntry, ...] = (
    ActionEntry("rules.keep", "ctrl+s", "Save rule",
                "Write it to the site's folder of rulebooks, after showing what that changes.",
                _nothing_to_save, bar=True),
    ActionEntry("rules.dry_run", "ctrl+r", "Dry run",
                "Show which verdicts on the present world come and go with this text.",
                _nothing_to_try, bar=True),
    ActionEntry("rules.fact", "ctrl+g", "Run fact",
                "Run the fact under the cursor alone, and show its rows.", _no_fact, bar=True),
    ActionEntry("rules.tests", "ctrl+t", "Tests",
                "Run the rulebook's tests on this text, saved or not.", _no_rule, bar=True),
    ActionEntry("rules.editor", "e,ctrl+o", "$EDITOR", "Edit it in $VISUAL or $EDITOR.", _no_rule,
                bar=True),
    ActionEntry("rules.new", "a", "New rule", "Begin a new rulebook from a template.", bar=True),
)  # fmt: skip
