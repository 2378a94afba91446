"""The network in tiers as lines of text, the way of the pauses drawn in it and described below."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from oncall.core.units import format_duration, format_number
from oncall.render.text.lines import (
    Line,
    Span,
    Style,
    joined,
    line,
    line_of,
    wrapped,
    wrapped_line,
)
from oncall.render.text.provenance import ROOT_KINDS
from oncall.views.network.topology import Cable, Device, Hop, Root, Topology
from oncall.views.words import percent

_SIDES = {"root": ("[", "]"), "way": ("(", ")"), "victim": ("<", ">")}
_STYLES: dict[str, Style] = {"root": "fault", "way": "way"}
_TIER = 12  # columns for a tier's name


@dataclass(frozen=True)
class _Placed:
    """A tier as it is drawn: devices with the column of their middle."""

    devices: tuple[tuple[Device, int], ...]
    left_out: int


def topology_lines(shown: Topology, width: int = 80) -> list[Line]:
    """Tiers from the top down to hosts, then the way port by port."""
    lines = [line(part) for text in title(shown) for part in wrapped(text, width)]
    lines += tier_lines(shown, width)
    lines += [Line(), *way_lines(shown, width)]
    return lines


def tier_lines(shown: Topology, width: int) -> list[Line]:
    """The tiers alone, with what their signs mean."""
    placed = [
        _place(tier, left_out, width)
        for tier, left_out in zip(shown.tiers, shown.left_out, strict=True)
    ]
    lines: list[Line] = []
    for tier in range(len(placed) - 1, -1, -1):
        lines.append(_tier_line(tier, placed[tier], width))
        if tier:
            tracks = list(_tracks(shown.cables, placed[tier], placed[tier - 1]))
            lines += track_lines(tracks, width) if tracks else [Line()]
    if shown.tiers:
        lines += wrapped_line(_legend(shown), width)
    return lines


def title(shown: Topology) -> Iterator[str]:
    """Where the congestion starts, in a sentence."""
    root = shown.root
    if root is None:
        yield "No reported port delayed this step"
        return
    seen = "" if root.seen else ", not reported: inferred from pauses"
    host = f", the port to {root.host}" if root.host else ""
    kind = ROOT_KINDS.get(root.kind, root.kind)
    yield f"The congestion starts at {root.label}{host}: {kind}{seen}"


def way_lines(shown: Topology, width: int) -> list[Line]:
    """The ports from the victim to the root, and the other places where waiting begins."""
    if shown.root is None:
        return []
    wide = max(len(hop.label) for hop in shown.root.hops)
    lines: list[Line] = []
    for hop in shown.root.hops:
        begin = "▶" if hop.is_root else " "
        phrase = f"{begin} {hop.label:<{wide}}  {hop_phrase(hop, shown.root)}"
        lines += wrapped_line(line(phrase, "fault" if hop.is_root else "text"), width)
    for root in shown.roots[1:4]:
        phrase = f"  {root.label}: {percent(root.share)} of the lost time comes from there"
        lines += wrapped_line(line(phrase), width)
    for note in shown.notes:
        lines += wrapped_line(line(f"  {note}"), width)
    return lines


def hop_phrase(hop: Hop, root: Root) -> str:
    """`paused 2.45 ms by SW1`, `queue of 174 packets to host14`."""
    parts = []
    if hop.paused_ns and not (hop.is_root and root.kind == "storm"):
        by = f" by {hop.towards}" if hop.towards else ""
        parts.append(f"paused {format_duration(hop.paused_ns)}{by}")
    if hop.depth and hop.depth >= 1:
        to = f" to {hop.towards}" if hop.towards and not hop.paused_ns else ""
        parts.append(f"queue of {format_number(round(hop.depth))} packets{to}")
    if hop.is_root:
        parts.append(ROOT_KINDS.get(root.kind, root.kind))
    return ", ".join(parts) or "no data"


# ---------------------------------------------------------------------- layout


def _place(tier: Sequence[Device], left_out: int, width: int) -> _Placed:
    """As many devices as fit beside each other, those with a role in any case."""
    room = width - _TIER
    shown = list(tier)
    while len(shown) > 1 and (max(len(one.name) for one in shown) + 3) * len(shown) > room:
        others = [device for device in shown if device.role == "other"]
        if not others:
            break
        shown.remove(others[-1])
    slot = min(room // max(len(shown), 1), 24)
    left = _TIER + (room - slot * len(shown)) // 2
    return _Placed(
        tuple((device, left + slot * place + slot // 2) for place, device in enumerate(shown)),
        left_out + len(tier) - len(shown),
    )


def _tier_line(tier: int, placed: _Placed, width: int) -> Line:
    name = "hosts" if tier == 0 else f"tier {tier}"
    if placed.left_out:
        name += f" +{placed.left_out:,}"
    cells = list(f"{name:<{width}}")
    styles: list[Style] = ["text"] * len(cells)
    for device, middle in placed.devices:
        left, right = _SIDES.get(device.role, ("", ""))
        text = cut_name(f"{left}{device.name}{right}", width - _TIER)
        at = min(max(middle - len(text) // 2, _TIER), width - len(text))
        cells[at : at + len(text)] = text
        styles[at : at + len(text)] = [_STYLES.get(device.role, "text")] * len(text)
    drawn = "".join(cells).rstrip()
    return line_of(drawn, styles[: len(drawn)])


def cut_name(name: str, most: int) -> str:
    """A name that is too long, by its end: there it tells one device from another."""
    return name if len(name) <= most else f"..{name[2 - most :]}"


def _tracks(cables: Sequence[Cable], above: _Placed, below: _Placed) -> Iterator[Track]:
    """The marked links between two tiers; several at one device are drawn side by side."""
    top = {device.name: middle for device, middle in above.devices}
    bottom = {device.name: middle for device, middle in below.devices}
    marked = [
        (one.a, one.b, one, True) if one.a in top else (one.b, one.a, one, False)
        for one in cables
        if (one.paused or one.flow)
        and ((one.a in top and one.b in bottom) or (one.b in top and one.a in bottom))
    ]
    marked.sort(key=lambda one: (bottom[one[1]], top[one[0]]))
    ends: dict[str, list[int]] = {}
    for number, (high, low, _, _) in enumerate(marked):
        ends.setdefault(f"^{high}", []).append(number)
        ends.setdefault(f"v{low}", []).append(number)
    for number, (high, low, cable, stopped_above) in enumerate(marked):
        head = None
        if cable.paused:
            head = "up" if stopped_above else "down"
        yield Track(
            top[high] + _offset(ends[f"^{high}"], number),
            bottom[low] + _offset(ends[f"v{low}"], number),
            cable.paused,
            head,
        )


def _offset(numbers: list[int], number: int) -> int:
    return 2 * numbers.index(number) - (len(numbers) - 1)


def _legend(shown: Topology) -> Line:
    parts: list[Line] = []
    if any(device.role == "root" for tier in shown.tiers for device in tier):
        parts.append(line("[ ] where the congestion starts"))
    if any(device.role == "way" for tier in shown.tiers for device in tier):
        parts.append(line("( ) on the path"))
    if any(device.role == "victim" for tier in shown.tiers for device in tier):
        parts.append(line("< > sends the late step"))
    if any(cable.paused for cable in shown.cables):
        glyph = Span("┃", "fault")
        parts.append(Line((glyph, Span(" PFC pauses, towards the paused port"))))
    if any(cable.flow and not cable.paused for cable in shown.cables):
        parts.append(line("│ path of the late step"))
    if any(shown.left_out):
        parts.append(line("+ how many more of a tier are not shown"))
    return joined(parts, "; ")


_UP, _DOWN, _LEFT, _RIGHT = 1, 2, 4, 8
_SHAPES = (_UP | _DOWN, _LEFT | _RIGHT, _DOWN | _RIGHT, _DOWN | _LEFT, _UP | _RIGHT, _UP | _LEFT)
_LIGHT = dict(zip(_SHAPES, "│─╭╮╰╯", strict=True))
_HEAVY = dict(zip(_SHAPES, "┃━┏┓┗┛", strict=True))

_Cell = tuple[str, Style]
_EMPTY: _Cell = (" ", "text")


@dataclass(frozen=True)
class Track:
    """A line from column `top` above to column `bottom` below. `head`: `up` or `down` has an
    arrow's head at that end, None neither."""

    top: int
    bottom: int
    heavy: bool = False
    head: str | None = None


def track_lines(tracks: Sequence[Track], width: int) -> list[Line]:
    """The rows between two rows of names; heavy lines are drawn over light ones, and are what the
    picture is about."""
    bent = [track for track in tracks if track.top != track.bottom]
    # Those to the right first where they go right: fewer lines cross.
    bent.sort(key=lambda one: -one.top if one.bottom > one.top else one.top)
    rows = {id(track): row + 1 for row, track in enumerate(bent)}
    height = len(bent) + 2
    cells = [[_EMPTY] * width for _ in range(height)]
    for track in sorted(tracks, key=lambda one: one.heavy):
        row = rows.get(id(track), height)
        shapes = _HEAVY if track.heavy else _LIGHT
        style: Style = "fault" if track.heavy else "text"
        _draw(cells, track, row, {shape: (glyph, style) for shape, glyph in shapes.items()})
        if track.head == "down":
            cells[-1][track.bottom] = ("▼", style)
        elif track.head == "up":
            cells[0][track.top] = ("▲", style)
    return [_row(row) for row in cells]


def _row(cells: Sequence[_Cell]) -> Line:
    text = "".join(glyph for glyph, _ in cells).rstrip()
    return line_of(text, [style for _, style in cells[: len(text)]])


def _draw(cells: list[list[_Cell]], track: Track, row: int, shapes: dict[int, _Cell]) -> None:
    for y in range(len(cells)):
        x = track.top if y < row else track.bottom
        if y != row:
            cells[y][x] = shapes[_UP | _DOWN]
    if row < len(cells):
        left, right = sorted((track.top, track.bottom))
        for x in range(left + 1, right):
            cells[row][x] = shapes[_LEFT | _RIGHT]
        goes_right = track.bottom > track.top
        cells[row][track.top] = shapes[_UP | (_RIGHT if goes_right else _LEFT)]
        cells[row][track.bottom] = shapes[_DOWN | (_LEFT if goes_right else _RIGHT)]
