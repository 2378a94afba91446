"""What every test relies on."""

from __future__ import annotations

import fcntl
import gc
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import settings

from oncall.evidence import Incident

# The same few examples each time, so that a change is judged by what it changed; `make test-slow`
# draws others, and more.
settings.register_profile("same", max_examples=20, derandomize=True, deadline=None)
settings.register_profile("fresh", max_examples=300, deadline=None)
settings.load_profile(os.environ.get("ONCALL_EXAMPLES", "same"))

# A shell starts its background jobs with SIGINT ignored, and children inherit that: tests of
# Ctrl-C would wait for ever under `make test &`.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests start hundreds of processes: compiling the program takes each of them two seconds.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# What whoever runs the tests has configured, their rulebooks, and hooks that are installed on this
# machine are not what is tested.
os.environ["XDG_CONFIG_HOME"] = os.environ["ONCALL_HOOKS_DIR"] = os.devnull

# Debian 12's Python 3.11.2 has no filters yet.
tarfile.TarFile.extraction_filter = staticmethod(
    getattr(tarfile, "data_filter", lambda member, _: member)
)

# Folders of tests lie on a disk, where hooks make no ring unless they are allowed to.
os.environ["ONCALL_RUN_DIR_ON_DISK"] = "1"

_REPOSITORY = Path(__file__).parents[1]

# Took more than a second when last measured, and some shorter test covers the same room.
_SLOW = frozenset((Path(__file__).parent / "slow.txt").read_text(encoding="utf-8").splitlines())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the tests of slow.txt to `make test-slow`, as if each were marked."""
    for item in items:
        if item.nodeid in _SLOW:
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """What was collected stays to the end, and is not looked through for garbage each time: that
    is a sixth of what a console's test costs."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000)


def pytest_sessionfinish() -> None:
    gc.unfreeze()  # at its end Python takes apart what it sees, in order


class RecordingProcess:
    """A process with a ring of its own in `run_dir`, that records what it is asked to.

    Commands are those of tests/hooks/ring_writer.c; `tell` returns when the command is done.
    """

    def __init__(self, program: Path, run_dir: Path, environment: dict[str, str]) -> None:
        self.run_dir = run_dir
        self.process = subprocess.Popen(
            [program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "ONCALL_RUN_DIR": str(run_dir), **environment},
        )
        self.recording = self._answer() == "recording"

    @property
    def ring(self) -> Path:
        """The file it records into."""
        [path] = (self.run_dir / "rings").glob(f"{self.process.pid}-*.ring")
        return path

    def tell(self, command: str) -> str:
        """Have it done; returns the answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self._answer()

    def leave(self) -> str:
        """End the process in order; returns what it said on stderr."""
        return self.process.communicate(timeout=60)[1]

    def kill(self) -> None:
        """End the process as SIGKILL does."""
        self.process.kill()
        self.process.communicate(timeout=60)

    def _answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


@pytest.fixture(scope="session")
def c_compiler() -> str:
    """The system's."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler: `make test` installs one")
    return compiler


@pytest.fixture(scope="session")
def ring_writer(tmp_path_factory: pytest.TempPathFactory, c_compiler: str) -> Path:
    """The program of RecordingProcess, compiled from the hooks' own sources."""
    program = tmp_path_factory.mktemp("ring") / "ring_writer"
    hooks = _REPOSITORY / "hooks"
    sources = [_REPOSITORY / "tests/hooks/ring_writer.c", *sorted(hooks.glob("ring*.c"))]
    subprocess.run(
        [c_compiler, "-std=gnu11", "-O2", f"-I{hooks}", *sources, "-o", program, "-pthread"],
        check=True,
    )
    return program


@pytest.fixture
def recording(ring_writer: Path, tmp_path: Path) -> Iterator[Callable[..., RecordingProcess]]:
    """Starts recording processes, by environment variables; they end with the test."""
    started: list[RecordingProcess] = []

    def start(run_dir: Path = tmp_path / "run", **environment: str) -> RecordingProcess:
        started.append(RecordingProcess(ring_writer, run_dir, environment))
        return started[-1]

    yield start
    for process in started:
        process.kill()


class PostingProcess:
    """A process that posts to a fake RDMA device what it is asked to; `files` are those of the
    verbs shim. Commands are those of tests/hooks/verbs_program.c; the first says how it gets at
    libibverbs."""

    def __init__(
        self,
        program: Path,
        first: str,
        run_dir: Path,
        environment: dict[str, str],
        emulator: Sequence[str] = (),
    ) -> None:
        self.run_dir = run_dir
        # What the program is to preload, its emulator must not.
        shown: list[str] = []
        for name, value in environment.items() if emulator else ():
            shown += ["-E", f"{name}={value}"]
        environment = {} if emulator else environment
        self.process = subprocess.Popen(
            [*emulator, *shown, program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "ONCALL_RUN_DIR": str(run_dir), **environment},
        )
        self.tell(first)

    @property
    def files(self) -> list[Path]:
        return sorted(self.run_dir.glob(f"rings/{self.process.pid}-*.verbs"))

    @property
    def file(self) -> Path:
        [path] = self.files
        return path

    def tell(self, *commands: str) -> list[int]:
        """Have them done; returns the answers."""
        assert self.process.stdin is not None and self.process.stdout is not None
        answers = []
        for command in commands:
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()
            answers.append(int(self.process.stdout.readline()))
        return answers

    def leave(self) -> str:
        """End the process in order; returns what it said on stderr."""
        return self.process.communicate(timeout=60)[1]

    def kill(self) -> None:
        """End the process as SIGKILL does."""
        self.process.kill()
        self.process.communicate(timeout=60)


@pytest.fixture(scope="session")
def verbs_program(tmp_path_factory: pytest.TempPathFactory, c_compiler: str) -> Path:
    """The program of PostingProcess; beside it the libibverbs.so.1 that it is linked with."""
    return build_verbs_program(c_compiler, tmp_path_factory.mktemp("verbs"))


@pytest.fixture(scope="session")
def verbs_program_by(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """The same by another compiler."""
    return lambda compiler: build_verbs_program(str(compiler), tmp_path_factory.mktemp("verbs"))


def build_verbs_program(compiler: str, folder: Path) -> Path:
    hooks, here = _REPOSITORY / "hooks", _REPOSITORY / "tests/hooks"
    compile_ = [compiler, "-std=gnu11", "-O2", f"-I{hooks}", f"-I{here}"]
    library, program = folder / "libibverbs.so.1", folder / "verbs_program"
    shared = ["-shared", "-fPIC", "-fvisibility=hidden", "-Wl,-soname,libibverbs.so.1"]
    versions = f"-Wl,--version-script={here / 'fake_verbs.map'}"
    subprocess.run(
        [*compile_, *shared, versions, here / "fake_verbs.c", "-o", library, "-pthread"], check=True
    )
    subprocess.run(
        [*compile_, here / "verbs_program.c", library, "-o", program, "-ldl"], check=True
    )
    return program


@pytest.fixture
def posting(verbs_program: Path, tmp_path: Path) -> Iterator[Callable[..., PostingProcess]]:
    """Starts posting processes, by environment variables and a folder that libraries are looked
    for in first; they end with the test."""
    started: list[PostingProcess] = []

    def start(
        first: str = "linked",
        *,
        path: Path | None = None,
        run_dir: Path = tmp_path / "run",
        program: Path = verbs_program,
        emulator: Sequence[str] = (),
        **environment: str,
    ) -> PostingProcess:
        folders = [*([str(path)] if path else []), str(program.parent)]
        environment = {"LD_LIBRARY_PATH": ":".join(folders), **environment}
        started.append(PostingProcess(program, first, run_dir, environment, emulator))
        return started[-1]

    yield start
    for process in started:
        process.kill()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than cores: a quarter of their time tests wait for what they have started."""
    return len(os.sched_getaffinity(0)) + 1


@pytest.hookimpl(wrapper=True, tryfirst=True)  # outermost: waiting is not the test's time
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A test marked `alone` begins when those of other workers have ended, and they wait for it."""
    of_worker = item.config.getoption("basetemp")
    if of_worker is None:  # no other workers
        return (yield)
    alone = item.get_closest_marker("alone") is not None
    how = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
    folder = Path(of_worker).parent
    with (folder / "turn.lock").open("w") as turn, (folder / "machine.lock").open("w") as machine:
        fcntl.flock(turn, how)  # who wants to be alone holds up those who come after
        fcntl.flock(machine, how)
        if not alone:
            fcntl.flock(turn, fcntl.LOCK_UN)
        return (yield)


@pytest.fixture
def whole_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One test at a time, of all workers: a job of many processes wants the cores to itself."""
    with (tmp_path_factory.getbasetemp().parent / "whole-machine.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture
def standin_job(whole_machine: None) -> None:  # noqa: ARG001
    """A job of the stand-in for NCCL can be started, and has the machine to itself."""
    from oncall.native import NotBuilt, standin_folder

    try:
        standin_folder()
    except NotBuilt as why:
        pytest.skip(str(why))


@pytest.fixture
def configure(tmp_path: Path) -> Callable[[str], Path]:
    """Writes config.toml where `XDG_CONFIG_HOME` is the test's folder; returns the file."""

    def write(text: str) -> Path:
        path = tmp_path / "oncall" / "config.toml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture
def configured(
    configure: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Path]:
    """The same, for what runs in this process."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return configure


@pytest.fixture(scope="session")
def python_prints() -> Callable[[str], str]:
    """What a Python of its own prints that runs this code, with the sources of this checkout."""

    def printed(code: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(_REPOSITORY / "src")}
        run = [sys.executable, "-c", code]
        found = subprocess.run(run, capture_output=True, text=True, env=environment, check=True)
        return found.stdout.strip()

    return printed


@pytest.fixture
def incident() -> Iterator[Incident]:
    """Without any evidence yet."""
    with Incident.empty() as empty:
        yield empty


@pytest.fixture(scope="session")
def congestion(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved incident: rank 2 of four sends to its neighbours at half the bandwidth."""
    from oncall_lab.traffic import TrafficFault, TrafficScenario, simulate_traffic

    fault = TrafficFault("congestion", 2, iteration=2, bandwidth=0.5)
    scenario = TrafficScenario(
        workload="neighbour_exchange", iterations=6, exchange_bytes=8 * 2**20, faults=(fault,)
    )
    path = tmp_path_factory.mktemp("traffic") / "congestion.oncall"
    incident, _ = simulate_traffic(scenario)
    with incident:
        incident.save(path)
    return path
