"""The stacks screen: where the processes are, equal stacks together, the odd one out first."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult

from oncall.console.evidence_queries import GetStacks
from oncall.core.nodeset import fold_hosts
from oncall.core.printable import typed
from oncall.tui.shell.goto import Target
from oncall.tui.shell.keys import ActionEntry
from oncall.tui.shell.messages import Copy, Refused
from oncall.tui.shell.screen import ConsoleScreen
from oncall.tui.widgets.reading_list import (
    Item,
    Paragraph,
    ReadingList,
    Role,
    frame_lines,
    heading,
    line,
    readable,
    text,
)
from oncall.views.snapshot import Snapshot
from oncall.views.stacks import FoldedStacks, StackGroup, where

MOST_FRAMES = 12
_RANK = re.compile(r"ranks? (\d+)")


def stack_items(stacks: FoldedStacks, pattern: str = "", faults_only: bool = False) -> list[Item]:
    """The headline and each group that holds the text, with its newest frames."""
    groups = [
        group
        for group in stacks.groups
        if pattern.lower() in " ".join((group.who, group.activity, *group.frames)).lower()
        and (group.odd or not faults_only)
    ]
    head = text("headline", line(stacks.headline, "strong"))
    return [head, *(_item(number, group) for number, group in enumerate(groups))]


def _item(number: int, group: StackGroup) -> Item:
    rank = _RANK.match(group.who)
    return Item(
        name=f"group {number} {group.who}",
        paragraphs=tuple(_paragraphs(group)),
        copy="\n".join((group.who, *group.frames)),
        rank=int(rank[1]) if rank else None,
    )


def _paragraphs(group: StackGroup) -> Iterator[Paragraph]:
    known = where(group)
    place = f" ({known})" if known else ""
    moves = ", moves" if group.moved else ""
    role: Role = "critical" if group.odd else "heading"
    yield line("")
    yield Paragraph(
        "✖ " if group.odd else "  ",
        ((f"{group.who}: {group.activity}", role), (f"{moves}{place}", "faint")),
    )
    yield from frame_lines(group.frames, MOST_FRAMES, "     ", "; y copies all")


def _needs_rank(screen: StacksScreen) -> str | None:
    item = screen.query_one(ReadingList).item
    return None if item is not None and item.rank is not None else "this names no rank"


class StacksScreen(ConsoleScreen):
    """A list of groups."""

    ACTIONS: ClassVar[tuple[ActionEntry[Any], ...]] = (
        ActionEntry("stacks.rank", "r", "Rank", "Show the first rank of the group in the fleet.",
                    _needs_rank, bar=True),
    )  # fmt: skip

    def compose_body(self) -> ComposeResult:
        yield ReadingList(id="stacks")

    def on_mount(self) -> None:
        self._stacks: FoldedStacks | None = None
        self.query_one(ReadingList).focus()

    def show_snapshot(self, snapshot: Snapshot) -> None:  # noqa: ARG002
        self.ask("stacks", GetStacks(), self._take_stacks, "reading stacks")

    def _take_stacks(self, stacks: FoldedStacks) -> None:
        self._stacks = stacks
        self.show_narrowed()

    def refused(self, message: Refused) -> None:  # noqa: ARG002
        self._stacks = None
        take = typed("oncall stacks --job {job}", job=self.state.job or "JOB") + self._of_hosts()
        command = Item(
            "take", (Paragraph("   $ ", ((take, "command"),)),), copy=take, kind="command"
        )
        self.query_one(ReadingList).show(
            [
                heading("No stacks were recorded"),
                readable("how", "While the job is alive, this takes them:", "   "),
                command,
            ]
        )

    def _of_hosts(self) -> str:
        """The job's nodes that answer, as a command names them; nothing of a recording."""
        asked = self.state.snapshot.hosts if self.state.snapshot is not None else ()
        hosts = [one.host for one in asked if not one.silent]
        return typed(" --hosts {hosts}", hosts=fold_hosts(hosts)) if hosts else ""

    def show_narrowed(self) -> None:
        if self._stacks is not None:
            found = stack_items(self._stacks, self.state.filter, self.state.faults_only)
            self.query_one(ReadingList).show(found)

    def copies(self) -> list[Copy]:
        item = self.query_one(ReadingList).item
        return [Copy("t", "text", item.copy)] if item is not None else []

    @on(ReadingList.Chosen)
    def _open(self, message: ReadingList.Chosen) -> None:
        message.stop()
        self.action_rank()

    def action_rank(self) -> None:
        item = self.query_one(ReadingList).item
        if item is not None and item.rank is not None:
            self.app.go_to(Target("rank", item.rank))
