"""The wheel for aarch64 with its libraries, run by an aarch64 Python under qemu."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from oncall.core.errors import ExitCode
from oncall.native import Architecture

PROJECT = Path(__file__).parents[2]
ROOT = PROJECT / "build/bookworm-aarch64"  # an aarch64 Python and its C library, by the Makefile
PYTHON = "3.11"
# glibc 2.28 is the oldest that DuckDB's and numpy's wheels run on.
PLATFORMS = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_26", "manylinux_2_17")
RANKS = 2


def why_not() -> str:
    if Architecture.here() is Architecture.AARCH64:
        return "this machine is one: test_dist.py runs what is installed"
    if shutil.which("qemu-aarch64") is None or not ROOT.is_dir():
        return f"no qemu-aarch64 or no {ROOT}: `make elsewhere-packages` installs both"
    if not [*PROJECT.glob("dist/oncall_console-*_aarch64.whl")]:
        return "no dist/oncall_console-*_aarch64.whl: `make wheels` makes it"
    return ""


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
    pytest.mark.timeout(1800),  # emulated, and perhaps beside other work
]


@dataclass(frozen=True)
class Emulated:
    """What is installed, and the program that runs its Python. As `sys.executable` that program
    starts children, too: the kernel cannot run those of another architecture."""

    library: Path
    program: Path

    def oncall(self, *words: str | Path, status: tuple[ExitCode, ...] = (ExitCode.HEALTHY,)) -> str:
        command = [self.program, "-m", "oncall.cli.main", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode in status, done.stderr
        return done.stdout

    @property
    def native(self) -> Path:
        return self.library / "oncall/_native"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Emulated:
    folder = tmp_path_factory.mktemp("aarch64")
    library, program = folder / "lib", folder / "python"
    (wheel,) = PROJECT.glob("dist/oncall_console-*_aarch64.whl")
    platforms = [f"--platform={platform}_aarch64" for platform in PLATFORMS]
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    install += ["--target", library, "--only-binary=:all:", f"--python-version={PYTHON}"]
    subprocess.run([*install, *platforms, wheel], check=True)
    if sys.version_info[:2] == (3, 11):  # its bytecode is the same, and made faster
        compile_all = [sys.executable, "-m", "compileall", "-q", library, ROOT / "usr/lib"]
        subprocess.run(compile_all, check=False, stdout=subprocess.DEVNULL)
    program.write_text(
        f"#!/bin/sh\nexport PYTHONHOME={ROOT}/usr PYTHONPATH={library}\n"
        f'exec qemu-aarch64 -0 {program} -L {ROOT} {ROOT}/usr/bin/python{PYTHON} "$@"\n'
    )
    program.chmod(0o755)
    return Emulated(library, program)


def test_the_command_line(installed: Emulated) -> None:
    assert installed.oncall("--version").startswith("oncall ")
    hooks = Path(installed.oncall("hooks", "path").strip())
    assert hooks == installed.native / "aarch64/liboncall_hooks.so"


def test_rules_are_checked_in_a_process_of_their_own(installed: Emulated) -> None:
    assert "no errors" in installed.oncall("rules", "check")


def test_a_log_is_diagnosed(installed: Emulated) -> None:
    log = PROJECT / "fixtures/logs/slurm-4711.out"
    report = installed.oncall("diagnose", log, "--format", "json", status=(ExitCode.FINDING,))
    found = json.loads(report)
    assert [one["verdict"] for one in found["findings"]][:1] == ["FIRST_ERROR"]


def test_a_node_records_a_job_and_answers(installed: Emulated, tmp_path: Path) -> None:
    places = ("--data-dir", tmp_path / "data", "--run-dir", tmp_path / "run")
    config = tmp_path / "collect.toml"
    config.write_text('sources = ["rings"]\n')
    ranks = [start_rank(installed, tmp_path, rank) for rank in range(RANKS)]
    try:
        wait_for_step(3, tmp_path / "rank0.log", ranks)
        installed.oncall("collect", "--once", "--config", config, *places)
        hello = json.loads(installed.oncall("node", "query", '{"ask":"hello"}', *places))
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert hello["end"]["jobs"]["arm"]["ranks"] == [*range(RANKS)]
    # How many steps were recorded, and with them whether health shows, depends on the machine.
    sound = (ExitCode.HEALTHY, ExitCode.TOO_LITTLE_COVERAGE)
    report = installed.oncall("diagnose", tmp_path / "data", "--format", "json", status=sound)
    assert json.loads(report)["coverage"]["ranks_seen"] == RANKS


def start_rank(installed: Emulated, folder: Path, rank: int) -> subprocess.Popen[bytes]:
    """A rank of the stand-in's job under the hooks, both of the wheel."""
    hooks, standin = installed.native / "aarch64/liboncall_hooks.so", installed.native / "standin"
    environment = {
        "LD_PRELOAD": hooks,
        "NCCL_PROFILER_PLUGIN": hooks,
        "LD_LIBRARY_PATH": standin,
        "ONCALL_RUN_DIR": folder / "run",
        "ONCALL_RUN_DIR_ON_DISK": 1,
        "ONCALL_JOB": "arm",
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": RANKS,
    }
    (folder / "run").mkdir(exist_ok=True)
    # By qemu's -E, as qemu itself must not preload them.
    given = [word for name, value in environment.items() for word in ("-E", f"{name}={value}")]
    train = [standin / "train", "--unique-id-file", folder / "id", "--dp", str(RANKS)]
    with (folder / f"rank{rank}.log").open("wb") as log:
        return subprocess.Popen(
            ["qemu-aarch64", "-L", ROOT, *given, *train, "--compute-us", "50000"],
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def wait_for_step(step: int, log: Path, ranks: Sequence[subprocess.Popen[bytes]]) -> None:
    deadline = time.monotonic() + 300
    while not re.search(rf"^step {step}:", log.read_text(), re.MULTILINE):
        assert all(rank.poll() is None for rank in ranks), log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.5)
