"""The verbs shim gets between a program and libibverbs, however the program looks for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oncall import native
from oncall.node.verbs.verbs_file import VerbsReader

Posting = Callable[..., Any]  # tests/conftest.py: starts a process that posts


def posted(path: Path) -> list[tuple[int, int]]:
    with VerbsReader.open(path, consume=False) as reader:
        return [(int(each["posted"]), int(each["completed"])) for each in reader.queue_pairs().rows]


@pytest.mark.parametrize("way", ["linked", "dlsym", "dlvsym"])
def test_preloaded(posting: Posting, way: str) -> None:
    process = posting(way, LD_PRELOAD=str(native.verbs_library()))
    process.tell("pair 7 8 64", "post 7 3 100", "poll")
    assert posted(process.file) == [(3, 3)]


def test_as_the_library_that_nccl_is_reported_of(posting: Posting) -> None:
    """NCCL_IBVERBS_LIB: what is not ours is found in the library behind it."""
    process = posting(f"library {native.ibverbs_library()}")
    process.tell("pair 7 8 64", "post 7 3 100", "poll")
    assert posted(process.file) == [(3, 3)]


def test_first_on_the_library_path(posting: Posting) -> None:
    """NCCL older than 2.30.3 opens `libibverbs.so`, wherever that is found first."""
    process = posting("library libibverbs.so", path=native.ibverbs_library().parent)
    process.tell("pair 7 8 64", "post 7 3 100", "poll")
    assert posted(process.file) == [(3, 3)]


def test_both_at_once_count_once(posting: Posting) -> None:
    process = posting(f"library {native.ibverbs_library()}", LD_PRELOAD=str(native.verbs_library()))
    process.tell("pair 7 8 64", "post 7 3 100", "poll")
    assert posted(process.file) == [(3, 3)]


def test_beside_the_other_hooks(posting: Posting) -> None:
    both = f"{native.hooks_library()}:{native.verbs_library()}"
    process = posting("dlvsym", LD_PRELOAD=both)
    process.tell("pair 7 8 64", "post 7 3 100", "poll")
    assert posted(process.file) == [(3, 3)]


def test_who_looks_behind_itself_still_does(posting: Posting) -> None:
    """RTLD_NEXT is answered by who called, which must not seem to be us."""
    process = posting("linked", LD_PRELOAD=str(native.verbs_library()))
    assert process.tell("next malloc", "next no_such_function") == [1, 0]


@pytest.mark.parametrize("environment", [{"ONCALL_DISABLE": "1"}, {"ONCALL_RUN_DIR": "/dev/null"}])
def test_without_a_place_to_write_the_program_runs_on(
    posting: Posting, environment: dict[str, str]
) -> None:
    process = posting("linked", LD_PRELOAD=str(native.verbs_library()), **environment)
    assert process.tell("pair 7 8 64", "post 7 3 100", "poll") == [0, 0, 1]
    assert process.files == []
    assert process.leave() == ""


def test_a_program_without_rdma_is_left_alone(tmp_path: Path) -> None:
    import os
    import subprocess

    columns = {
        **os.environ,
        "LD_PRELOAD": str(native.verbs_library()),
        "ONCALL_RUN_DIR": str(tmp_path),
    }
    done = subprocess.run(["sh", "-c", "echo hello"], env=columns, capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"hello\n", b"")
    assert list(tmp_path.iterdir()) == []
