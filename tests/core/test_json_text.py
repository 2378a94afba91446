"""JSON of others: whatever is none raises one error."""

from __future__ import annotations

import pytest

from oncall.core.json_text import json_of


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, b"\xff", "nul"])
def test_what_is_no_json_is_one_error(text: str | bytes) -> None:
    with pytest.raises(ValueError):
        json_of(text)


def test_json_is_read() -> None:
    assert json_of('{"a": [1, null]}') == json_of(b'{"a": [1, null]}') == {"a": [1, None]}
