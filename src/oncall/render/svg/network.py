"""What SVG pictures of the network are made of; its colours suit the colour-blind, too."""

from __future__ import annotations

from collections.abc import Iterable

from oncall.render.svg import document as picture
from oncall.render.svg.document import INK, text

__all__ = [
    "BLUE",
    "GREY",
    "INK",
    "LIGHT_BLUE",
    "LINE",
    "ORANGE",
    "PALE",
    "RED",
    "box",
    "document",
    "line",
    "text",
]

GREY, PALE, RED = "#666666", "#f3f4f6", "#c1121f"
BLUE, LIGHT_BLUE, ORANGE, LINE = "#0072b2", "#a6cbe3", "#e69f00", "#c9ced6"


def box(
    x: float,
    y: float,
    width: float,
    height: float,
    *,
    fill: str = "white",
    edge: str | None = None,
    thick: float = 1,
    round_px: float = 0,
    hint: str = "",
) -> str:
    """A rectangle; `hint` is shown where the pointer rests on it."""
    stroke = f' stroke="{edge}" stroke-width="{thick:g}"' if edge else ""
    title = picture.title(hint) if hint else ""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'rx="{round_px:g}" fill="{fill}"{stroke}>{title}</rect>'
    )


def line(
    x1: float,
    y1: float,
    x2: float,
    y2: float,
    *,
    colour: str = INK,
    thick: float = 1,
    head: str | None = None,
    hint: str = "",
) -> str:
    """A straight line; `head` names the arrow's head at its end: `ink` or `red`."""
    end = f' marker-end="url(#{head})"' if head else ""
    title = picture.title(hint) if hint else ""
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
        f'stroke-width="{thick:.1f}"{end}>{title}</line>'
    )


def document(width: float, height: float, label: str, body: Iterable[str]) -> str:
    """The whole picture on white, with what it shows as its title."""
    heads = "".join(
        f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="{size}" '
        f'markerHeight="{size}" orient="auto" markerUnits="userSpaceOnUse">'
        f'<path d="M 0 0 L 8 4 L 0 8 z" fill="{colour}"/></marker>'
        for name, colour, size in (("ink", INK, 10), ("red", RED, 14))
    )
    hatching = (
        '<pattern id="beyond" width="6" height="6" patternUnits="userSpaceOnUse" '
        f'patternTransform="rotate(45)"><rect width="3" height="6" fill="{RED}"/></pattern>'
        '<pattern id="beside" width="6" height="6" patternUnits="userSpaceOnUse" '
        f'patternTransform="rotate(45)"><rect width="2" height="6" fill="{ORANGE}"/></pattern>'
    )
    return picture.document(width, height, label, body, heads + hatching)
