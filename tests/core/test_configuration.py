"""Configuration files that are none: an error that names the file, whatever is in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncall.core.configuration import read_tables
from oncall.core.errors import BadInput
from oncall.node.common.config import load


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"x = ", "not TOML"),
        (b"x = " + b"9" * 5000, "digits"),
        (b"x = " + b"[" * 5000, "nested too deeply"),
        (b"x = \xff", "UTF-8"),
    ],
)
def test_what_is_no_toml_is_named(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(content)
    _, problems = read_tables("fleet", [path])
    assert [problem.place for problem in problems] == [str(path)]
    assert words in str(problems[0])
    with pytest.raises(BadInput, match=words) as caught:
        load(path)
    assert caught.value.place == str(path)
