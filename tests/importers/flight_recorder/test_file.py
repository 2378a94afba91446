"""Files that lie, end early or attack: each becomes one reason, never an exception or a call."""

from __future__ import annotations

import pickle
import struct
from pathlib import Path

import pytest

from oncall.core.errors import Unreadable
from oncall.importers.bounds import DEFAULT
from oncall.importers.flight_recorder.file import load_dump, looks_like_dump


class _Evil:
    def __reduce__(self):
        return (Path.touch, (Path("owned"),))


HOSTILE = {
    "a global": (b"\x80\x02cos\nsystem\n.", "asks for os.system"),
    "a stack global": (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "asks for os.system"),
    "an instance": (b"\x80\x02(ios\nsystem\n.", "asks for os.system"),
    "a reduce": (pickle.dumps({"entries": [_Evil()]}), "asks for"),
    "a persistent id": (b"\x80\x02Pid\n.", "persistent object"),
    "a binary persistent id": (b"\x80\x02K\x01Q.", "persistent object"),
    "an extension code": (b"\x80\x02\x82\x01.", "damaged"),
    "a memo of 2**31 slots": (b"\x80\x02}r" + struct.pack("<I", 2**31 - 1) + b".", "memory"),
    "a string of 2**60 bytes": (
        b"\x80\x04\x8d" + struct.pack("<Q", 2**60) + b"x",
        "memory|damaged",
    ),
    "nested JSON": (b"[" * 1_000_000, "too deeply"),
    "nested tuples": (
        b"\x80\x02" + b"(" * 100_000 + b"t" * 100_000 + b".",
        "not a Flight Recorder",
    ),
    "an open stack": (b"\x80\x02" + b"(" * 100_000, "damaged"),
    "a list": (pickle.dumps([1, 2, 3]), "not a Flight Recorder dump"),
    "another dictionary": (b'{"loss": 2.5}', "not a Flight Recorder dump"),
    "entries that are not a list": (b'{"entries": {"0": 1}}', "not a list"),
    "binary junk": (bytes(range(255, 0, -1)) * 10, "neither a pickle nor JSON"),
    "bad UTF-8": (b'{"entries": "\xff"}', "damaged"),
    "nothing": (b"", "empty file"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_with_a_reason(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content, reason = HOSTILE[name]
    path = tmp_path / "fr_trace_rank_0"
    path.write_bytes(content)
    with pytest.raises(Unreadable, match=reason):
        load_dump(path)
    assert not (tmp_path / "owned").exists()


def test_entries_by_shared_reference_cannot_outnumber_bytes(tmp_path):
    path = tmp_path / "rank_0"
    one = [{"a": 1}] * 100_000  # pickled as two bytes an entry
    path.write_bytes(pickle.dumps({"entries": one}, protocol=2))
    with pytest.raises(Unreadable, match="not a list of operations"):
        load_dump(path)


@pytest.mark.parametrize("suffix", ["", ".json"])
def test_truncated_at_every_hundred_bytes(fr, suffix, tmp_path):
    whole = fr.write(tmp_path, 0, fr.dump([fr.entry(n, n + 1) for n in range(5)]), suffix)
    content = whole.read_bytes()
    for length in range(0, len(content), 100):
        whole.write_bytes(content[:length])
        with pytest.raises(Unreadable, match=r"truncated|empty"):
            load_dump(whole)
    whole.write_bytes(content)
    assert len(load_dump(whole).rows) == 5


def test_too_large_a_file_is_not_opened(tmp_path):
    path = tmp_path / "rank_0"
    with path.open("wb") as file:
        file.truncate(DEFAULT.document_bytes + 1)  # sparse: takes no space
    with pytest.raises(Unreadable, match="larger than 512 MiB"):
        load_dump(path)


def test_content_decides_what_a_dump_is(fr, tmp_path):
    pickled = fr.write(tmp_path, 0, fr.dump([])).read_bytes()
    text = fr.write(tmp_path, 1, fr.dump([]), ".json").read_bytes()
    assert looks_like_dump(pickled)
    assert looks_like_dump(text)
    assert not looks_like_dump(pickle.dumps({"weights": [1.0]}))
    assert not looks_like_dump(b'{"nccl_version": "2.28", "communicators": []}')
    assert not looks_like_dump(b"")
