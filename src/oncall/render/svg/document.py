"""What all SVG pictures are made of; colours of those of the network suit the colour-blind, too."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from oncall.core.printable import clean, harmless

INK = "#222222"


def text(
    x: float,
    y: float,
    content: str,
    *,
    size: int = 13,
    bold: bool = False,
    colour: str = INK,
    anchor: str = "start",
) -> str:
    """A line of text, its base line at `y`."""
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" '
        f'text-anchor="{anchor}"{weight}>{escape(clean(content))}</text>'
    )


def title(content: str) -> str:
    """What a viewer shows of the element that it stands in."""
    return f"<title>{escape(harmless(content))}</title>"


def document(
    width: float, height: float, content: str, body: Iterable[str], definitions: str = ""
) -> str:
    """The whole picture on white, with what it shows as its title. `definitions`: patterns and
    arrows' heads that the body names."""
    lines = "\n".join(body)
    defined = f"<defs>{definitions}</defs>\n" if definitions else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="DejaVu Sans, Arial, sans-serif">\n'
        f"{title(content)}\n{defined}"
        f'<rect width="100%" height="100%" fill="white"/>\n{lines}\n</svg>\n'
    )


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
    said = title(hint) if hint else ""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'rx="{round_px:g}" fill="{fill}"{stroke}>{said}</rect>'
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
    said = title(hint) if hint else ""
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
        f'stroke-width="{thick:.1f}"{end}>{said}</line>'
    )


def network_document(width: float, height: float, label: str, body: Iterable[str]) -> str:
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
    return document(width, height, label, body, heads + hatching)
