"""What is done on nodes for the reader, over the screen: a probe, and a suggested command; which
nodes can be probed, and why not."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, cast

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll

from oncall.console.queries import ProbeNodes, RunCommand
from oncall.core.diagnosis import Finding
from oncall.core.nodeset import fold_hosts
from oncall.core.printable import clean_lines, short
from oncall.tui.drawing.abstract import AbstractMeta
from oncall.tui.drawing.literal import LiteralText, literal
from oncall.tui.shell.messages import PROBE, RUN, Question, Refused
from oncall.tui.widgets.prompt import Overlay
from oncall.views.snapshot import Snapshot

if TYPE_CHECKING:
    from oncall.fleet.read_only import RemoteCommand
    from oncall.tui.shell.console import Console

_BEAT_S = 0.5


class _Work(Overlay, metaclass=AbstractMeta):
    """Something done as long as it is open; its outcome can be copied."""

    BINDINGS: ClassVar[list[BindingType]] = [("y", "copy", "Copy")]
    GROUP: ClassVar[str]  # of the question
    RESULT: ClassVar[str]  # what is copied

    def __init__(self, title: str) -> None:
        super().__init__()
        self._heading = title
        self._under_way = False
        self._result: str | None = None  # None: not yet

    @property
    def app(self) -> Console:  # type: ignore[override]
        return cast("Console", super().app)

    def compose(self) -> ComposeResult:
        with VerticalScroll() as pane:
            pane.border_title = literal(self._heading)
            yield LiteralText()

    @abstractmethod
    def on_mount(self) -> None:
        """Begin, or say what would be done."""

    def say(self, text: str, keys: str = "j k space g G move, y copies, esc leaves") -> None:
        self.query_one(LiteralText).update(Text(text))
        self.query_one(VerticalScroll).border_subtitle = literal(keys)

    def end(self, text: str) -> None:
        """It came to this."""
        self._under_way, self._result = False, text
        self.say(text)

    def action_copy(self) -> None:
        if self._result is not None:
            self.app.copy_to_clipboard(self._result)
            self.app.tell(f"copied the {self.RESULT}")

    def action_leave(self) -> None:
        if self._under_way:
            self.app.session.drop(self.GROUP)
        super().action_leave()


class ProbeScreen(_Work):
    """Probes nodes, and shows the outcome."""

    GROUP, RESULT = PROBE, "measurement"

    def __init__(self, nodes: tuple[str, ...]) -> None:
        self._folded = fold_hosts(map(short, nodes))
        super().__init__(f"Probe of {self._folded}")
        self._probed = nodes

    def on_mount(self) -> None:
        self._under_way = True
        label = f"probing {self._folded}"
        self.app.ask(Question(PROBE, ProbeNodes(self._probed), self, label, self.end, self._failed))
        self._waiting = self.set_interval(_BEAT_S, self._say_progress)
        self._say_progress()

    def _say_progress(self) -> None:
        far = self.app.session.progress("probes")
        said = f"These and a few other nodes are pinging each other.\n{far}".rstrip()
        self.say(said, "esc stops the probe")

    def end(self, text: str) -> None:
        self._waiting.stop()
        super().end(text)

    def _failed(self, message: Refused) -> None:
        self.end(f"No measurement: {message.error}")


class RunScreen(_Work):
    """Asks whether to run a command, runs it, and shows what it printed, which is kept with the
    notes."""

    BINDINGS: ClassVar[list[BindingType]] = [("enter", "run", "Run")]
    GROUP, RESULT = RUN, "output"

    def __init__(self, command: str, runs: RemoteCommand, about: str) -> None:
        """`runs` is the command as its node gets it; `about` the finding that suggested it."""
        super().__init__(command)
        self._command = command
        self._node = runs.host
        self._runs = f"on {runs.host}:  {runs.line}"
        self._about = about

    def on_mount(self) -> None:
        self.say(
            f"{self._runs}\n\nThis only reads. oncall runs it over its own connection to the node."
            " What it prints is kept with your notes and goes into the export.",
            "enter runs it, esc leaves",
        )

    def action_run(self) -> None:
        if self._under_way or self._result is not None:
            return
        self._under_way = True
        self.say(f"{self._runs}\n\nrunning …", "esc stops it")
        query, label = RunCommand(self._command, self._node), "running a command"
        self.app.ask(Question(RUN, query, self, label, self._ran, self._failed))

    def _ran(self, output: str) -> None:
        printed = "\n".join(clean_lines(output)) or "(it printed nothing)"
        self.end(printed)
        self.app.keep("command", self._command, self._about, printed)

    def _failed(self, message: Refused) -> None:
        self._under_way = False
        self.say(f"It did not run: {message.error}", "enter tries again, esc leaves")


def blamed_nodes(snapshot: Snapshot, finding: Finding | None) -> tuple[str, ...]:
    """The nodes that a finding blames, or whose ranks it blames."""
    found: dict[str, None] = {}
    for blame in finding.blame if finding is not None else ():
        node = blame.where.get("node")
        rank = blame.where.get("rank")
        if node is None and rank is not None:
            node = node_of(snapshot, int(rank))
        if node:
            found[str(node)] = None
    return tuple(found)


def node_of(snapshot: Snapshot, rank: int) -> str:
    """The node that a rank ran on; empty where unknown."""
    at = snapshot.ranks.place(rank)
    return "" if at is None else snapshot.ranks.node[at]


def why_not_probed(snapshot: Snapshot, live: bool, nodes: Sequence[str]) -> str | None:
    """Why none of the nodes can be probed; None if one can. What a node that does not answer can
    do is not known, so it is tried."""
    if not live:
        return "this is a recording, so there are no nodes to probe"
    refusing = {one.host: one.no_probe for one in snapshot.hosts if one.no_probe}
    refusals = [f"{node}: {refusing[node]}" for node in nodes if node in refusing]
    return refusals[0] if refusals and len(refusals) == len(nodes) else None
