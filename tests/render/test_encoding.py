"""When pictures are of ASCII alone."""

from __future__ import annotations

import pytest

from oncall.core.printable import speaks_utf8
from oncall.render.text.lines import is_plain


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
    ("encoding", "environment", "plain"),
    [
        ("utf-8", {}, False),
        ("utf-8", {"LC_ALL": "C"}, True),
        ("iso-8859-1", {"LANG": "en_US.UTF-8"}, True),
        ("no such encoding", {}, True),
        (None, {}, True),
    ],
)
def test_pictures_are_of_what_can_be_written_and_read(
    encoding: str | None, environment: dict[str, str], plain: bool
) -> None:
    assert is_plain(encoding, environment) is plain
