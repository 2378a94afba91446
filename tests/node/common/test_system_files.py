"""What small files of the system say, and what they may hold instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncall.node.common.system_files import read_counts, read_list, read_number, whole_number

SWITCH = "sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0"


@pytest.mark.parametrize("text", ["", "x", "1.5", "0x10", "٣", "-", "1 2", "\0"])
def test_what_is_no_number_is_none(tmp_path: Path, text: str) -> None:
    assert whole_number(text) is None
    (tmp_path / "file").write_text(text)
    assert read_number(tmp_path / "file") is None


def test_files_that_are_gone_are_none(tmp_path: Path) -> None:
    assert read_number(tmp_path / "absent") is None
    assert read_number(tmp_path) is None
    assert read_number(Path("a\0b")) is None
    assert read_counts(tmp_path / "absent") == {}


def test_counts_by_name(tmp_path: Path) -> None:
    file = tmp_path / "meminfo"
    file.write_bytes(b"MemTotal:  16 kB\nnr_throttled 3\nmax\nodd: x\n\xff\xfe 4\n")
    assert read_counts(file) == {"MemTotal": 16, "nr_throttled": 3, "��": 4}


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("0-3,8,10-11", {0, 1, 2, 3, 8, 10, 11}),
        ("0", {0}),
        (None, set()),
        ("", set()),
        ("3-1", set()),
        ("0-99999999999", set()),
        ("0,x", set()),
    ],
)
def test_lists(text: str | None, numbers: set[int]) -> None:
    assert read_list(text) == numbers
