"""Whatever lies in a file of the ring's name: a message that names it, never a crash."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oncall.core.errors import BadInput
from oncall.node.rings.ring import RingReader
from oncall.node.rings.ring_layout import HEADER
from oncall.node.store.wire import Request, parse_request

Recording = Callable[..., Any]  # tests/conftest.py: starts a process that records

_FORMATS = {1: "B", 2: "H", 4: "I", 8: "Q"}


@pytest.fixture
def ring_bytes(recording: Recording) -> bytes:
    """A sound ring of a dead process, with records, boards and transfers."""
    process = recording(ONCALL_RING_RECORDS="64")
    for command in ("communicator 8", "transfer 3", "write 50", "begin", "write 5"):
        process.tell(command)
    path: Path = process.ring
    process.kill()
    return path.read_bytes()


def read_everything(path: Path) -> int:
    """All that a collector reads of a ring; the records found."""
    with RingReader.open(path) as ring:
        found = len(ring.drain())
        ring.communicators()
        ring.transfers()
        assert ring.header.record_slots
        assert ring.dropped >= 0
        assert not ring.alive or ring.pid_here is not None
        return found


def patched(sound: bytes, field: str, value: int) -> bytes:
    """The ring with another value in a field of its header."""
    assert HEADER.fields is not None
    kind, offset, *_ = HEADER.fields[field]
    wrong = bytearray(sound)
    struct.pack_into(f"<{_FORMATS[kind.itemsize]}", wrong, offset, value)
    return bytes(wrong)


def test_the_sound_ring_is_read(ring_bytes: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.ring"
    path.write_bytes(ring_bytes)
    assert read_everything(path) == 55


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("magic", 7, "not a ring"),
        ("layout_version", 2, "a ring of layout 2, and this oncall reads layout 1"),
        ("layout_version", 0, "of layout 0"),
        ("header_bytes", 512, "header_bytes is 512, not 4096"),
        ("record_bytes", 0, "record_bytes is 0, not 64"),
        ("communicator_bytes", 1, "communicator_bytes is 1"),
        ("transfer_bytes", 1, "transfer_bytes is 1"),
        ("record_slots", 0, "0 slots of records"),
        ("record_slots", 63, "63 records is not a power of two"),
        ("record_slots", 1 << 31, "slots of records"),
        ("record_slots", 1 << 20, "truncated: records end at byte"),
        ("communicator_slots", 0xFFFFFFFF, "slots of communicators"),
        ("transfer_slots", 0xFFFFFFFF, "slots of transfers"),
        ("records_at", 1 << 63, "truncated"),
        ("records_at", 0, "records at byte 0"),
        ("transfers_at", 4097, "transfers at byte 4097"),
        ("communicators_at", 64, "communicators at byte 64"),
        ("tail", 57, "56 records written, 57 read"),
        ("tail", (1 << 64) - 1, "records written"),
        ("head", 1000, "1000 records written, 0 read"),
        ("rank", 0x7FFFFFFF, "forged or damaged.* rank 2147483647"),
        ("world_size", 0x7FFFFFFF, "forged or damaged: a world of 2147483647 ranks"),
    ],
)
def test_a_wrong_header_is_named(
    ring_bytes: bytes, tmp_path: Path, field: str, value: int, message: str
) -> None:
    path = tmp_path / "wrong.ring"
    path.write_bytes(patched(ring_bytes, field, value))
    with pytest.raises(BadInput, match=message) as caught:
        read_everything(path)
    assert caught.value.place == str(path)


@given(data=st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_change_is_read_or_refused(ring_bytes: bytes, tmp_path: Path, data: Any) -> None:
    """Bytes changed anywhere, above all in the header, and the file cut anywhere."""
    wrong = bytearray(ring_bytes)
    place = st.one_of(st.integers(0, 1700), st.integers(0, len(wrong) - 1))
    changes = data.draw(st.dictionaries(place, st.integers(0, 255), max_size=8))
    for at, value in changes.items():
        wrong[at] = value
    length = data.draw(st.one_of(st.just(len(wrong)), st.integers(0, len(wrong))))
    path = tmp_path / "changed.ring"
    path.write_bytes(bytes(wrong[:length]))
    try:
        assert 0 <= read_everything(path) <= 64
    except BadInput as error:
        assert error.place == str(path)


@given(junk=st.binary(max_size=9000))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_junk_is_no_ring(tmp_path: Path, junk: bytes) -> None:
    path = tmp_path / "junk.ring"
    path.write_bytes(junk)
    with pytest.raises(BadInput, match="not a ring"):
        RingReader.open(path)


def test_every_truncation_is_refused(ring_bytes: bytes, tmp_path: Path) -> None:
    path = tmp_path / "short.ring"
    for length in range(0, len(ring_bytes), 4096):
        path.write_bytes(ring_bytes[:length])
        with pytest.raises(BadInput, match=r"truncated|not a ring"):
            RingReader.open(path)


@pytest.mark.parametrize("length", [0, 100, 4096, 600_000])
def test_a_ring_cut_short_under_its_reader(ring_bytes: bytes, tmp_path: Path, length: int) -> None:
    path = tmp_path / "cut.ring"
    path.write_bytes(ring_bytes)
    with RingReader.open(path) as ring:
        os.truncate(path, length)
        for read in (ring.drain, ring.communicators, ring.transfers, lambda: ring.header):
            try:
                read()
            except BadInput as error:
                assert "cut short" in error.problem or "truncated" in error.problem
        with pytest.raises(BadInput):
            ring.drain()


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.ring")
    (tmp_path / "link.ring").symlink_to(tmp_path / "fifo.ring")
    (tmp_path / "folder.ring").mkdir()
    for name, message in [
        ("fifo.ring", "not a file"),
        ("link.ring", "a link"),
        ("folder.ring", "Is a directory"),
        ("gone.ring", "No such file"),
    ]:
        with pytest.raises(BadInput, match=message):
            RingReader.open(tmp_path / name)


def test_a_job_can_be_asked_for_by_whatever_name_it_gave_itself(recording: Recording) -> None:
    name = 'it\'s "this";\n\x1b[31mred\x07 \u202e --job %s'
    with RingReader.open(recording(ONCALL_JOB=name).ring, consume=False) as ring:
        assert ring.header.job.isprintable()
        assert 'it\'s "this";' in ring.header.job
        assert parse_request(Request("digest", job=ring.header.job).line()).job == ring.header.job
