"""The fleet screen: every rank as a cell, and the card of the one under the cursor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widget import AwaitMount

from oncall.console.evidence_queries import GetRankCard, GetRankValues, GetRates
from oncall.core.errors import UsageError
from oncall.core.nodeset import fold_hosts, fold_ranks
from oncall.core.printable import typed
from oncall.core.units import counted
from oncall.tui.drawing.literal import LiteralText
from oncall.tui.drawing.states import STATES, state_styles, theme_style
from oncall.tui.screens.communicators.round_grid import blocked_in
from oncall.tui.screens.fleet import model as fleet
from oncall.tui.screens.fleet.layout import lay_out
from oncall.tui.screens.fleet.rank_card import LEAST, RankCardPane, RankRates
from oncall.tui.screens.fleet.rank_grid import RankGrid
from oncall.tui.shell.actions import Needs, needs, needs_snapshot
from oncall.tui.shell.goto import Target
from oncall.tui.shell.keys import ActionEntry
from oncall.tui.shell.messages import Copy, Refused
from oncall.tui.shell.node_work import ProbeScreen, node_of, why_not_probed
from oncall.tui.shell.screen import ConsoleScreen
from oncall.views.ranks.ranks import RankValues
from oncall.views.rates.buckets import Series
from oncall.views.snapshot import Ranks, Snapshot

_LINES_AROUND = 5  # title, counts, rank, status, keys
_LEAST_CARD = 8  # lines of a card that are worth showing below the grid
_WHOLE_CARD = 78  # columns of a card whose operations are not cut
_WIDE, _ROOMY = 120, 150  # columns from which grid and card stand side by side, and at ease
_STATE = "state"
_MEASURES = (_STATE, "lag", "rate", "temperature", "power", "NIC")


_needs_fault: Needs[ConsoleScreen] = needs(
    "no rank is at fault",
    lambda screen: screen.state.snapshot and fleet.faults(screen.state.snapshot.ranks.state).any(),
)
_needs_rank: Needs[ConsoleScreen] = needs(
    "no rank is shown", lambda screen: screen.query_one(RankGrid).rank is not None
)


def _needs_node(screen: FleetScreen) -> str | None:
    if why := _needs_rank(screen):
        return why
    snapshot, node = screen.state.snapshot, screen.node()
    if snapshot is None or not node:
        return "the node of this rank is unknown"
    return why_not_probed(snapshot, screen.state.live, (node,))


_needs_operation: Needs[FleetScreen] = needs(
    "this rank is not blocked in any recorded operation",
    lambda screen: screen.blocked_comm(),
    _needs_rank,
)
_needs_values: Needs[FleetScreen] = needs(
    "o chooses a value first", lambda screen: screen.values is not None
)


class FleetScreen(ConsoleScreen):
    """Ranks grouped by node, rack, stage or parallel group."""

    CSS = """
    FleetScreen #fleet-line { height: 1; padding: 0 1; }
    FleetScreen #fleet-rank { height: 1; padding: 0 1; text-wrap: nowrap; text-overflow: ellipsis; }
    FleetScreen RankGrid { padding: 0 1; }
    FleetScreen.roomy RankCardPane { width: 50%; max-width: 84; }
    FleetScreen.beside RankCardPane { width: 78; }
    FleetScreen.map RankCardPane { width: 42; }
    FleetScreen RankRates { display: none; }
    FleetScreen.rates RankRates { display: block; }
    FleetScreen.narrow RankCardPane { display: none; }
    FleetScreen.narrow.below #fleet-body { layout: vertical; }
    FleetScreen.narrow.below #fleet-ranks { height: auto; }
    FleetScreen.narrow.below RankCardPane { display: block; width: 1fr; border-left: none;
        border-top: solid $panel; }
    FleetScreen.narrow.opened RankCardPane { display: block; width: 1fr; border: none; }
    FleetScreen.narrow.opened #fleet-ranks, FleetScreen.narrow.opened RankGrid { display: none; }
    """
    ACTIONS: ClassVar[tuple[ActionEntry[Any], ...]] = (
        ActionEntry("fleet.card", "enter", "Card", "Open this rank's card, or close it.",
                    _needs_rank, bar=True),
        ActionEntry("fleet.group", "v", "Group by",
                    "Group by node, rack, stage or parallel group, one after the other.",
                    needs_snapshot, bar=True),
        ActionEntry("fleet.colour", "o", "Colour by",
                    "Show state, lag, rate, temperature, power or NIC rate of each rank, one after"
                    " the other.", needs_snapshot, bar=True),
        ActionEntry("fleet.names", "e", "Enlarge", "Show rank numbers even where not all fit, or"
                    " all ranks at once again.", _needs_rank, bar=True),
        ActionEntry("fleet.sort", "u", "Sort", "Sort by that value, the greatest first, or group"
                    " again.", _needs_values, bar=True),
        ActionEntry("fleet.next_fault", "w", "Next fault", "Go to the next rank at fault.",
                    _needs_fault, bar=True, by=("fault", 1)),
        ActionEntry("fleet.previous_fault", "b", "Previous fault",
                    "Go to the previous rank at fault.", _needs_fault, by=("fault", -1)),
        ActionEntry("fleet.communicator", "c", "Communicator",
                    "Show the communicator that this rank is blocked in.", _needs_operation,
                    bar=True),
        ActionEntry("fleet.probe", "p", "Probe",
                    "Ping between this rank's node and a few others now.", _needs_node,
                    bar=True),
    )  # fmt: skip

    def compose_body(self) -> ComposeResult:
        yield LiteralText(id="fleet-line")
        with Horizontal(id="fleet-body"):
            with Vertical(id="fleet-ranks"):
                yield RankGrid()
                yield RankRates()
            yield RankCardPane()
        yield LiteralText(id="fleet-rank")

    def on_mount(self) -> None:
        self._by = "node"
        self._measure = _STATE
        self._values: RankValues | None = None
        self._sorted = self._named = False
        self._said = Text()
        self.query_one(RankGrid).focus()

    # ------------------------------------------------------------------- shown

    def show_snapshot(self, snapshot: Snapshot) -> None:  # noqa: ARG002
        had_rates = self.has_class("rates")
        self.show_narrowed()
        self._ask_card()
        self._ask_values()
        if had_rates:
            self._ask_rates()

    def _ask_rates(self) -> None:
        if self.has_class("rates"):
            self.ask(
                "rates", GetRates("ranks"), self._show_rates, "reading rates", self._without_rates
            )

    def _ask_values(self) -> None:
        if self._measure != _STATE:
            label = f"reading {self._measure}"
            self.ask(
                "values", GetRankValues(self._measure), self._take_values, label, self._without
            )

    @property
    def values(self) -> RankValues | None:
        """What is shown in place of the state, if it is of the ranks on the screen."""
        snapshot, values = self.state.snapshot, self._values
        known = snapshot is not None and values is not None
        fits = known and len(values.value) == len(snapshot.ranks)  # type: ignore[union-attr]
        return values if fits else None

    def show_narrowed(self) -> None:
        state, snapshot = self.state, self.state.snapshot
        assert snapshot is not None
        ranks = snapshot.ranks
        problem = ""
        shown = np.ones(len(ranks), dtype=np.bool_)
        try:
            shown = fleet.matching(ranks, state.filter)
        except UsageError as error:
            problem = str(error)
        if state.faults_only:
            shown &= fleet.faults(ranks.state)
        if fleet.groupings(ranks).get(self._by, "unknown"):
            self._by = "node"
        self.query_one(RankGrid).show(
            ranks, shown, self._by, self.values, self._sorted, self._named
        )
        self._make_room(ranks, shown)
        self._say(len(ranks), shown, problem)
        self._say_rank()

    def _make_room(self, ranks: Ranks, shown: fleet.Mask) -> None:
        """The whole card beside the grid, or on a narrow terminal its beginning below it, if cells
        keep their numbers in what that leaves; rates below a grid that leaves room for them. Beside
        a map of two rows a line the card is narrow."""
        height = self.size.height - _LINES_AROUND
        half = lay_out(ranks, self._by, shown, self.size.width // 2, height)
        self.set_class(half.stack > 1 and not self._named, "map")
        beside = self._numbered(ranks, shown, self.size.width - _WHOLE_CARD - 2, height)
        below = self._numbered(ranks, shown, self.size.width - 2, height - _LEAST_CARD)
        self.set_class(beside > 0, "beside")
        self.set_class(below > 0, "below")
        narrow = self.size.width < _WIDE
        grid = beside or half.height
        rates = not (narrow or self._named or self.values) and grid <= height - LEAST
        lines = grid if rates else below if narrow else 0
        self.query_one(RankGrid).styles.height = lines or "1fr"
        if rates != self.has_class("rates"):
            self.set_class(rates, "rates")
            self._ask_rates()

    def _numbered(self, ranks: Ranks, shown: fleet.Mask, width: int, height: int) -> int:
        """How many lines cells with numbers take; 0 if they do not fit."""
        numbered = len(str(int(ranks.rank.max()))) + 2 if len(ranks) else 0
        laid = lay_out(ranks, self._by, shown, width, height)
        fits = laid.cell >= numbered and laid.width <= width and laid.height <= height
        return laid.height if fits else 0

    def _say(self, total: int, shown: fleet.Mask, problem: str) -> None:
        """The line above the grid: how many ranks do what, and how they are grouped."""
        snapshot = self.state.snapshot
        assert snapshot is not None
        styles, muted = state_styles(self.app), theme_style(self.app, "muted")
        number = int(shown.sum())
        text = Text(no_wrap=True, overflow="ellipsis")
        if total:
            text.append(f"{number:,} of {total:,} ranks" if number < total else f"{total:,} ranks")
            by = "value" if self.values and self._sorted else self._by
            text.append(f" by {by}  ", muted)
        if self.values is not None:
            text.append(f"{fleet.measure_phrase(self.values)}  ", theme_style(self.app, "accent"))
        for state, count in fleet.counts(snapshot.ranks.state[shown]):
            look = STATES[state]
            text.append(f" {look.letter} {count:,} {look.name} ", styles[state])
        if problem:
            text.append(f" {problem}", theme_style(self.app, "error"))
        elif not total:
            text.append("No calls of any rank are recorded: what ranks do is unknown.", muted)
        elif not number:
            text.append(" none matches; / changes the filter, f shows all", muted)
        if text != self._said or text.spans != self._said.spans:
            self._said = text
            self.query_one("#fleet-line", LiteralText).update(text, layout=False)

    def _say_rank(self) -> None:
        """Below the grid: the rank under the cursor, and how old what is known of its node is."""
        snapshot, rank = self.state.snapshot, self.query_one(RankGrid).rank
        phrase = ""
        if snapshot is not None and rank is not None:
            age = fleet.node_phrase(snapshot.hosts, self.node())
            who, _, what = fleet.rank_phrase(snapshot.ranks, rank).partition(" · ")
            phrase = " · ".join(part for part in (who, age, what) if part)
        line = self.query_one("#fleet-rank", LiteralText)
        if str(line.content) != phrase:
            line.update(Text(phrase), layout=False)

    # -------------------------------------------------------------------- card

    def on_rank_grid_moved(self) -> None:
        self._say_rank()
        self.query_one(RankRates).point_at(self.query_one(RankGrid).rank)
        self.after_rest(self._ask_card)

    def _ask_card(self) -> None:
        rank = self.query_one(RankGrid).rank
        shown = self.app.size.width >= _WIDE or self.has_class("opened") or self.has_class("below")
        if rank is not None and shown:
            card = self.query_one(RankCardPane)
            self.ask("card", GetRankCard(rank), card.show, f"reading rank {rank}")

    def refused(self, message: Refused) -> None:
        self.query_one(RankCardPane).say(str(message.error))

    def _take_values(self, values: RankValues) -> None:
        self._values = values
        self.show_narrowed()

    def _without(self, message: Refused) -> None:  # noqa: ARG002
        self.action_colour()  # the next one that was recorded; at last the state

    def _show_rates(self, series: tuple[Series, ...]) -> None:
        self.query_one(RankRates).show(series, self.query_one(RankGrid).rank)

    def _without_rates(self, message: Refused) -> None:  # noqa: ARG002
        self.query_one(RankRates).show((), None)

    def on_resize(self, event: object) -> None:
        super().on_resize(event)  # type: ignore[arg-type]
        self.set_class(self.size.width >= _ROOMY, "roomy")
        if self.state.snapshot is not None:
            self.show_narrowed()  # the card may have the room that the grid does not need
        narrow = self.size.width < _WIDE
        if narrow != self.has_class("narrow"):
            self.set_class(narrow, "narrow")
            self._ask_card()

    # ----------------------------------------------------------------- actions

    def go_to(self, target: Target) -> str | None:
        snapshot = self.state.snapshot
        if snapshot is None:
            return "there is no evidence yet"
        rank = target.value
        if target.kind == "node":
            if target.value not in snapshot.ranks.node:
                return "no rank of this job ran there"
            rank = int(snapshot.ranks.rank[snapshot.ranks.node.index(str(target.value))])
        if self.query_one(RankGrid).go_to(int(rank)):
            return None
        unknown = snapshot.ranks.place(int(rank)) is None
        return "this job has no such rank" if unknown else "the filter hides it"

    def copies(self) -> tuple[Copy, ...]:
        rank = self.query_one(RankGrid).rank
        if rank is None:
            return ()
        node = self.node()
        copies = [Copy("t", f"rank {rank}", str(rank))]
        if node:
            copies.append(Copy("n", f"node {node}", node))
            command = typed("ssh {node}", node=node)
            copies.append(Copy("c", command, command))
        # Several are chosen by `/` and `f`.
        ranks, nodes = self.query_one(RankGrid).shown
        copies.append(Copy("r", f"{counted(len(ranks), 'rank')} shown", fold_ranks(ranks)))
        if nodes:
            copies.append(Copy("h", f"{counted(len(nodes), 'host')} shown", fold_hosts(nodes)))
        return tuple(copies)

    def place_here(self) -> Mapping[str, str]:
        rank = self.query_one(RankGrid).rank
        return {"node": self.node(), "rank": "" if rank is None else str(rank)}

    def cursor_is_on(self) -> str:
        rank = self.query_one(RankGrid).rank
        return "" if rank is None else f"rank {rank}"

    def leave(self) -> bool:
        if self.has_class("narrow") and self.has_class("opened"):
            self.action_card()
            return True
        return False

    def blocked_comm(self) -> int:
        """The communicator that the rank under the cursor is blocked in; 0: none."""
        snapshot, rank = self.state.snapshot, self.query_one(RankGrid).rank
        return 0 if snapshot is None or rank is None else blocked_in(snapshot, rank)[0]

    def node(self) -> str:
        """The node of the rank under the cursor; empty where unknown."""
        snapshot, rank = self.state.snapshot, self.query_one(RankGrid).rank
        return node_of(snapshot, rank) if snapshot is not None and rank is not None else ""

    def action_probe(self) -> AwaitMount:
        return self.app.push_screen(ProbeScreen((self.node(),)))

    def action_card(self) -> None:
        self.toggle_class("opened")
        self._ask_card()

    def action_colour(self) -> None:
        self._measure = _MEASURES[(_MEASURES.index(self._measure) + 1) % len(_MEASURES)]
        if self._measure == _STATE:
            self._values, self._sorted = None, False
            self.show_narrowed()
        else:
            self._ask_values()

    def action_sort(self) -> None:
        self._sorted = not self._sorted
        self.show_narrowed()

    def action_names(self) -> None:
        self._named = not self._named
        self.show_narrowed()

    def action_group(self) -> None:
        snapshot = self.state.snapshot
        if snapshot is None:
            return
        before, self._by = self._by, fleet.next_grouping(snapshot.ranks, self._by)
        self.show_narrowed()
        if why := fleet.left_out_phrase(snapshot.ranks, before, self._by):
            self.tell(why)

    def action_fault(self, step: int) -> None:
        self.query_one(RankGrid).next_fault(step)

    def action_communicator(self) -> None:
        self.app.go_to(Target("comm", self.blocked_comm()))
