"""The network in tiers as an SVG, with the way of the pauses from the root to the victim."""

from __future__ import annotations

from collections.abc import Iterator
from math import hypot

from oncall.render.svg import document as picture
from oncall.render.svg.document import BLUE, GREY, INK, LINE, ORANGE, PALE, RED
from oncall.render.text.topology import hop_phrase, title
from oncall.views.network.topology import Cable, Device, Topology

_WIDTH, _LEFT, _TOP, _TIER = 1000.0, 90.0, 90.0, 110.0
_BOX = 30.0
_FILLS = {
    "root": (RED, "white"),
    "way": (ORANGE, INK),
    "victim": (BLUE, "white"),
    "flow": (PALE, INK),
    "other": (PALE, GREY),
}
_MEANS = {"root": "congestion starts", "way": "on the path", "victim": "sends the late step"}


def topology_svg(shown: Topology) -> str:
    """Devices by tier, links in grey, pauses in red with their direction; below, the way in
    words."""
    heading = " ".join(title(shown))
    hops = shown.root.hops if shown.root is not None else ()
    places = dict(_places(shown))
    bottom = _TOP + len(shown.tiers) * _TIER
    body = [picture.text(16, 28, heading, size=16, bold=True), *_legend(shown)]
    for cable in sorted(shown.cables, key=lambda one: (one.paused, one.flow)):
        body += _cable(cable, places)
    for number, tier in enumerate(shown.tiers):
        name = "hosts" if number == 0 else f"tier {number}"
        y = _TOP + (len(shown.tiers) - 1 - number) * _TIER
        more = shown.left_out[number]
        body.append(picture.text(16, y + 20, name, size=12, colour=GREY))
        if more:
            body.append(picture.text(16, y + 36, f"+ {more:,} more", size=11, colour=GREY))
        for device in tier:
            body += _device(device, *places[device.name])
    for number, hop in enumerate(hops):
        colour, y = RED if hop.is_root else INK, bottom - 30 + 20 * number
        body.append(picture.text(16, y, hop.label, colour=colour, bold=hop.is_root))
        reported_on = hop_phrase(hop, shown.root) if shown.root is not None else ""
        body.append(picture.text(130, y, reported_on, colour=colour, bold=hop.is_root))
    for number, note in enumerate(shown.notes, len(hops)):
        body.append(picture.text(16, bottom - 30 + 20 * number, note))
    height = bottom - 30 + 20 * (len(hops) + len(shown.notes))
    return picture.network_document(_WIDTH, height, heading, body)


def _places(shown: Topology) -> Iterator[tuple[str, tuple[float, float, float]]]:
    """Each device's middle, its top, and how wide it is."""
    for number, tier in enumerate(shown.tiers):
        y = _TOP + (len(shown.tiers) - 1 - number) * _TIER
        slot = (_WIDTH - _LEFT - 10) / max(len(tier), 1)
        for place, device in enumerate(tier):
            wide = min(max(7.5 * len(device.name) + 14, 46), slot - 4)
            yield device.name, (_LEFT + slot * (place + 0.5), y, wide)


def _device(device: Device, x: float, y: float, wide: float) -> Iterator[str]:
    fill, ink = _FILLS[device.role]
    marked = device.role in _MEANS
    edge = INK if marked else LINE
    yield picture.box(x - wide / 2, y, wide, _BOX, fill=fill, edge=edge, round_px=6,
                      hint=device.name)  # fmt: skip
    size = max(min(12, int((wide - 6) / max(len(device.name), 1) / 0.62)), 5)
    yield picture.text(x, y + 19, device.name, size=size, colour=ink, bold=marked, anchor="middle")


def _cable(cable: Cable, places: dict[str, tuple[float, float, float]]) -> Iterator[str]:
    """A link; one that was paused as an arrow from who stopped it to who had to stop."""
    ax, ay, _ = places[cable.a]
    bx, by, _ = places[cable.b]
    ay, by = (ay, by + _BOX) if ay > by else (ay + _BOX, by)
    if not cable.paused:
        colour, thick = (BLUE, 2.5) if cable.flow else (LINE, 1.0)
        yield picture.line(ax, ay, bx, by, colour=colour, thick=thick)
        return
    long = max(hypot(ax - bx, ay - by), 1.0)
    ex, ey = ax - (ax - bx) / long * 2, ay - (ay - by) / long * 2
    yield picture.line(
        bx, by, ex, ey, colour=RED, thick=4, head="red", hint=f"{cable.b} paused {cable.a}"
    )


def _legend(shown: Topology) -> Iterator[str]:
    roles = {device.role for tier in shown.tiers for device in tier}
    x = 16.0
    for role, means in _MEANS.items():
        if role in roles:
            yield picture.box(x, 46, 16, 14, fill=_FILLS[role][0], edge=INK, round_px=3)
            yield picture.text(x + 22, 57, means, size=12, colour=GREY)
            x += 40 + 7 * len(means)
    for means, colour, there in (
        ("PFC pauses", RED, any(one.paused for one in shown.cables)),
        ("path of the late step", BLUE, any(one.flow for one in shown.cables)),
    ):
        if there:
            yield picture.line(x, 53, x + 22, 53, colour=colour, thick=4)
            yield picture.text(x + 28, 57, means, size=12, colour=GREY)
            x += 46 + 7 * len(means)
