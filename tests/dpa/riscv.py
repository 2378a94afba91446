"""The measurement built for RISC-V, run under qemu, its instructions counted one by one."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

DPA = Path(__file__).parents[2] / "dpa"
LINUX_GCC, BARE_GCC, QEMU = "riscv64-linux-gnu-gcc", "riscv64-unknown-elf-gcc", "qemu-riscv64"
FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-DONCALL_DPA_DEVICE")
INCLUDES = (f"-I{DPA}", f"-I{DPA / 'doca_shim'}")
# As the DPA's cores: integers of 64 bits, multiplication, no floating point.
CORE = ("-march=rv64imac", "-mabi=lp64", "-ffreestanding", "-nostdlib", "-mcmodel=medany")
_TRACED = re.compile(rb"^Trace \d+: \w+ \[\w+/([0-9a-f]+)/")


def missing(*tools: str) -> str | None:
    """Why these tools cannot be used, None if they can."""
    absent = [tool for tool in tools if shutil.which(tool) is None]
    return f"no {', '.join(absent)}: `make riscv-packages` installs them" if absent else None


def build_bare(folder: Path, source: str) -> Path:
    """A source of dpa/ as a freestanding object."""
    made = folder / f"{source}.o"
    command = [BARE_GCC, *FLAGS, *CORE, *INCLUDES, "-c", DPA / source, "-o", made]
    subprocess.run(command, check=True)
    return made


def build_play(folder: Path) -> Path:
    """dpa/riscv/play.c as a program for Linux, with records for all flows of a pattern."""
    made = folder / "play"
    sizes = ("-DSHARDS=4", "-DSHARD_FLOWS=4095")
    sources = (DPA / "riscv/play.c", DPA / "measurement.c")
    subprocess.run(
        [LINUX_GCC, *FLAGS, *INCLUDES, *sizes, "-static", *sources, "-o", made], check=True
    )
    return made


@dataclass(frozen=True)
class Counted:
    """Instructions of one event, in the long run, and how many of them are of which kind."""

    instructions: float
    divisions: float
    fences: float


def count(play: Path, pattern: str, events: int = 1000) -> Counted:
    """What an event of this pattern costs: the difference of two runs."""
    kinds = _kinds(play)
    few, many = (_executed(play, pattern, n, kinds) for n in (events, 2 * events))
    return Counted(*((many[kind] - few[kind]) / events for kind in ("all", "div", "fence")))


def _kinds(play: Path) -> dict[int, str]:
    """The measurement's instructions by address: div, fence or other."""
    said = subprocess.run(
        ["riscv64-linux-gnu-objdump", "-d", play], capture_output=True, text=True, check=True
    ).stdout
    own = set(_functions())
    kinds, inside = {}, False
    for line in said.splitlines():
        if head := re.match(r"[0-9a-f]+ <([\w.]+)>:", line):
            inside = head[1].split(".")[0] in own or (inside and head[1].startswith(".L"))
        elif inside and (found := re.match(r"\s+([0-9a-f]+):\s+[0-9a-f]+\s+(\w+)", line)):
            name = found[2]
            kind = "div" if name.startswith(("div", "rem")) else name
            kinds[int(found[1], 16)] = kind if kind in ("div", "fence") else "other"
    return kinds


def _functions() -> list[str]:
    text = (DPA / "measurement.c").read_text(encoding="utf-8")
    return re.findall(r"^[A-Za-z][\w *]*?(\w+)\(", text, re.M)


def _executed(play: Path, pattern: str, events: int, kinds: dict[int, str]) -> dict[str, int]:
    """Instructions executed in the measurement, one a line of qemu's trace."""
    log = play.with_suffix(".log")
    command = [QEMU, "-singlestep", "-d", "nochain,exec", "-D", log, play, pattern, str(events)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    counts = {"all": 0, "div": 0, "fence": 0, "other": 0}
    with log.open("rb") as lines:
        for line in lines:
            kind = kinds.get(int(found[1], 16)) if (found := _TRACED.match(line)) else None
            if kind:
                counts["all"] += 1
                counts[kind] += 1
    log.unlink()
    return counts
