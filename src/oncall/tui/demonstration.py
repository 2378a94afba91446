"""The console of `oncall demo --console`: a key breaks a rank of the job that it shows, and a
stopwatch runs until the headline names that rank."""

from __future__ import annotations

from dataclasses import dataclass, replace
from string import ascii_lowercase, digits
from typing import TYPE_CHECKING, Any, ClassVar

from textual.binding import BindingType
from textual.screen import Screen
from textual.widget import AwaitMount

from oncall.demo.faults import BREAKS, Break
from oncall.tui.app import ConsoleApp
from oncall.tui.shell.keys import ActionEntry, bindings
from oncall.tui.widgets.prompt import Choice
from oncall.views.words import leading

if TYPE_CHECKING:
    from oncall.demo.orders import Controls
    from oncall.views.snapshot import Snapshot

ACTIONS: tuple[ActionEntry[Any], ...] = (
    ActionEntry("break_rank", "d", "Demo",
                "Stop, slow, kill or freeze a rank of this demonstration, or undo that.",
                bar=True),
)  # fmt: skip
INVITATION = "d breaks a rank"
_MEND_KEY = "u"
_RANK_KEYS = digits + ascii_lowercase


@dataclass(frozen=True)
class Stopwatch:
    """From the key that broke `rank` to the first headline that names it. `before`: what the
    headline was then, which may have named it already; seconds are of the application's clock.
    `others`: ranks that headlines named meanwhile."""

    rank: int
    done: str  # what the rank is: `is stopped`
    began_s: float
    before: object
    named_s: float | None = None
    others: frozenset[int] = frozenset()

    def after(self, snapshot: Snapshot, now_s: float) -> Stopwatch:
        """The same once that snapshot is shown."""
        if self.named_s is not None or lead_of(snapshot) == self.before:
            return self
        named = named_by(snapshot)
        if self.rank in named:
            return replace(self, named_s=now_s)
        return replace(self, others=self.others | named)

    def phrase(self, now_s: float) -> str:
        """`rank 5 is stopped: named after 8.3 s`, or for how long nobody has named it."""
        said = f"rank {self.rank} {self.done}"
        if self.named_s is None:
            return f"{said}: {int(now_s - self.began_s)} s"
        first = f", after rank {min(self.others)}" if self.others else ""
        return f"{said}: named in {self.named_s - self.began_s:.1f} s{first}"


def lead_of(snapshot: Snapshot | None) -> object:
    """What the headline is about, by what changes when another fault comes: also when it began."""
    lead = leading(snapshot.diagnosis) if snapshot is not None else None
    return lead and (lead.rulebook, lead.verdict, lead.at_ns, str(lead.blame))


def named_by(snapshot: Snapshot) -> frozenset[int]:
    """The ranks that the headline names."""
    lead = leading(snapshot.diagnosis)
    ranks = (one.where.get("rank") for one in lead.blame) if lead is not None else ()
    return frozenset(int(rank) for rank in ranks if rank is not None)


class DemonstrationApp(ConsoleApp):
    """The console over a job that the reader may break; `controls` does it."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings(ACTIONS)]

    def __init__(self, controls: Controls, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._controls = controls
        self._stopwatch: Stopwatch | None = None
        self.state = replace(self.state, demonstration=INVITATION)

    def actions_of(self, screen: Screen[Any]) -> list[ActionEntry[Any]]:
        return [*ACTIONS, *super().actions_of(screen)]

    def show_passing(self) -> None:
        super().show_passing()
        if self._stopwatch is not None:
            self.change(demonstration=self._stopwatch.phrase(self.clock()))

    def take_snapshot(self, snapshot: Snapshot) -> None:
        super().take_snapshot(snapshot)
        if self._stopwatch is not None:
            self._stopwatch = self._stopwatch.after(snapshot, self.clock())
            self.change(demonstration=self._stopwatch.phrase(self.clock()))

    # ------------------------------------------------------------------ actions

    def action_break_rank(self) -> AwaitMount:
        """Ask how, then which rank."""
        choices = [*((one.key, one.word) for one in BREAKS), (_MEND_KEY, "undo")]
        return self.push_screen(Choice("Break a rank:", choices), self._ask_rank)

    def _ask_rank(self, key: str | None) -> None:
        if key == _MEND_KEY:
            self._order(self._mend)
            return
        how = next((one for one in BREAKS if one.key == key), None)
        if how is None:
            return
        ranks = dict(zip(_RANK_KEYS, range(self._controls.ranks), strict=False))

        def chosen(key: str | None) -> None:
            if key is not None:
                self._order(lambda: self._strike(how, ranks[key]))

        names = [(key, "" if key == str(rank) else str(rank)) for key, rank in ranks.items()]
        self.push_screen(Choice(f"{how.word.capitalize()} rank", names), chosen)

    def _strike(self, how: Break, rank: int) -> None:
        before = lead_of(self.state.snapshot)
        self._stopwatch = Stopwatch(rank, how.done, self.clock(), before)
        self._controls.strike(how, rank)
        self.write_log(f"demonstration: rank {rank} {how.done}")
        self.change(demonstration=self._stopwatch.phrase(self.clock()))

    def _mend(self) -> None:
        self._stopwatch = None
        self._controls.mend()
        self.write_log("demonstration: what was broken is undone")
        self.change(demonstration=f"undone; {INVITATION}")

    def _order(self, order: Any) -> None:
        try:
            order()
        except OSError:
            self.tell("the demonstration has ended; only what it recorded is left")
