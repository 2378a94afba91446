"""Lines with styles: what is cut, wrapped and joined keeps them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from oncall.render.text.lines import (
    Line,
    Span,
    joined,
    line,
    plain_lines,
    wrapped,
    wrapped_line,
)

_WORDS = st.text(alphabet="ab ▶", max_size=80)


@given(_WORDS, _WORDS, st.integers(12, 60), st.sampled_from([2, 4]))
def test_a_line_with_styles_is_wrapped_like_its_text(
    left: str, right: str, width: int, indent: int
) -> None:
    one = Line((Span(left, "fault"), Span(right, "dim")))
    pieces = wrapped_line(one, width, indent)
    assert plain_lines(pieces) == list(wrapped(left + right, width, indent))
    faults = "".join(span.text for piece in pieces for span in piece.spans if span.style == "fault")
    assert faults.replace(" ", "") == left.replace(" ", "")


def test_what_follows_in_a_wrapped_line_keeps_its_style() -> None:
    pieces = wrapped_line(line("one two three", "fault"), 9, 2)
    assert pieces == [line("one two", "fault"), Line((Span("  "), Span("three", "fault")))]


def test_parts_are_joined_and_cut() -> None:
    text = joined([line("┃", "fault"), line("way")], "; ")
    assert str(text) == "┃; way" and text.spans[0] == Span("┃", "fault")
    assert str(text.cut(4)) == "┃; …" and str(text.first(4)) == "┃; w"
