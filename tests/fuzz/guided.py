"""A target guided by coverage, with atheris: mutations that reach new code are built upon.

atheris comes with the extra `fuzz` (Linux, a CPython that it has a wheel for). What it finds is
saved where the other inputs are.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from .registry import FOUND, targets
from .worker import MOST_S

_SEEDS = 200  # inputs to begin with
_MEMORY_MB = 2000


def run(name: str, seconds: float) -> int:
    """Fuzz a target for a while, in a process whose oncall is instrumented; its exit code."""
    folder = FOUND / name
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="oncall-corpus-") as corpus:
        for seed in range(_SEEDS):
            Path(corpus, f"seed-{seed}").write_bytes(targets()[name].make(seed))
        done = subprocess.run(
            [
                *(sys.executable, "-m", "tests.fuzz.guided", name),
                *(f"-max_total_time={seconds:.0f}", f"-timeout={MOST_S:.0f}"),
                *(f"-rss_limit_mb={_MEMORY_MB}", f"-artifact_prefix={folder}/guided-"),
                corpus,
            ],
            check=False,
        )
    for path in folder.glob("guided-*"):
        if path.suffix != ".bin":
            path.rename(path.with_suffix(".bin"))
    if not any(folder.iterdir()):
        folder.rmdir()
    return done.returncode


def main() -> None:
    try:
        import atheris
    except ImportError:
        raise SystemExit("guided fuzzing needs atheris: pip install -e '.[fuzz]'") from None
    name = sys.argv.pop(1)
    with atheris.instrument_imports(include=["oncall"]):
        run_target = targets()[name].run
    atheris.Setup(sys.argv, run_target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
