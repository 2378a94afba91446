"""A terminal without UTF-8: every cell that is written becomes ASCII, in one place."""

from __future__ import annotations

from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

_SAME = {
    "│┃║▏▎▍▌▋▊▐▕┆┊": "|",
    "─━═▁▔╌┈": "-",
    "┌┐└┘├┤┬┴┼╭╮╰╯╔╗╚╝┏┓┗┛": "+",
    "█▇▆▅▉▓": "#",
    "▄▃▀▒": "=",
    "▂": "_",
    "░": "?",
    "▫": ",",
    "·•∙": ".",
    "●◉▪": "o",
    "○◌": "o",
    "✖✗×": "x",
    "▲△": "^",
    "▼▽": "v",
    "▶►→›❯": ">",
    "◀◄←‹": "<",
    "✔✓": "+",
    "…": ".",
    "❚": "|",
    "⏸": "|",
    "“”„": '"',
    "‘’": "'",
    "–—−": "-",
    "µμ": "u",
    "α": "a",
    "β": "b",
}
_ASCII = str.maketrans({glyph: plain for glyphs, plain in _SAME.items() for glyph in glyphs})


def to_ascii(text: str) -> str:
    """`text` in as many cells of ASCII; what has no likeness is `?`."""
    if text.isascii():
        return text
    text = text.translate(_ASCII)
    return "".join(c if c.isascii() else "?" * cell_len(c) for c in text)


class AsciiFilter(LineFilter):
    """Applied to all that is drawn, borders and scroll bars included."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:  # noqa: ARG002
        return [Segment(to_ascii(text), style, control) for text, style, control in segments]
