"""When what is printed is of ASCII alone, and how."""

from __future__ import annotations

import io

import pytest

from oncall.cli.main import SafeStream
from oncall.core.printable import can_write, speaks_utf8, to_ascii


@pytest.mark.parametrize(
    ("environment", "speaks"),
    [
        ({}, True),
        ({"LANG": "en_US.UTF-8"}, True),
        ({"LANG": "C"}, False),
        ({"LANG": "en_US.UTF-8", "LC_ALL": "POSIX"}, False),
        ({"LANG": "C", "LC_ALL": "C.utf8"}, True),
    ],
)
def test_the_locale_tells_whether_there_is_utf8(environment: dict[str, str], speaks: bool) -> None:
    assert speaks_utf8(environment) is speaks


@pytest.mark.parametrize(
    ("encoding", "writes"),
    [("utf-8", True), ("iso-8859-1", False), ("no such encoding", False), (None, False)],
)
def test_what_is_drawn_cannot_be_written_in_every_encoding(
    encoding: str | None, writes: bool
) -> None:
    assert can_write(encoding) is writes


def test_each_sign_has_a_likeness_in_ascii_in_as_many_columns() -> None:
    assert to_ascii("✖ → • · ▶ ━─ ▁█ … 3 µs 日") == "x > * . > =- _# . 3 us ?"


def test_a_stream_that_cannot_write_a_sign_has_its_likeness() -> None:
    written = io.BytesIO()
    stream = SafeStream(io.TextIOWrapper(written, encoding="ascii", write_through=True))
    assert stream.write("✖ CRITICAL") == len("✖ CRITICAL")
    assert written.getvalue() == b"x CRITICAL"
