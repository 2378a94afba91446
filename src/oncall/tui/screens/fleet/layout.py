"""Where each rank's cell stands: blocks of at most sixteen cells that flow over the width.

A small group (a node, a tensor-parallel group) is one block behind its label. Large ones (a rack,
a stage) are sections: a heading, and within it a block a node, or chunks of sixteen ranks. Where
all that does not fit it becomes a map: blocks side by side, at last two rows to a line.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from oncall.render.text.lines import cell_len, padded
from oncall.tui.screens.fleet.model import Groups, Mask, counts_phrase, faults, grouped
from oncall.views.snapshot import Ranks, RankState

if TYPE_CHECKING:
    import numpy.typing as npt

    from oncall.views.snapshot import Ints

    Floats = npt.NDArray[np.float64]

CHUNK = 16  # cells of a block
_GAP = 2  # columns between blocks
_LONGEST_LABEL = 20


@dataclass(frozen=True)
class Label:
    """Text at a place. `members` (indices) of a heading are counted when it is drawn."""

    column: int
    text: str
    members: Ints | None = None


@dataclass(frozen=True)
class Layout:
    """Cells of ranks in rows. `order` (k,) are the indices shown, by row and column; `row` and
    `column` (k,) theirs. `cell` is a cell's width: 1, 2 with a space, more with rank numbers.
    `stack`: how many rows share a line of the terminal."""

    order: Ints
    row: Ints
    column: Ints
    cell: int
    labels: dict[int, tuple[Label, ...]]  # by row
    rows: int
    width: int
    stack: int = 1

    @property
    def height(self) -> int:
        """Lines of the terminal."""
        return -(-self.rows // self.stack)

    @cached_property
    def starts(self) -> Ints:
        """(rows + 1,) where the cells of each row start in `order`."""
        return np.searchsorted(self.row, np.arange(self.rows + 1))

    @cached_property
    def place(self) -> dict[int, int]:
        """Index -> its place in `order`."""
        return {index: place for place, index in enumerate(self.order.tolist())}

    def headings_above(self, rows: Ints) -> list[int]:
        """The rows of the headings that count what stands in `rows`."""
        nearest = np.searchsorted(self._headings, rows, side="right") - 1
        return np.unique(self._headings[nearest[nearest >= 0]]).tolist()  # type: ignore[no-any-return]

    @cached_property
    def _headings(self) -> Ints:
        rows = [row for row, labels in self.labels.items() if labels[0].members is not None]
        return np.array(sorted(rows), dtype=np.int64)

    def at(self, column: int, row: int) -> int | None:
        """The index of the rank whose cell is there."""
        if not 0 <= row < self.rows:
            return None
        first, last = int(self.starts[row]), int(self.starts[row + 1])
        place = first + int(np.searchsorted(self.column[first:last], column, side="right")) - 1
        if place < first or column >= int(self.column[place]) + self.cell:
            return None
        return int(self.order[place])


def lay_out(
    ranks: Ranks,
    by: str,
    shown: Mask,
    width: int,
    height: int,
    key: Floats | None = None,
    cells: tuple[int, ...] = (),
    named: bool = False,
) -> Layout:
    """The richest layout that needs no scrolling: the first of `cells` (widths; else numbered
    cells, spaced ones) that fits, else packed cells, else a map. `key` (n,): all ranks by it, the
    lowest first, instead of by groups. `named`: the richest of all, to be scrolled."""
    chosen = np.flatnonzero(shown)
    if not len(chosen):
        return Layout(chosen, chosen, chosen, 1, {}, 0, width)
    blocks = _blocks(ranks, grouped(ranks, by), chosen) if key is None else None
    for cell in (*(cells or (len(str(int(ranks.rank.max()))) + 2, 2)), 1):
        layout = _flow(blocks or _sorted(chosen, key, width, cell), width, height, cell)
        if named or (layout.height <= height and layout.width <= width):
            return layout
    for stack in (1, 2):
        layout = _flow(
            blocks or _sorted(chosen, key, width, 1), width, height, 1, joined=True, stack=stack
        )
        if layout.height <= height:
            break
    return layout


@dataclass(frozen=True)
class _Blocks:
    """Cells in blocks, before they have a place. `order`, `block`, `position` (k,) of cells by
    section, block and place within it; `section` and `names` of blocks."""

    order: Ints
    block: Ints
    position: Ints
    section: Ints
    names: tuple[str, ...]
    headings: tuple[str, ...]  # of sections; empty where there are none


def _blocks(ranks: Ranks, groups: Groups, chosen: Ints) -> _Blocks:
    """Cells in blocks of sixteen: a small group is one, of a large one it takes several."""
    sizes = np.bincount(groups.code)
    sectioned = bool(np.median(sizes[sizes > 0]) > CHUNK)
    within = _within(ranks, groups, chosen) if sectioned else groups
    section = groups.code[chosen] if sectioned else np.zeros(len(chosen), dtype=np.int64)
    position = _positions(ranks, within, section, chosen)
    key = np.stack((section, within.code[chosen], position // CHUNK))
    order = np.lexsort((position, key[2], key[1], key[0]))
    key = key[:, order]
    new = np.r_[True, np.any(np.diff(key, axis=1) != 0, axis=0)]
    first_rank = ranks.rank[chosen[order[new]]]
    return _Blocks(
        order=chosen[order],
        block=np.cumsum(new) - 1,
        position=position[order] % CHUNK,
        section=key[0, new],
        names=_block_names(within, key[1, new], key[2, new], first_rank),
        headings=groups.labels if sectioned else (),
    )


def _sorted(chosen: Ints, key: Floats | None, width: int, cell: int) -> _Blocks:
    """All cells in one order, as many to a block as fit into a line."""
    assert key is not None
    order = chosen[np.argsort(key[chosen], kind="stable")]
    place = np.arange(len(order))
    chunk = max(1, min(CHUNK, (width - len(str(len(order))) - 2) // cell))
    number = -(-len(order) // chunk)
    return _Blocks(
        order=order,
        block=place // chunk,
        position=place % chunk,
        section=np.zeros(number, dtype=np.int64),
        names=tuple(f"{block * chunk + 1}." for block in range(number)),
        headings=(),
    )


def _flow(
    blocks: _Blocks, width: int, height: int, cell: int, *, joined: bool = False, stack: int = 1
) -> Layout:
    """Blocks from left to right; sections begin in a row of their own, below their heading.
    `joined`: without gaps, only the first of a row with its label."""
    label_width = max(map(cell_len, blocks.names))
    left, size = label_width + 1, (int(blocks.position.max()) + 1) * cell
    step = size if joined else left + size + _GAP
    number = len(blocks.names)
    per_row = max(1, (width - left if joined else width + _GAP) // step)
    if not blocks.headings and not joined:  # below each other, so that cells stand in columns
        per_row = min(per_row, -(-number // max(height, 1)))

    above = stack if blocks.headings else 0  # the heading; between sections also an empty line
    between = 0 if joined else above
    names, first, section, counts = np.unique(
        blocks.section, return_index=True, return_inverse=True, return_counts=True
    )
    rows = -(-counts // (per_row * stack)) * stack + above + between
    top = np.cumsum(rows) - rows
    nth = np.arange(number) - first[section]
    row, column = top[section] + nth // per_row + above, nth % per_row * step

    labels: dict[int, tuple[Label, ...]] = {}
    for at, start, name in zip(row.tolist(), column.tolist(), blocks.names, strict=True):
        if not joined or not start:
            labels[at] = (*labels.get(at, ()), Label(start, padded(name, label_width)))
    if blocks.headings:
        members = np.split(blocks.order, np.flatnonzero(np.diff(section[blocks.block])) + 1)
        for name, at, ranks in zip(names.tolist(), top.tolist(), members, strict=True):
            labels[at] = (Label(0, blocks.headings[name], ranks),)
    place = column[blocks.block] + left + blocks.position * cell
    return Layout(
        order=blocks.order,
        row=row[blocks.block],
        column=place,
        cell=cell,
        labels=labels,
        rows=int(rows.sum()) - between,
        width=int(place.max()) + cell,
        stack=stack,
    )


def _within(ranks: Ranks, groups: Groups, chosen: Ints) -> Groups:
    """The label of a block in a section: a node's ranks, if each node has several."""
    nodes = grouped(ranks, "node")
    pairs = len(np.unique(np.stack((groups.code[chosen], nodes.code[chosen])), axis=1).T)
    if groups.by != "node" and pairs and len(chosen) / pairs >= 2:
        return nodes
    return Groups("rank", np.zeros(len(ranks), dtype=np.int64), ("",))


def _positions(ranks: Ranks, within: Groups, section: Ints, chosen: Ints) -> Ints:
    """(k,) the place of a cell in its group: its GPU's number on a node, else by rank."""
    group = section * (int(within.code.max()) + 1) + within.code[chosen]
    gpu = ranks.gpu[chosen]
    numbered = within.by == "node" and gpu.min() >= 0 and gpu.max() < CHUNK
    if numbered and len(np.unique(group * CHUNK + gpu)) == len(gpu):
        return gpu
    order = np.lexsort((ranks.rank[chosen], group))
    first = np.r_[True, np.diff(group[order]) != 0]
    start = np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))
    position = np.empty(len(chosen), dtype=np.int64)
    position[order] = np.arange(len(chosen)) - start
    return position


def _block_names(within: Groups, code: Ints, chunk: Ints, first_rank: Ints) -> tuple[str, ...]:
    """The label before each block: its group, else its first rank. Long labels lose their start,
    since host names differ at the end."""
    names = []
    for one, part, rank in zip(code.tolist(), chunk.tolist(), first_rank.tolist(), strict=True):
        label = within.labels[one]
        name = f"rank {rank}" if not label else label if not part else f"… {rank}"
        while cell_len(name) > _LONGEST_LABEL:
            name = "…" + name[2 if name.startswith("…") else 1 :]
        names.append(name)
    return tuple(names)


# ---------------------------------------------------------------- the cursor


def begins_at(layout: Layout, state: Ints) -> int | None:
    """The index that the cursor begins on: the first that is blamed, else at fault, if any."""
    for wanted in (state == RankState.BLAMED, faults(state)):
        if (index := next_at(layout, None, wanted)) is not None:
            return index
    return moved(layout, None)


def moved(layout: Layout, index: int | None, columns: int = 0, rows: int = 0) -> int | None:
    """The index that the cursor comes to; the first one shown if it stood nowhere."""
    if not len(layout.order):
        return None
    place = layout.place.get(-1 if index is None else index)
    if place is None:
        return int(layout.order[0])
    if columns:
        return int(layout.order[min(max(place + columns, 0), len(layout.order) - 1)])
    used = np.unique(layout.row)
    here = int(np.searchsorted(used, layout.row[place]))
    row = int(used[min(max(here + rows, 0), len(used) - 1)])
    first, last = int(layout.starts[row]), int(layout.starts[row + 1])
    distance = np.abs(layout.column[first:last] - layout.column[place])
    return int(layout.order[first + int(distance.argmin())])


def next_at(layout: Layout, index: int | None, wanted: Mask, step: int = 1) -> int | None:
    """The next index after `index` that is wanted, around the end; None if none is."""
    places = np.flatnonzero(wanted[layout.order])
    if not len(places):
        return None
    here = layout.place.get(-1 if index is None else index, -1 if step > 0 else len(layout.order))
    if step > 0:
        later = places[places > here]
        return int(layout.order[later[0] if len(later) else places[0]])
    earlier = places[places < here]
    return int(layout.order[earlier[-1] if len(earlier) else places[-1]])


# ------------------------------------------------------------------- drawing


def heading_text(label: Label, state: Ints) -> str:
    """`stage 1 · 2,048 ranks: 1 X · 2,047 H`."""
    if label.members is None:
        return label.text
    number = len(label.members)
    ranks = f"{number:,} rank{'s' if number != 1 else ''}"
    return f"{label.text} · {ranks}: {counts_phrase(state[label.members])}"
