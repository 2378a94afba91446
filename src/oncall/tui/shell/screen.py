"""What every screen is: a title, a body of its own, a status line and a line of keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual import events
from textual.app import App, ComposeResult
from textual.containers import Vertical
from textual.timer import Timer

from oncall.tui.drawing.literal import LiteralText
from oncall.tui.shell.console import Console
from oncall.tui.shell.keys import ActionEntry, bindings
from oncall.tui.shell.lines import KeyBar, LossLine, StatusLine, TitleLine
from oncall.tui.shell.messages import Answer, Copy, GoTo, Question, Refused, StateChanged
from oncall.tui.shell.registry import ScreenEntry
from oncall.tui.shell.state import State
from oncall.tui.shell.switching import SettlingScreen

if TYPE_CHECKING:
    from oncall.console.session import Query
    from oncall.tui.shell.goto import Target
    from oncall.views.snapshot import Snapshot

LEAST_WIDTH, LEAST_HEIGHT = 60, 16
_REST_S = 0.12


class ConsoleScreen(SettlingScreen):
    """A screen of the console.

    A screen overrides `compose_body`, `show`, and what it can do of `go_to` and `copies`; it
    names its own actions in ACTIONS, and is a line in `registry.SCREENS`.
    """

    ACTIONS: ClassVar[tuple[ActionEntry[Any], ...]] = ()
    entry: ScreenEntry
    _rest: Timer | None = None

    def __init_subclass__(cls, **settings: Any) -> None:
        cls.BINDINGS = [*bindings(cls.ACTIONS), *cls.__dict__.get("BINDINGS", ())]
        super().__init_subclass__(**settings)

    def __init__(self) -> None:
        super().__init__()
        self._shown: State | None = None

    # -------------------------------------------------- what a screen overrides

    def compose_body(self) -> ComposeResult:
        """The widgets between the title and the status line."""
        yield from ()

    def show(self, state: State, before: State | None) -> None:
        """Show it. `before` is what is shown now, None at first: change only what differs."""
        if (snapshot := state.snapshot) is None:
            return
        if before is None or before.snapshot is not snapshot:
            self.show_snapshot(snapshot)
        elif (state.filter, state.faults_only) != (before.filter, before.faults_only):
            self.show_narrowed()

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """Show another snapshot, and ask for what is not in it."""

    def show_narrowed(self) -> None:
        """Show what the reader wants to see now of the same."""

    def go_to(self, target: Target) -> str | None:  # noqa: ARG002
        """Put the cursor on it (its kind is in the entry's `goes_to`); returns why not."""
        return "this screen cannot show that"

    def copies(self) -> Sequence[Copy]:
        """What can be copied of where the cursor is, the most useful first."""
        return ()

    def cursor_is_on(self) -> str:
        """What the cursor is on, for a note about it: `F1`, `rank 5`."""
        return ""

    def place_here(self) -> Mapping[str, str]:
        """The `node` and `rank` that the cursor is on, as far as it is on one."""
        return {}

    def leave(self) -> bool:
        """`esc`: undo the last thing opened within the screen; False if there is none."""
        return False

    # ------------------------------------------------------ what a screen calls

    @property
    def app(self) -> Console:  # type: ignore[override]
        return cast("Console", super().app)

    @property
    def in_sight(self) -> bool:
        """Whether it is seen, or what asks for something over it."""
        return screen_in_sight(self.app) is self

    @property
    def state(self) -> State:
        return self.app.state

    def ask(
        self,
        what: str,
        query: Query[Answer],
        take: Callable[[Answer], object],
        label: str = "reading",
        refused: Callable[[Refused], object] | None = None,
    ) -> None:
        """Ask the session: `take` gets the answer, `refused` (else the method of that name) the
        error. Asked again before that, only the later answer comes. A screen that nobody has seen
        asks nothing."""
        if self._shown is not None:
            group = f"{self.entry.id}.{what}"
            self.app.ask(Question(group, query, self, label, take, refused or self.refused))

    def refused(self, message: Refused) -> None:
        """What was asked for cannot be answered, which the log says already."""

    def after_rest(self, ask: Callable[[], object]) -> None:
        """Ask once the cursor rests where it is: what it passes by is not worth it."""
        if self._rest is not None:
            self._rest.stop()
        self._rest = self.set_timer(_REST_S, ask)

    def tell(self, text: str) -> None:
        """Say it in the status line, for a while."""
        self.app.tell(text)

    # ---------------------------------------------------------------- machinery

    def compose(self) -> ComposeResult:
        yield TitleLine(self.entry.id, id="title")
        yield LossLine(id="loss")
        with Vertical(id="body"):
            yield from self.compose_body()
        yield StatusLine(id="status")
        yield KeyBar(id="keys")
        yield LiteralText(id="too-small")

    def on_screen_resume(self, event: events.ScreenResume) -> None:  # noqa: ARG002, textual calls both
        if self.in_sight:  # not what is made ahead
            self.post_message(StateChanged(self.state))

    def show_now(self) -> None:
        self._take(self.state)

    def on_state_changed(self, message: StateChanged) -> None:
        message.stop()
        self._take(message.state)

    def _take(self, state: State) -> None:
        before = self._shown
        if state is before or not self.is_mounted:
            return
        self._shown = state
        with self.app.batch_update():
            self.show(state, before)
            for line in self._lines(
                only_status=before is not None and state.differs_in_activity(before)
            ):
                line.show(state)

    def on_go_to(self, message: GoTo) -> None:
        message.stop()
        self._take(self.state)
        if why := self.go_to(message.target):
            self.tell(f"{message.target}: {why}")

    def show_said(self) -> None:
        """What is said for a while has changed."""
        self.query_one(StatusLine).show(self.state)

    def show_keys(self) -> None:
        """What can be done may have changed, as the cursor has moved."""
        if self._shown is not None:
            self.query_one(KeyBar).show(self.state)

    def forget_shown(self) -> None:
        """Show everything anew; the colours have changed."""
        if self._shown is not None:
            self._shown = None
            self._take(self.state)

    def focus_chain_help(self) -> Iterator[str]:
        """What the focused widget, and what it lies in, say of themselves (their HELP)."""
        for node in self.focused.ancestors_with_self if self.focused is not None else ():
            if node is not self and node.HELP:
                yield node.HELP

    def on_resize(self, event: events.Resize) -> None:
        small = event.size.width < LEAST_WIDTH or event.size.height < LEAST_HEIGHT
        self.set_class(small, "too-small")
        if small:
            self.query_one("#too-small", LiteralText).update(
                f"This terminal is {event.size.width} by {event.size.height}.\n"
                f"The console needs {LEAST_WIDTH} by {LEAST_HEIGHT}; enlarge it.\n"
                "ctrl+q quits."
            )

    def _lines(self, only_status: bool) -> Iterator[TitleLine | LossLine | StatusLine | KeyBar]:
        yield self.query_one(StatusLine)
        if not only_status:
            yield self.query_one(TitleLine)
            yield self.query_one(LossLine)
            yield self.query_one(KeyBar)


def load(entry: ScreenEntry) -> type[ConsoleScreen]:
    """The class of a screen, imported now."""
    module, name = entry.place.split(":")
    found: type[ConsoleScreen] = getattr(import_module(module), name)
    return found


def make(entry: ScreenEntry) -> ConsoleScreen:
    """A screen to show."""
    screen = load(entry)()
    screen.entry = entry
    return screen


def screen_in_sight(app: App[Any]) -> ConsoleScreen | None:
    """The screen that is seen, below what asks for something; None before the first."""
    if not app._screen_stacks.get(app.current_mode):
        return None
    found = (one for one in reversed(app.screen_stack) if isinstance(one, ConsoleScreen))
    return next(found, None)
