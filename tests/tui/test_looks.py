"""Themes, states, glyphs, and the clipboard's escape sequence."""

from __future__ import annotations

import base64
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.color import Color
from textual.theme import BUILTIN_THEMES, Theme

from oncall.tui.drawing.states import STATES, THEMES, default_theme, state_styles
from oncall.tui.shell.looking import osc52
from oncall.views.snapshot import RankState

from .console import console, piloted


def test_states_are_those_of_the_snapshot_in_order_and_distinguished_by_letter() -> None:
    states = [state.name.lower().replace("_", "-") for state in RankState]
    assert [look.name for look in STATES] == states
    assert len({look.letter for look in STATES}) == len(STATES)


@piloted
async def test_every_theme_colours_every_state() -> None:
    async with console() as running:
        for theme in THEMES:
            running.app.theme = theme.name
            await running.settle()
            assert all(style.color is not None for style in state_styles(running.app)), theme.name


@pytest.mark.parametrize("theme", [one for one in THEMES if not one.ansi], ids=lambda one: one.name)
def test_states_can_be_read(theme: Theme) -> None:
    """WCAG 2.1: 4.5 for letters, and 3 even on the line that the cursor is on."""
    background = Color.parse(theme.background or "")
    band = Color.parse(theme.variables["band"])
    for look in STATES:
        colour = Color.parse(theme.variables[look.variable])
        assert contrast(colour, background) >= 4.5, look.name
        assert contrast(colour, band) >= 3.0, look.name


def contrast(one: Color, other: Color) -> float:
    """WCAG 2.1's contrast ratio."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: Color) -> float:
    parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour.normalized]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def test_the_ansi_themes_are_those_of_the_terminal() -> None:
    ours = {theme.name for theme in THEMES if theme.ansi}
    assert ours == {name for name, theme in BUILTIN_THEMES.items() if theme.ansi}


@pytest.mark.parametrize(
    ("environment", "theme"),
    [
        ({}, "oncall-dark"),
        ({"TERM": "xterm-256color", "COLORFGBG": "0;15"}, "oncall-light"),
        ({"TERM": "linux"}, "ansi-dark"),
        ({"TERM": "screen", "COLORTERM": "truecolor"}, "oncall-dark"),
    ],
)
def test_the_terminal_decides_where_nobody_chose(environment: dict[str, str], theme: str) -> None:
    assert default_theme(environment) == theme


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_the_clipboard_gets_every_character(text: str) -> None:
    found = re.fullmatch(r"\x1b\]52;c;([A-Za-z0-9+/=]*)\x07", osc52(text, {}))
    assert found is not None
    assert base64.b64decode(found[1]).decode() == text


def test_gnu_screen_hands_the_sequence_through_in_pieces() -> None:
    sequence = osc52("x" * 1000, {"STY": "1.pts"})
    pieces = re.findall(r"\x1bP(.*?)\x1b\\", sequence, re.DOTALL)
    assert "".join(pieces) == osc52("x" * 1000, {})
    assert all(len(piece) <= 250 for piece in pieces)
