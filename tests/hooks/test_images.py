"""The hooks in the C libraries of images that jobs come in, which this machine's is not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from oncall.native import Architecture, hooks_library, standin_folder, verbs_library
from oncall.node.rings.ring import RingReader

PROJECT = Path(__file__).parents[2]
OLD_GLIBC = PROJECT / "build/bullseye"  # Debian 11, by the Makefile
MUSL = Path("/lib/ld-musl-x86_64.so.1")
RANKS = 2

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(Architecture.here() != "x86_64", reason="the C libraries are of x86_64"),
]
INSTALL = "`make elsewhere-packages` installs it"


@pytest.mark.skipif(not OLD_GLIBC.is_dir(), reason=f"no {OLD_GLIBC}: {INSTALL}")
def test_a_job_records_itself_under_an_old_glibc(tmp_path: Path) -> None:
    libraries = OLD_GLIBC / "lib/x86_64-linux-gnu"
    loader, standin = libraries / "ld-2.31.so", standin_folder()
    command = [loader, "--library-path", f"{libraries}:{standin}", standin / "train"]
    command += ["--unique-id-file", tmp_path / "id", "--dp", str(RANKS), "--steps", "3", "--quiet"]
    columns = os.environ | {
        "WORLD_SIZE": str(RANKS),
        "ONCALL_RUN_DIR": str(tmp_path),
        "LD_PRELOAD": f"{hooks_library()}:{verbs_library()}",
        "NCCL_PROFILER_PLUGIN": str(hooks_library()),
    }
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen(command, env=columns | {"RANK": str(rank)}, stderr=subprocess.PIPE)
            )
            for rank in range(RANKS)
        ]
        said = [process.communicate(timeout=120)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * RANKS, said
    assert said == [b""] * RANKS
    rings = sorted(tmp_path.glob("rings/*.ring"))
    assert len(rings) == RANKS
    for path in rings:
        with RingReader.open(path, consume=False) as ring:
            assert ring.head > 0


@pytest.fixture(scope="module")
def musl_program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A program as images of Alpine have them."""
    folder = tmp_path_factory.mktemp("musl")
    source, program = folder / "program.c", folder / "program"
    source.write_text(
        "#include <dlfcn.h>\n#include <stdio.h>\n#include <sys/wait.h>\n#include <unistd.h>\n"
        'int main(void) { if (!dlsym(RTLD_DEFAULT, "malloc")) return 3;\n'
        'if (dlsym(RTLD_DEFAULT, "no_such_function")) return 4;\n'
        'if (fork() == 0) return 0;\nwait(NULL); return puts("runs") < 0; }\n'
    )
    target = ("-target", "x86_64-linux-musl", "-dynamic", "-O2")
    zig = (sys.executable, "-m", "ziglang", "cc")
    cache = {name: str(PROJECT / "build/zig") for name in _ZIG_CACHES}
    command = [*zig, *target, source, "-o", program]
    subprocess.run(command, env=os.environ | cache, check=True, timeout=250)
    yield program


_ZIG_CACHES = ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR")


@pytest.mark.skipif(not MUSL.exists(), reason=f"no {MUSL}: {INSTALL}")
@pytest.mark.parametrize("which", ["hooks", "verbs", "both"])
def test_a_program_of_musl_runs_on(musl_program: Path, which: str, tmp_path: Path) -> None:
    libraries = {"hooks": [hooks_library()], "verbs": [verbs_library()]}
    chosen = libraries.get(which) or [each for [each] in libraries.values()]
    output = {"LD_PRELOAD": ":".join(map(str, chosen)), "ONCALL_RUN_DIR": str(tmp_path)}
    done = subprocess.run([musl_program], env=output, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "runs\n", "")
