"""A user who leaves what they like in the folder of rings: the others are collected."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ring_writer import RingWriter, operations

from oncall.node.agent.agent import Agent
from oncall.node.rings import shared_files
from oncall.node.rings.ring_layout import HEADER
from oncall.node.rings.unrecorded import open_to_all, who_is_not_recorded

MakeAgent = Callable[..., Agent]
Rows = Callable[[str], list[tuple[Any, ...]]]
COMM = 0xC0FFEE
# A reader steps as quickly as it can while another process cuts the file short and mends it.
CUT_WHILE_READ = """
import os, sys, threading
from oncall.node.rings.ring import RingReader
from oncall.core.errors import BadInput
path = sys.argv[1]
with open(path, "rb") as file: whole = file.read()
done = threading.Event()
def cut():
    fd = os.open(path, os.O_RDWR)
    for _ in range(2000):
        os.ftruncate(fd, 0)
        os.pwrite(fd, whole, 0)
    done.set()
pid = os.fork()
if pid == 0:
    cut()
    os._exit(0)
refused = 0
while os.waitpid(pid, os.WNOHANG)[0] == 0:
    try:
        from pathlib import Path
        with RingReader.open(Path(path)) as ring:
            ring.drain(); ring.communicators(); ring.transfers()
    except BadInput:
        refused += 1
assert refused
print("alive")
"""


def test_a_ring_that_is_cut_short_again_and_again_kills_no_reader(rings: Path) -> None:
    ring = RingWriter(rings, records=64)
    ring.communicator(0, COMM)
    ring.append(operations(1, 5))
    done = subprocess.run(
        [sys.executable, "-c", CUT_WHILE_READ, str(ring.path)], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr


def test_links_fifos_and_folders_cost_nothing(
    rings: Path, make_agent: MakeAgent, sealed_rows: Rows
) -> None:
    ring = RingWriter(rings)
    ring.communicator(0, COMM)
    ring.append(operations(1, 7))
    os.mkfifo(rings / "1-1.ring")
    (rings / "2-2.ring").symlink_to("/etc/passwd")
    (rings / "3-3.ring").mkdir()
    with (rings / "4-4.ring").open("wb") as huge:
        huge.truncate(2**40)
    agent = make_agent()
    agent.step()
    assert len(agent.problems) == 4
    agent.finish()
    assert sealed_rows("SELECT count(*) FROM ops") == [(7,)]


@pytest.mark.parametrize(
    "counters",
    [
        {"dropped": 2**63},
        {"dropped": 2**64 - 1, "lost_operations": 2**64 - 1},
        {"lost_communicators": 2**62, "lost_transfers": 2**62},
        {"tail": 2**63, "head": 2**63},
        {"tail": 2**64 - 1, "head": 3},
    ],
    ids=lambda counters: " ".join(counters),
)
def test_one_forged_ring_silences_no_account(
    counters: dict[str, int], rings: Path, make_agent: MakeAgent, sealed_rows: Rows
) -> None:
    sound, forged, lossy = (RingWriter(rings) for _ in range(3))
    for ring in (sound, forged, lossy):
        ring.communicator(0, COMM)
    sound.append(operations(1, 7))
    forge(forged.path, counters)
    forge(lossy.path, {"dropped": 5})
    agent = make_agent()
    agent.step()
    (problem,) = agent.problems
    assert str(forged.path) in problem and "damaged" in problem
    agent.finish()
    assert sealed_rows("SELECT count(*) FROM ops") == [(7,)]
    ((dropped,),) = sealed_rows("SELECT max(dropped) FROM collectors WHERE source = 'rings'")
    assert dropped == 5 or dropped >= 2**48


def forge(path: Path, counters: dict[str, int]) -> None:
    """Write these counters into the header of a ring."""
    with path.open("r+b") as file:
        for name, value in counters.items():
            assert HEADER.fields is not None
            file.seek(HEADER.fields[name][1])
            file.write(value.to_bytes(8, sys.byteorder))


def test_one_user_does_not_take_all_the_room(
    rings: Path, make_agent: MakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_files, "_MOST_OF_A_USER", 2)
    made = [RingWriter(rings, records=64) for _ in range(4)]
    for ring in made:
        ring.communicator(0, COMM)
    agent = make_agent()
    agent.step()
    (problem,) = agent.problems
    assert f"user {os.geteuid()} has over 2 files" in problem
    agent.finish()


def test_a_file_put_in_the_place_of_a_ring_is_not_taken_away(
    rings: Path, make_agent: MakeAgent
) -> None:
    ring = RingWriter(rings)
    ring.communicator(0, COMM)
    agent = make_agent(ring_grace_ns=0)
    agent.step()
    ring.close()
    other = rings / "other"
    other.write_bytes(b"somebody's")
    other.rename(ring.path)
    for _ in range(3):
        agent._sources[0]._processes._look_at_ns = 0  # type: ignore[attr-defined]
        agent.step()
    assert ring.path.read_bytes() == b"somebody's"
    agent.finish()


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's folder needs root")
def test_a_folder_that_a_job_made_first_is_opened_to_all(tmp_path: Path) -> None:
    folder = tmp_path / "rings"
    folder.mkdir(mode=0o755)
    os.chown(folder, 1234, 1234)
    assert "of user 1234 with mode 0755" in (who_is_not_recorded(folder) or "")
    assert open_to_all(folder)
    state = folder.stat()
    assert (state.st_uid, stat.S_IMODE(state.st_mode)) == (0, 0o1777)
    assert who_is_not_recorded(folder) is None
    assert not open_to_all(folder)


def test_a_link_in_place_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "rings").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError):
        open_to_all(tmp_path / "rings")
    assert stat.S_IMODE((tmp_path / "elsewhere").stat().st_mode) == 0o700
