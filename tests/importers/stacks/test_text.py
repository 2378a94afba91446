"""Stacks as text, as people and tools write them."""

from __future__ import annotations

import json
import time

import pytest

from oncall.importers.stacks.documents import from_folded, from_json, is_folded
from oncall.importers.stacks.dump import Place, Process, frame, stack_rows
from oncall.importers.stacks.places import file_place, heading
from oncall.importers.stacks.text import parse

SPY = """Process {pid}: python train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread {pid} (idle): "MainThread"
    wait (threading.py:306)
    _try_get_data (torch/utils/data/dataloader.py:1011)
    <module> (train.py:9)
Thread 0x7F01 (active+gil): "Thread-1"
    poll (selectors.py:415)
"""


def only(text: str) -> Process:
    (process,) = parse(text).processes
    return process


def top(process: Process) -> str:
    assert process.main is not None
    return process.main.frames[0]


def test_py_spy() -> None:
    process = only(SPY.format(pid=4312))
    assert process.place == Place(pid=4312)
    assert top(process) == "wait at threading.py:306"
    assert [thread.state for thread in process.threads] == ["idle", "active+gil"]


def test_a_thread_that_imports_a_module_is_no_second_main_thread() -> None:
    importing = (
        "    <module> (mpmath/ctx_fp.py:12)\n"
        "    _find_and_load (<frozen importlib._bootstrap>:1176)\n"
        "    dump_when_asked (job.py:42)\n    Thread._bootstrap_inner (threading.py:1045)\n"
    )
    process = only(SPY.format(pid=4312) + importing)
    assert [thread.is_main for thread in process.threads] == [True, False]


def test_headings_say_whose_the_stacks_are() -> None:
    text = "".join(
        f"== {head}\n{SPY.format(pid=pid)}\n"
        for head, pid in (("rank 12", 1), ("gpu017 (rank 13)", 2), ("gpu-a-18", 3))
    )
    places = [process.place for process in parse(text).processes]
    assert places == [Place(12, None, 1), Place(13, "gpu017", 2), Place(None, "gpu-a-18", 3)]


def test_tail_and_clush_write_their_own_headings() -> None:
    text = f"==> rank7.txt <==\n{SPY.format(pid=1)}\n---------------\ngpu018\n---------------\n"
    places = [process.place for process in parse(text + SPY.format(pid=2)).processes]
    assert places == [Place(7, None, 1), Place(None, "gpu018", 2)]


def test_prefixes_of_interleaved_hosts_are_distinguished() -> None:
    lines = [SPY.format(pid=pid).splitlines() for pid in (5, 6)]
    mixed = [
        f"{host}: {line}"
        for pair in zip(*lines, strict=True)
        for host, line in zip(("gpu1", "gpu2"), pair, strict=True)
    ]
    found = {one.place.node: one.place.pid for one in parse("\n".join(mixed)).processes}
    assert found == {"gpu1": 5, "gpu2": 6}


def test_main_threads_that_were_folded_by_hand_share_their_frames() -> None:
    heads = "".join(f'Thread {pid} (active): "MainThread"\n' for pid in (11, 12))
    text = heads + "    all_reduce (x.py:1)\n"
    assert [(one.place.pid, top(one)) for one in parse(text).processes] == [
        (11, "all_reduce at x.py:1"),
        (12, "all_reduce at x.py:1"),
    ]


def test_native_frames_have_no_line_and_addresses_are_left_out() -> None:
    text = (
        'Thread 5 (idle): "MainThread"\n    0x7f0a (libc.so.6)\n'
        "    c10d::Work::wait (libtorch_cpu.so)\n"
        "    std::__invoke<void (*)()> (libtorch_cpu.so)\n    main (train.py:9)\n"
    )
    process = only(text)
    assert process.main is not None
    assert process.main.frames == (
        "c10d::Work::wait at libtorch_cpu.so",
        "std::__invoke<void (*)()> at libtorch_cpu.so",
        "main at train.py:9",
    )


def test_faulthandler_ends_with_the_main_thread() -> None:
    text = (
        "Timeout (0:05:00)!\nThread 0x00007f01 (most recent call first):\n"
        '  File "/usr/lib/python3.11/threading.py", line 327 in wait\n'
        "\nCurrent thread 0x00007f02 [python] (most recent call first):\n"
        '  File "/app/train.py", line 9 in augment\n  File "/app/train.py", line 20 in <module>\n'
    )
    assert top(only(text)) == "augment at /app/train.py:9"


def test_pages_of_torchs_debug_server() -> None:
    """What `/stacks` and `/pyspy_dump` of all ranks are written as (start_debug_server)."""
    text = (
        "=== Rank 0: http://gpu017:41023/handler/dump_traceback? ===\n"
        "Thread 0x00007f3a8e7fc640 (most recent call first):\n"
        '  File "/usr/lib/python3.12/threading.py", line 359 in wait\n\n'
        "Current thread 0x00007f3b2a7c1740 (most recent call first):\n"
        '  File "/opt/distributed_c10d.py", line 3005 in all_reduce\n'
        '  File "/work/train.py", line 60 in <module>\n'
        "=== Rank 1: http://gpu017:41024/handler/dump_traceback? ===\n"
        "Error: 503\n"
        "=== Rank 2: http://gpu018.site:41023/handler/pyspy_dump? ===\n" + SPY.format(pid=3002)
    )
    places = [(one.place, top(one)) for one in parse(text).processes]
    assert places == [
        (Place(0, "gpu017"), "all_reduce at /opt/distributed_c10d.py:3005"),
        (Place(2, "gpu018.site", 3002), "wait at threading.py:306"),
    ]


def test_gdb_py_bt() -> None:
    text = (
        "[New LWP 4313]\nThread 2 (Thread 0x7f01 (LWP 4313)):\n"
        "Unable to locate python frame\n\n"
        'Thread 1 (Thread 0x7f02 (LWP 4312) "python"):\nTraceback (most recent call first):\n'
        '  <built-in method acquire of lock>\n  File "/app/train.py", line 9, in get_batch\n'
        '    lock.acquire()\n  File "/app/train.py", line 20, in <module>\n    get_batch()\n'
    )
    process = only(text)
    assert process.place.pid == 4312
    assert top(process) == "get_batch at /app/train.py:9"


def test_gdb_backtraces_in_c() -> None:
    text = (
        "Thread 1 (Thread 0x7f02 (LWP 4312)):\n"
        "#0  0x00007f1 in pthread_cond_wait () from /lib/x86_64-linux-gnu/libc.so.6\n"
        "#1  0x00007f2 in ncclGroupEnd () from /usr/lib/libnccl.so.2\n"
    )
    process = only(text)
    assert process.main is not None
    assert process.main.frames[1] == "ncclGroupEnd at libnccl.so.2"


def test_pystack_prints_the_newest_frame_last() -> None:
    text = (
        "Traceback for thread 4312 (python) [Has the GIL] (most recent call last):\n"
        '    (Python) File "/app/train.py", line 20, in <module>\n        main()\n'
        '    (Python) File "/app/train.py", line 9, in main\n        sleep()\n'
    )
    process = only(text)
    assert (top(process), process.place.pid) == ("main at /app/train.py:9", 4312)


def test_prose_is_no_stack() -> None:
    parsed = parse("Thread safety (active) matters.\niteration 5: loss 2.0\n" * 20)
    assert (parsed.processes, parsed.share) == ([], 0.0)


def test_json_of_several_processes() -> None:
    def document(pid: int) -> str:
        frames = [{"name": "f", "filename": "/a/train.py", "short_filename": "train.py", "line": 3}]
        columns = {"pid": pid, "thread_id": 1, "thread_name": "MainThread", "os_thread_id": pid}
        return json.dumps(
            [columns | {"active": True, "owns_gil": True, "frames": frames}], indent=1
        )

    found = from_json(f"== rank 3\n{document(7)}\n== rank 4\n{document(8)}\n[broken")
    assert [one.place for one in found] == [Place(3, None, 7), Place(4, None, 8)]
    assert found[0].threads[0].state == "active+gil"
    assert top(found[0]) == "f at train.py:3"


def test_folded_stacks_give_the_one_that_was_sampled_most() -> None:
    text = (
        'process 7:"python train.py";<module> (train.py:9);step (train.py:4) 3\n'
        'process 7:"python train.py";<module> (train.py:9);load (train.py:5) 97\n'
    )
    assert is_folded(text)
    assert not is_folded("a; b 3\nnothing\n")
    (process,) = from_folded(text)
    assert (process.place.pid, top(process)) == (7, "load at train.py:5")


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("rank12.txt", Place(12)),
        ("pyspy_node48_a.txt", Place(None, "node48")),
        ("gpu017_rank_3_pid4312.txt", Place(3, "gpu017", 4312)),
        ("py-spy-4312.json", Place(None, None, 4312)),
        ("stacks.txt", Place()),
        ("node01_local_rank0.txt", Place(None, "node01")),
        ("llama-70b_rank2.txt", Place(2)),
        ("step-1200-stacks.txt", Place()),
        ("H100_rank2.txt", Place(2)),
        ("dump2.txt", Place()),
        ("10.0.0.7_4312.txt.gz", Place(None, "10.0.0.7", 4312)),
    ],
)
def test_names_of_files(name: str, place: Place) -> None:
    assert file_place(name) == place


def test_a_template_does_not_fill_the_screen() -> None:
    long = "pybind11::init<" + "std::vector<" * 40 + "int" + ">" * 41 + "::run"
    assert len(frame(long, "libx.so")) < 140


def test_local_variables_are_no_headings() -> None:
    text = (
        'Process 9: python\nThread 9 (idle): "MainThread"\n    all_reduce (x.py:1)\n'
        "        Arguments:\n            peer_rank: 7\n        Locals:\n"
        "            global_rank: 12\n            local_rank: 4\n    main (train.py:9)\n"
    )
    process = only(text)
    assert process.place == Place(pid=9)
    assert process.threads[0].frames == ("all_reduce at x.py:1", "main at train.py:9")


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("rank 3:", Place(3)),
        ("gpu017 rank 3 pid 4312", Place(3, "gpu017", 4312)),
        ("host: trinity rank 3", Place(3, "trinity")),
        ("== gpu017, 8 ranks ==", Place(None, "gpu017")),
        ("==> /tmp/llama-70b_rank2.txt <==", Place(2)),
        ("==> notes.txt <==", Place()),
        ("  rank 3", None),
        ("local_rank: 4", None),
        ("== local_rank 4", None),
        ("INFO rank: 3 loss=2.0", None),
        ("INFO rank: 3", None),
        ("--- H100 cluster, run v2 ---", None),
        ("== step-1200 ==", None),
    ],
)
def test_headings(line: str, place: Place | None) -> None:
    assert heading(line) == place


def test_numbers_without_end_are_no_processes() -> None:
    digits = "1" * 5_000
    assert parse(f"Process {digits}: python\n").processes == []
    assert parse(SPY.format(pid="9" * 23)).processes[0].place.pid is None
    folded = f"process {digits}:x;<module> (train.py:{digits}) 3\n"
    assert [one.place.pid for one in from_folded(folded)] == []


def test_a_long_line_keeps_its_file() -> None:
    text = f'Thread 5 (idle): "MainThread"\n    f<{"int, " * 2_000}> (libx.so)\n'
    (name,) = only(text).threads[0].frames
    assert name.endswith(" at libx.so")


@pytest.mark.parametrize(
    "text",
    [
        "== " + "-" * 200_000 + "x\n",
        "#0  f (" + " at x:" * 40_000 + "\n",
        'Thread 5 (idle): "MainThread"\n    ' + "<" * 200_000 + " (x.py:3)\n",
        "".join(f'Thread {n} (idle): "T"\n    f (x.py:1)\n' for n in range(20_000)),
    ],
)
def test_hostile_texts_take_no_long_time(text: str) -> None:
    began_s = time.monotonic()
    stack_rows(parse("Thread 1 (LWP 1):\n" + text).processes)
    assert time.monotonic() - began_s < 5


def test_damaged_documents_are_not_read_again_and_again() -> None:
    began_s = time.monotonic()
    text = "[\n" * 500 + "1,\n" * 1_000_000
    assert from_json(text) == []
    assert time.monotonic() - began_s < 3


def test_after_a_damaged_document_the_next_heading_counts() -> None:
    frames = [{"name": "f", "filename": "train.py", "line": 3}]
    thread = [{"pid": 8, "thread_name": "MainThread", "frames": frames}]
    found = from_json(f'== rank 3\n[\n {{"pid": \n== rank 4\n{json.dumps(thread, indent=1)}')
    assert [one.place for one in found] == [Place(4, None, 8)]


def test_threads_of_a_document_are_bounded() -> None:
    thread = '{"pid": 8, "thread_name": "MainThread", "frames": [{"name": "f"}]}'
    (process,) = from_json("[" + ",".join([thread] * 5_000) + "]")
    assert len(process.threads) == 4_096
