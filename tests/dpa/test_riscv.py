"""The measurement as the NIC's cores would run it: freestanding, and within a budget."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import riscv

HERE = Path(__file__).parent
BUDGET = 250  # instructions an event; 0.8 million events/s a thread (Pulse 4.3) leave 2,000 cycles


def needs(*tools: str) -> pytest.MarkDecorator:
    why = riscv.missing(*tools)
    return pytest.mark.skipif(why is not None, reason=why or "")


@needs(riscv.BARE_GCC)
@pytest.mark.parametrize("source", ["measurement.c", "polling.c"])
def test_it_needs_no_library_and_no_atomics(tmp_path: Path, source: str) -> None:
    made = riscv.build_bare(tmp_path, source)
    tools = riscv.BARE_GCC.removesuffix("gcc")

    def says(*command: str | Path) -> str:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert says(f"{tools}nm", "-u", made).split() in ([], [f"{made}:"])
    listing = says(f"{tools}objdump", "-d", made)
    assert "measurement_" in listing
    for instruction in ("\tamo", "\tlr.", "\tsc."):
        assert instruction not in listing


@needs(riscv.LINUX_GCC, riscv.QEMU)
def test_an_event_is_cheap(tmp_path: Path) -> None:
    play = riscv.build_play(tmp_path)
    counted = riscv.count(play, "same", events=500)
    assert 20 < counted.instructions < BUDGET
    assert (counted.divisions, counted.fences) == (0, 0)


@pytest.mark.slow
@needs(riscv.LINUX_GCC, riscv.QEMU)
@pytest.mark.parametrize("test", sorted(path.name for path in HERE.glob("test_*.c")))
def test_the_c_tests_hold_there_too(tmp_path: Path, test: str) -> None:
    program = tmp_path / "program"
    include = f"-I{HERE.parent / 'hooks'}"
    subprocess.run(
        [
            *(riscv.LINUX_GCC, *riscv.FLAGS, *riscv.INCLUDES, include, "-static", "-pthread"),
            *(HERE / test, "-lm", "-o", program),
        ],
        check=True,
    )
    subprocess.run([riscv.QEMU, program], check=True, timeout=200)
