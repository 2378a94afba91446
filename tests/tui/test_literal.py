"""No widget shows text but literally: looked for in the source, as the next one is easily
forgotten, and tried on the widgets themselves."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.app import App, ComposeResult
from textual.color import Color

import oncall.tui
from oncall.core.printable import LONGEST_LINE
from oncall.tui.drawing.literal import (
    HarmlessFilter,
    LiteralTable,
    LiteralText,
    literal,
    literal_segment,
)

from ..hostile import PIECES, unsafe_in
from .console import piloted

_SOURCE = Path(oncall.tui.__file__).parent
# Widgets of textual that hold no text of others, or show what is typed into them.
_WIDGETS = frozenset({"Input", "TextArea"})
# What reads markup in a str, or draws one as it is.
_REFUSED_CALLS = frozenset({
    "from_markup", "render_markup", "Content", "Segment", "Strip.from_lines", "Markdown", "Pretty",
    "update_cell", "update_cell_at", "add_rows", "render_str", "from_ansi",
    "RichLog", "Log", "Panel", "print", "print_json",
})  # fmt: skip
_TITLES = frozenset({"border_title", "border_subtitle", "tooltip", "placeholder", "sub_title"})
# The way itself, and the filter that makes ASCII of what was drawn.
_MAKES_SEGMENTS = ("literal.py", "glyphs.py")
_LITERAL = frozenset({"literal", "literal_content"})


def _faults(path: Path) -> Iterator[str]:
    """What shows text by another way than oncall.tui.drawing.literal, with its line."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.ImportFrom(module="textual.widgets", names=names):
                for name in names:
                    if name.name not in _WIDGETS:
                        yield f"{path.name}:{node.lineno}: {name.name} of textual"
            case ast.Call(func=func):
                name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
                if name in _REFUSED_CALLS:
                    yield f"{path.name}:{node.lineno}: {name}()"
                if name == "add_row" and not all(map(_is_literal, node.args)):
                    yield f"{path.name}:{node.lineno}: add_row of what is not literal"
                if not all(map(_is_no_markup, node.keywords)):
                    yield f"{path.name}:{node.lineno}: {name}() with markup or a tooltip"
            case ast.Assign(targets=targets, value=value) if not _is_literal(value):
                for target in targets:
                    if isinstance(target, ast.Attribute) and target.attr in _TITLES:
                        yield f"{path.name}:{node.lineno}: {target.attr} that is not literal"


def _is_literal(node: ast.expr) -> bool:
    """A call of `literal`, a Text, or a name of cells that LiteralTable takes apart."""
    if isinstance(node, ast.Starred):
        return True
    return isinstance(node, ast.Call) and getattr(node.func, "id", "") in _LITERAL | {"Text"}


def _is_no_markup(keyword: ast.keyword) -> bool:
    """But of a key's description, which is a constant of ours: `tooltip=entry.description`."""
    value = keyword.value
    ours = isinstance(value, ast.Attribute) and value.attr == "description"
    return ours or keyword.arg not in ("markup", "tooltip")


def test_the_console_shows_text_by_one_way_only() -> None:
    modules = [path for path in _SOURCE.rglob("*.py") if path.name not in _MAKES_SEGMENTS]
    assert len(modules) > 50
    assert [fault for path in sorted(modules) for fault in _faults(path)] == []


@pytest.mark.parametrize(
    "code",
    [
        "from textual.widgets import Static",
        "table.add_row(name)",
        "pane.border_title = f'Probe of {host}'",
        "Text.from_markup(host)",
        "Segment(host, style)",
        "Input(host, tooltip=host)",
    ],
)
def test_another_way_is_found(tmp_path: Path, code: str) -> None:
    path = tmp_path / "screen.py"
    path.write_text(code)
    assert list(_faults(path))


@pytest.mark.parametrize("piece", PIECES, ids=ascii)
def test_text_keeps_its_styles_and_its_length(piece: str) -> None:
    shown = literal(Text.assemble("host ", (piece, "bold"), " is down"))
    assert not unsafe_in(shown.plain)
    (bold,) = shown.spans
    assert (shown.plain[: bold.start], shown.plain[bold.end :]) == ("host ", " is down")
    assert not unsafe_in(literal_segment(piece).text) and "\n" not in literal_segment(piece).text
    assert max(map(len, literal(piece).plain.split("\n"))) <= LONGEST_LINE


@pytest.mark.parametrize("piece", PIECES, ids=ascii)
def test_what_is_drawn_stays_as_wide_as_it_was_measured(piece: str) -> None:
    before = Segment(piece.replace("\n", ""), Style(bold=True))
    (after,) = HarmlessFilter().apply([before], Color(0, 0, 0))
    assert after.cell_length == before.cell_length and not unsafe_in(after.text)
    assert after.style == before.style


@piloted
async def test_widgets_take_text_as_it_is() -> None:
    class Shown(App[None]):
        def compose(self) -> ComposeResult:
            yield LiteralText("[/] [@click=app.quit]a[/]")
            yield LiteralTable()

    app = Shown()
    async with app.run_test(size=(60, 10)):
        table = app.query_one(LiteralTable)
        table.fill(["[bold]title"], {"1": ["[/]cell, longer than its title"]})
        drawn = table.render_line(1).text  # before the table has been idle
        app.query_one(LiteralText).update("[/] [@click=app.quit]b[/]")
        table.refresh()
        await app.animator.wait_for_idle()
        strips = app.screen._compositor.render_strips()
        seen = "\n".join(strip.text for strip in strips)
        assert "[/] [@click=app.quit]b[/]" in seen
        assert "[/]cell, longer than its title" in drawn
        assert [str(one.label) for one in table.columns.values()] == ["[bold]title"]
