"""Nodes that ping one another now, for the reader: asked for, waited for, read."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll

from oncall.console.queries import ProbeNodes
from oncall.core.nodeset import fold_hosts
from oncall.core.printable import short
from oncall.tui.drawing.literal import LiteralText, literal
from oncall.tui.shell.messages import PROBE, Answered, Question, Refused
from oncall.tui.widgets.overlay import Overlay

if TYPE_CHECKING:
    from oncall.tui.shell.console import Console

_BEAT_S = 0.5


class ProbeScreen(Overlay):
    """Probes nodes as long as it is open, and shows the outcome."""

    BINDINGS: ClassVar[list[BindingType]] = [("y", "copy", "Copy")]

    def __init__(self, nodes: tuple[str, ...]) -> None:
        super().__init__()
        self._probed = nodes
        self._result: str | None = None  # None: not yet

    @property
    def app(self) -> Console:  # type: ignore[override]
        return cast("Console", super().app)

    def compose(self) -> ComposeResult:
        with VerticalScroll() as pane:
            pane.border_title = literal(f"Probe of {fold_hosts(map(short, self._probed))}")
            yield LiteralText()

    def on_mount(self) -> None:
        label = f"probing {fold_hosts(map(short, self._probed))}"
        nodes = self._probed
        self.app.ask(Question(PROBE, ProbeNodes(nodes), self, label))
        self._waiting = self.set_interval(_BEAT_S, self._say_progress)
        self._say_progress()

    def _say_progress(self) -> None:
        far = self.app.session.progress("probes")
        self._say(
            f"These and a few other nodes are pinging each other.\n{far}".rstrip(),
            "esc stops the probe",
        )

    def _say(self, text: str, keys: str) -> None:
        self.query_one(LiteralText).update(Text(text))
        self.query_one(VerticalScroll).border_subtitle = literal(keys)

    def _end(self, text: str) -> None:
        self._waiting.stop()
        self._result = text
        self._say(text, "j k space g G move, y copies, esc leaves")

    def on_answered(self, message: Answered) -> None:
        self._end(str(message.value))

    def on_refused(self, message: Refused) -> None:
        self._end(f"No measurement: {message.error}")

    def action_copy(self) -> None:
        if self._result is not None:
            self.app.copy_to_clipboard(self._result)
            self.app.tell("copied the measurement")

    def action_leave(self) -> None:
        if self._result is None:
            self.app.session.drop(PROBE)
        super().action_leave()
