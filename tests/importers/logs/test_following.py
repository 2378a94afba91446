"""A growing log: what was seen of it stays, whatever becomes of the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncall.core.errors import BadInput
from oncall.importers.logs.following import followed


def test_what_is_added_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_text("one\n")
    with followed(path) as log:
        assert log.read_on() and log.copy.read_text() == "one\n"
        assert not log.read_on()
        with path.open("a") as file:
            file.write("two\n")
        assert log.read_on() and log.copy.read_text() == "one\ntwo\n"
        assert log.copy.stat().st_mtime_ns == path.stat().st_mtime_ns
    assert not log.copy.exists()


def test_truncated_and_rotated_logs_go_on(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_text("one long line\n")
    with followed(path) as log:
        log.read_on()
        path.write_text("two\n")
        assert log.read_on()
        path.rename(tmp_path / "job.log.1")
        assert not log.read_on()  # gone for the moment
        path.write_text("three, and longer than what was there\n")
        assert log.read_on()
        kept = log.copy.read_text()
    assert kept == "one long line\ntwo\nthree, and longer than what was there\n"


def test_a_job_is_called_after_the_logs_folder(tmp_path: Path) -> None:
    path = tmp_path / "llama" / "job.log"
    path.parent.mkdir()
    path.touch()
    with followed(path) as log:
        assert log.copy.parts[-2:] == ("llama", "job.log")


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="No such file"), followed(tmp_path / "none.log"):
        pass
