"""A run folder in which no ring can be made is said, by the collector and by doctor."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oncall.node.rings.unrecorded import RING_BYTES, why_no_ring


class Room:
    """A file system as `statvfs` tells it."""

    f_flag = 0
    f_frsize = 4096
    f_bavail = 10**6


def test_room_is_reported_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert why_no_ring(tmp_path) is None
    assert "No such file" in (why_no_ring(tmp_path / "nowhere") or "")
    room = Room()
    monkeypatch.setattr(os, "statvfs", lambda _: room)
    assert why_no_ring(tmp_path) is None
    room.f_bavail = RING_BYTES // 4096 - 1
    assert "full" in (why_no_ring(tmp_path) or "")
    room.f_flag = os.ST_RDONLY
    assert "read-only" in (why_no_ring(tmp_path) or "")


def test_a_ring_takes_as_much_as_is_said(recording: Callable[..., Any]) -> None:
    assert recording().ring.stat().st_size == RING_BYTES
