"""The application: it owns the state, the session's thread and the choice of the visible screen.

Answers arrive as messages and make a new State, which is passed to the visible screen. Nothing
here blocks, and no exception of a session ends the console.
"""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary

from textual import events
from textual.binding import BindingType
from textual.command import CommandPalette, Provider
from textual.screen import Screen
from textual.widget import AwaitMount

from oncall.console.queries import GetWordsByHand
from oncall.core.errors import UsageError
from oncall.core.printable import clean, for_clipboard
from oncall.tui.drawing.literal import AsciiFilter, HarmlessFilter, literal
from oncall.tui.drawing.states import DEFAULT, THEMES
from oncall.tui.shell.actions import ACTIONS
from oncall.tui.shell.asking import UNSAVED
from oncall.tui.shell.help import Actions, HelpScreen
from oncall.tui.shell.keys import ActionEntry, bindings
from oncall.tui.shell.log import MOST, LogLine
from oncall.tui.shell.looking import Looking, osc52
from oncall.tui.shell.messages import Question, StateChanged
from oncall.tui.shell.registry import SCREENS, listed, screen_entry
from oncall.tui.shell.screen import ConsoleScreen, make, screen_in_sight
from oncall.tui.shell.state import State
from oncall.tui.shell.switching import ParsedOnce
from oncall.tui.shell.there import OWN, NodeAction, run_there
from oncall.tui.widgets.prompt import Choice

if TYPE_CHECKING:
    from oncall.console.session import Session

_SAID_FOR_S = 6.0
_IDLE_S = 1.0  # without a key, after which screens are made ahead
_MOST_VISITED = 20  # screens that `esc` finds back to


class ConsoleApp(Looking):
    """The console over one session.

    `opener` opens it, in the session's thread. `recording` is the file that is read, if it is one.
    `startup_problems` is what was wrong before: with the configuration.
    `clock` tells seconds, for what moves by itself; `wall_ns` the time of day.
    """

    CSS_PATH = "oncall.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(ACTIONS)]
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {Actions}
    MODES: ClassVar[dict[str, str | Callable[[], Screen[Any]]]] = {
        entry.id: partial(make, entry) for entry in SCREENS
    }
    DEFAULT_MODE = "jobs"
    ENABLE_COMMAND_PALETTE = False  # ours is an action like any other

    def __init__(
        self,
        opener: Callable[[], Session],
        *,
        job: str | None = None,
        recording: Path | None = None,
        theme: str = DEFAULT,
        keymap: Mapping[str, str] | None = None,
        ascii_only: bool = False,
        startup_problems: Sequence[str] = (),
        refresh_every_s: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
        wall_ns: Callable[[], int] = time.time_ns,
        once_read: Callable[[], None] = lambda: None,
        node_actions: Sequence[NodeAction] = OWN,
    ) -> None:
        super().__init__()
        self.stylesheet = ParsedOnce(variables=self.get_css_variables())
        self.state = State(job=job, busy="opening")
        self.said = ""
        self._typed_on: WeakKeyDictionary[events.Event, Screen[Any]] = WeakKeyDictionary()
        self.log_lines: deque[LogLine] = deque(maxlen=MOST)
        self.wall_ns = wall_ns
        self.once_read = once_read
        self._startup_problems = tuple(startup_problems)
        self._visited: list[str] = []
        self._said_until: float | None = None
        self._disable_tooltips = self._disable_notifications = True  # said in the status line
        self.known_moments: set[int] = set()  # when findings began, of all snapshots seen
        self.failed = False
        self.clock = clock
        self._pressed_at_s = clock()
        self.refresh_every_s = refresh_every_s
        self.recording, self.saved_jobs = recording, set()
        self.opener = opener
        self._node_actions = tuple(node_actions)
        for binding in bindings(node_actions):
            self._bindings.key_to_bindings.setdefault(binding.key, []).append(binding)
        for one in THEMES:
            self.register_theme(one)
        self.theme = theme
        if keymap:
            self.set_keymap(keymap)
        self._filters.append(HarmlessFilter())
        if ascii_only:
            self._filters.append(AsciiFilter())

    # ------------------------------------------------------------------ session

    def on_ready(self) -> None:
        # Opened after the first frame: importing what reads evidence competes with painting it.
        self.set_interval(0.5, self.beat)
        self._tell_all(self._startup_problems)
        self.call_after_refresh(self.open_session)

    # -------------------------------------------------------------------- state

    def change(self, **fields: Any) -> None:
        """Change the state, and tell the screen in sight."""
        changed = replace(self.state, **fields)
        if changed != self.state:
            self.state = changed
            self.show_state()

    def show_state(self) -> None:
        if (screen := self.console_screen) is not None:
            screen.post_message(StateChanged(self.state))

    def show_passing(self) -> None:
        """What changes by itself: the age of the evidence; how far a gather is; what is said."""
        if self.state.busy:
            self.change(progress=self.session_progress())
        if self.state.snapshot is not None and self.state.live:
            self.change(snapshot_age_s=self.age_s())
        if (screen := self.console_screen) is not None:
            screen.show_keys()
        if self._said_until is not None and self.clock() >= self._said_until:
            self.tell("")
        idle = not self.state.busy and self.clock() - self._pressed_at_s >= _IDLE_S
        if idle and self.state.snapshot is not None:
            self.make_ahead()

    @property
    def console_screen(self) -> ConsoleScreen | None:
        """The screen in sight, below what asks for something."""
        return screen_in_sight(self)

    def tell(self, text: str) -> None:
        """Say it in the status line, for a few seconds."""
        self.said = clean(text)
        self._said_until = self.clock() + _SAID_FOR_S if text else None
        if (screen := self.console_screen) is not None and screen.is_mounted:
            screen.show_said()

    def _tell_all(self, texts: Sequence[str]) -> None:
        """Each in the log, and the first at once."""
        for text in texts:
            self.write_log(text, "warning")
        if texts:
            more = f" (and {len(texts) - 1} more; see the log)" if len(texts) > 1 else ""
            self.tell(texts[0] + more)

    # ------------------------------------------------------------------ actions

    async def on_event(self, event: events.Event) -> None:
        """A key comes back here if nobody took it. What was typed ahead of a prompt that has opened
        since belongs to the prompt: over a slow line, `/gpu017` arrives all at once."""
        if isinstance(event, events.Key):
            self._pressed_at_s = self.clock()
            if not event.is_forwarded:
                self._typed_on[event] = self.screen
            elif self._typed_on.get(event, self.screen) is not self.screen:
                await self.on_event(events.Key(event.key, event.character))
                return
        await super().on_event(event)

    def actions_of(self, screen: Screen[Any]) -> list[ActionEntry[Any]]:
        own = screen.ACTIONS if isinstance(screen, ConsoleScreen) else ()
        return [*own, *ACTIONS, *self._node_actions]

    async def action_perform(self, name: str) -> None:
        """Do it, or say why not."""
        screen = self.console_screen
        if screen is None:
            return
        entry = next((one for one in self.actions_of(screen) if one.id == name), None)
        if entry is None:
            return
        if self.said:
            self.tell("")  # it was about what was done before
        if why := entry.why_not(screen):
            self.tell(f"{entry.title}: {why}")
            return
        if isinstance(entry, NodeAction):
            self._go_there(entry, screen.place_here())
            return
        if entry.id.startswith("show_"):
            self.show_screen(entry.id.removeprefix("show_"))
            return
        done = entry.perform(self if entry.of_app else screen)
        if done is not None:
            await done

    def _go_there(self, action: NodeAction, place: Mapping[str, str]) -> None:
        """Run it on the node of the place, in the console's own terminal."""

        def run(words: tuple[str, ...]) -> None:
            try:
                run_there(self, words)
            except UsageError as error:
                self.tell(f"{action.title}: {error}")

        query = GetWordsByHand(place["node"], action.command(place))
        self.ask(Question("by hand", query, self, "", run, lambda no: self.tell(str(no.error))))

    def show_screen(self, name: str) -> None:
        """Show a screen; `esc` comes back."""
        if name != self.current_mode:
            self._visited = [*self._visited[-_MOST_VISITED:], self.current_mode]
            self.switch_mode(screen_entry(name).id)

    @property
    def can_go_back(self) -> bool:
        return bool(self._visited) or len(self.screen_stack) > 1 or bool(self.state.filter)

    async def action_back(self) -> None:
        """Leave what was opened last: within the screen, a filter, a screen over it, the screen."""
        screen = self.console_screen
        if screen is not None and screen.leave():
            return
        if self.state.filter:
            self.change(filter="")
        elif len(self.screen_stack) > 1:
            self.pop_screen()
        elif self._visited:
            self.switch_mode(self._visited.pop())

    def action_screens(self) -> AwaitMount:
        """Choose from the list of all screens: of many, the title line has not the keys of all."""
        entries = dict(listed())

        def chosen(key: str | None) -> None:
            if key is not None:
                self.show_screen(entries[key].id)

        choices = [(key, entry.title) for key, entry in entries.items()]
        return self.push_screen(Choice("Screens", choices), chosen)

    def action_help(self) -> AwaitMount | None:
        screen = self.console_screen
        return self.push_screen(HelpScreen(screen)) if screen is not None else None

    def action_palette(self) -> AwaitMount:
        return self.push_screen(CommandPalette(placeholder="What to do?"))

    def action_theme(self) -> None:
        names = [theme.name for theme in THEMES]
        self.choose_theme(names[(names.index(self.theme) + 1) % len(names)])

    def choose_theme(self, name: str) -> None:
        self.theme = name
        self.tell(f"theme {name}")
        self.call_next(self._draw_anew)  # after the colours have changed

    def _draw_anew(self) -> None:
        for stack in self._screen_stacks.values():
            for screen in stack:
                if isinstance(screen, ConsoleScreen):
                    screen.forget_shown()

    async def action_quit(self) -> None:
        self.exit()

    def action_leave(self) -> AwaitMount | None:
        """Quit; where something would be lost, only when asked again."""
        lost = self.lost_by_leaving()
        if not lost:
            self.exit()
            return None

        def answered(key: str | None) -> None:
            if key == "y":
                self.exit()
            elif key == "s":
                self.action_save()

        choices = [("y", "quit"), *([("s", "save first")] if lost is UNSAVED else [])]
        return self.push_screen(Choice(f"Quit? {lost}.", choices), answered)

    def _fatal_error(self) -> None:
        """An internal error ends the console: one line, or the traceback with ONCALL_DEBUG."""
        self.failed = True
        if os.environ.get("ONCALL_DEBUG"):
            super()._fatal_error()
            return
        error = sys.exception()
        self._exit_renderables.append(
            literal(
                f"oncall: internal error: {type(error).__name__}: {error}\n"
                "Run it again with ONCALL_DEBUG=1 and report the traceback."
            )
        )
        self._close_messages_no_wait()

    def copy_to_clipboard(self, text: str) -> None:
        """What is pasted into a shell or a ticket steers neither."""
        self._clipboard = text = for_clipboard(text)
        if self._driver is not None:
            self._driver.write(osc52(text))

    def notify(self, message: str, **settings: Any) -> None:
        """In the status line like everything else; a toast would be read as markup."""
        del settings
        self.tell(message)
