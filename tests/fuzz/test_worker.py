"""What breaks a target is noticed, saved and passed over; what does not is counted."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from . import worker
from .registry import Target, targets


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(worker, "FOUND", tmp_path)
    monkeypatch.setattr(worker, "MOST_S", 0.3)
    monkeypatch.setattr(worker, "MOST_BYTES", 600 * 10**6)
    return tmp_path


def _fuzz(run: Callable[[bytes], object], inputs: int, monkeypatch: pytest.MonkeyPatch) -> Result:
    target = Target("some", run, lambda seed: str(seed).encode())
    monkeypatch.setattr(worker, "targets", lambda: {"some": target})
    return worker.fuzz("some", 0, inputs, time.monotonic() + 60, set())


Result = worker.Result


def _raises() -> None:
    raise KeyError("x")


def _prints() -> None:
    os.write(1, b"hello")


def _dies() -> None:
    os.kill(os.getpid(), 9)


def _spins() -> None:
    while True:
        pass


def _grows() -> None:
    held = bytearray(b"x") * (900 * 10**6)
    time.sleep(5)
    del held


@pytest.mark.parametrize(
    ("harm", "how"),
    [
        (_raises, "KeyError"),
        (_prints, "printed b'hello'"),
        (_dies, "died (-9)"),
        (_spins, "of CPU time"),
        pytest.param(_grows, "of memory", marks=pytest.mark.slow),  # by the clock
    ],
)
def test_harm_is_noticed_and_the_rest_goes_on(
    found: Path, monkeypatch: pytest.MonkeyPatch, harm: Callable[[], None], how: str
) -> None:
    result = _fuzz(lambda data: harm() if data == b"3" else None, 6, monkeypatch)
    assert result.inputs == 6
    (failure,) = result.failures
    assert (failure.seed, how in failure.how) == (3, True), failure
    assert (found / "some" / "seed-3.bin").read_bytes() == b"3"


def test_the_same_defect_is_saved_once(found: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = _fuzz(lambda data: _raises() if data in (b"2", b"4") else None, 6, monkeypatch)
    assert (result.inputs, len(result.failures)) == (6, 1)
    assert len(list(found.glob("*/*.bin"))) == 1


def test_all_targets_have_names_of_their_own() -> None:
    assert len(targets()) > 20
