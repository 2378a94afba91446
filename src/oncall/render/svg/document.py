"""What all SVG pictures are made of: a line of text, and the document around it."""

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
