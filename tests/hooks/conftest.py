"""A program that calls NCCL under the hooks, the NCCLs it may be given, and what was recorded."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from oncall import native
from oncall.node.rings.ring import RingReader
from oncall.node.rings.ring_layout import (
    DESCRIBED,
    ENDED,
    ENQUEUED,
    ENTERED,
    RECORD,
    TRANSFER_OVER,
    RecordKind,
)

_PAYLOADS = {
    RecordKind.ENTERED: ENTERED,
    RecordKind.ENQUEUED: ENQUEUED,
    RecordKind.DESCRIBED: DESCRIBED,
    RecordKind.ENDED: ENDED,
    RecordKind.TRANSFER: TRANSFER_OVER,
}


class Recorded:
    """What a process recorded into one ring, read as often as a test likes: none is consumed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def records(self, kind: RecordKind) -> NDArray[np.void]:
        """All records of one kind, in order, with that kind's fields."""
        with RingReader.open(self.path, consume=False) as ring:
            head, start = ring.head, ring.header.records_at
        everything: NDArray[np.void] = np.fromfile(self.path, RECORD, count=head, offset=start)
        chosen: NDArray[np.void] = everything[everything["kind"] == kind]
        return chosen.view(_PAYLOADS.get(kind, RECORD))

    def communicators(self) -> NDArray[np.void]:
        """The boards of all communicators, in the order they were made."""
        with RingReader.open(self.path, consume=False) as ring:
            rows: NDArray[np.void] = ring.communicators().rows
        return rows


@pytest.fixture
def recorded() -> Callable[[Path], Recorded]:
    """Reads a ring."""
    return Recorded


_HERE = Path(__file__).parent
_INCLUDE = f"-I{_HERE.parents[1] / 'hooks'}"


def _compile(*arguments: str | Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler: `make test` installs one")
    subprocess.run([compiler, "-std=gnu11", "-O2", _INCLUDE, *arguments], check=True)


@pytest.fixture(scope="session")
def fake_nccl(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Builds tests/hooks/fake_nccl.c as "older" or "newer" libnccl.so.2; its folder."""
    root = tmp_path_factory.mktemp("fake-nccl")

    def build(age: str) -> Path:
        folder = root / age
        if not folder.exists():
            folder.mkdir()
            define = ["-DNEWER"] if age == "newer" else []
            library = folder / "libnccl.so.2"
            shared = ("-shared", "-fPIC", "-Wl,-soname,libnccl.so.2")
            _compile(*define, *shared, _HERE / "fake_nccl.c", "-o", library)
        return folder

    return build


@pytest.fixture(scope="session")
def nccl_program(
    fake_nccl: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """tests/hooks/nccl_program.c, linked with libnccl.so.2, whichever is found at run time."""
    program = tmp_path_factory.mktemp("program") / "nccl_program"
    library = fake_nccl("newer") / "libnccl.so.2"
    # Bound at the first call, as a library lacks some of what the program could call.
    _compile(_HERE / "nccl_program.c", library, "-ldl", "-Wl,-z,lazy", "-o", program)
    return program


class CallingProcess:
    """A process that calls what it is asked to, of the NCCL in `nccl`, under the hooks."""

    def __init__(
        self,
        command: Sequence[str | Path],
        nccl: Path,
        run_dir: Path,
        hooked: bool,
        limit: Callable[[], object] | None,
        stderr: int,
        environment: dict[str, str],
    ) -> None:
        settings = {"ONCALL_RUN_DIR": str(run_dir), "LD_LIBRARY_PATH": str(nccl)}
        if hooked:
            settings["LD_PRELOAD"] = str(native.hooks_library())
        self.run_dir = run_dir
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env={**os.environ, **settings, **environment},
            preexec_fn=limit,
        )

    @property
    def rings(self) -> list[Path]:
        """What it records into: one file, or none."""
        return sorted(self.run_dir.glob(f"rings/{self.process.pid}-*.ring"))

    @property
    def notes(self) -> list[str]:
        """Why it is not recorded, as it left word of it."""
        found = self.run_dir.glob(f"rings/{self.process.pid}-*.unrecorded")
        return [str(path.readlink()) for path in found]

    @property
    def recorded(self) -> Recorded:
        """What it recorded so far."""
        [path] = self.rings
        return Recorded(path)

    def calls(self, *commands: str) -> list[int]:
        """Have these calls made; what each returned."""
        assert self.process.stdin is not None and self.process.stdout is not None
        results = []
        for command in commands:
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()
            results.append(int(self.process.stdout.readline()))
        return results

    def leave(self) -> str:
        """End the process in order; returns what it said on stderr."""
        return self.process.communicate(timeout=60)[1]


@pytest.fixture
def calling(
    nccl_program: Path, fake_nccl: Callable[[str], Path], tmp_path: Path
) -> Iterator[Callable[..., CallingProcess]]:
    """Starts calling processes, by environment variables, `under` a program or with a `limit` set
    in them first; they end with the test."""
    started: list[CallingProcess] = []

    def start(
        nccl: Path | str = "older",
        *,
        hooked: bool = True,
        under: Sequence[str | Path] = (),
        limit: Callable[[], object] | None = None,
        stderr: int = subprocess.PIPE,
        **environment: str,
    ) -> CallingProcess:
        folder = nccl if isinstance(nccl, Path) else fake_nccl(nccl)
        command = [*under, nccl_program]
        run_dir = tmp_path / "run"
        process = CallingProcess(command, folder, run_dir, hooked, limit, stderr, environment)
        started.append(process)
        return process

    yield start
    for process in started:
        process.process.kill()
        process.process.communicate(timeout=60)


@pytest.fixture(scope="session")
def real_nccl() -> Path:
    """The folder of a real libnccl.so.2: ONCALL_TEST_NCCL, or the wheel's if it is installed."""
    reported = os.environ.get("ONCALL_TEST_NCCL")
    if reported:
        folder = Path(reported)
        return folder.parent if folder.is_file() else folder
    try:
        wheel = find_spec("nvidia.nccl")
    except ModuleNotFoundError:
        wheel = None
    for place in wheel.submodule_search_locations or () if wheel else ():
        if (Path(place) / "lib" / "libnccl.so.2").exists():
            return Path(place) / "lib"
    pytest.skip("no real NCCL: install nvidia-nccl-cu12, or set ONCALL_TEST_NCCL to its libnccl")
