"""The job itself: what it computes is the same to the bit with hooks, without, and in trouble."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from oncall.native import NotBuilt, hooks_library, standin_folder

from . import REPOSITORY
from .disks import small_disk
from .outcome import Outcome, Skipped

_RANKS = 4
_HOOKS = REPOSITORY / "tests" / "hooks"
_LIMITS = (_HOOKS / "test_limits.py", _HOOKS / "test_same_results.py")


def results(folder: Path) -> Outcome:
    """Four ranks compute with every collective; a digest of all results is compared."""
    hooked = _hooked()
    plain = _compute(folder / "plain", {})
    runs = {
        "hooks": hooked | {"ONCALL_RUN_DIR": str(folder / "run")},
        "a ring that overflows": hooked
        | {"ONCALL_RUN_DIR": str(folder / "small"), "ONCALL_RING_RECORDS": "64"},
        "no run directory": hooked | {"ONCALL_RUN_DIR": "/proc/none"},
    }
    failures = [
        f"with {what}: {found}, and {plain} without hooks"
        for what, environment in runs.items()
        if (found := _compute(folder / what.replace(" ", "-"), environment)) != plain
    ]
    rings = len(list((folder / "run" / "rings").glob("*.ring")))
    if rings != _RANKS:
        failures.append(f"{rings} rings of {_RANKS} ranks: the hooks did not record")
    note = f"{len(set(plain))} ranks' results, identical to the bit"
    return Outcome("job with and without hooks", len(runs), note=note, failures=tuple(failures))


def full_ring_directory(folder: Path) -> Outcome:
    """Rings do not fit where they belong: the job computes the same, unrecorded."""
    plain = _compute(folder / "plain", {})
    with small_disk(folder / "disk", "size=256k") as disk:
        found = _compute(folder / "full", _hooked() | {"ONCALL_RUN_DIR": str(disk)})
    wrong = () if found == plain else (f"{found}, and {plain} without hooks",)
    return Outcome("ring directory full", 1, failures=wrong)


def limits(folder: Path) -> Outcome:  # noqa: ARG001 - the tests have folders of their own
    """Limits, filters and signals of the job: the tests of the hooks that have all of them."""
    asked = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-m", "slow or not slow"]
    asked += map(str, _LIMITS)
    done = subprocess.run(asked, capture_output=True, text=True, cwd=REPOSITORY, check=False)
    last = done.stdout.strip().splitlines()[-1:]
    failures = () if done.returncode == 0 else tuple(last)
    return Outcome("job under limits", 1, note=" ".join(last), failures=failures)


def _hooked() -> dict[str, str]:
    try:
        hooks = str(hooks_library())
    except NotBuilt as error:
        raise Skipped(str(error)) from error
    return {"LD_PRELOAD": hooks, "NCCL_PROFILER_PLUGIN": hooks, "ONCALL_JOB": "torture"}


def _compute(folder: Path, environment: Mapping[str, str]) -> tuple[str, ...]:
    """What each rank prints: a digest of every result of every step."""
    folder.mkdir()
    try:
        library = standin_folder() / "libnccl.so.2"
    except NotBuilt as error:
        raise Skipped(str(error)) from error
    program = Path(__file__).with_name("computing_rank.py")
    ranks = [
        subprocess.Popen(
            [sys.executable, str(program), str(library), str(folder / "id")],
            env=os.environ
            | {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(_RANKS)}
            | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(_RANKS)
    ]
    try:
        ended = [rank.communicate(timeout=120) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    failed = [
        reported[1][-300:] for reported, rank in zip(ended, ranks, strict=True) if rank.returncode
    ]
    assert not failed, failed
    return tuple(reported[0].strip() for reported in ended)
