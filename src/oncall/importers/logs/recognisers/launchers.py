"""How launchers other than torchrun report a process that ended: DeepSpeed, accelerate, Lightning,
torch.multiprocessing, Composer, Docker Compose, Open MPI, PRRTE, MPICH, Hydra and shells; and which
process Ray starts for a rank."""

from __future__ import annotations

import re
from collections.abc import Sequence

from oncall.importers.logs.line import Found, Line, Recogniser, event

SIGNALS = {"KILL": 9, "SEGV": 11, "ABRT": 6, "TERM": 15, "BUS": 7, "INT": 2, "FPE": 8, "ILL": 4}
# As shells and Slurm name them.
SIGNALS |= {"Killed": 9, "Aborted": 6, "Terminated": 15, "Hangup": 1}
SIGNALS |= {"Segmentation fault": 11, "Bus error": 7}
# What each says: a signal by name or number, or an exit code; the rank, host and process if given.
_ENDED = tuple(
    re.compile(pattern.replace("N)", r"\d{1,9})"))
    for pattern in (
        r"^(?:(?>.*?--local_rank=(?P<local>N)))?.* exits with return code = (?P<code>-?N)",
        r"died with <Signals\.\w+: (?P<signal>N)>",
        r"returned non-zero exit status (?P<code>N)",
        r"process rank (?P<rank>N) with PID (?P<pid>N) on node (?P<node>\S+) "
        r"exited on signal (?P<signal>N)",
        r"(?:\bR|[Gg]lobal r)ank (?P<rank>N)(?: \(PID (?P<pid>N)\))? "
        r"(?:exited with|crashed with exit) code (?P<code>-?N)",
        r"^(?P<node>[\w.-]+-N) exited with code (?P<code>N)$",
        r"process (?:with PID (?P<pid>N)|(?P<local>N)) terminated with "
        r"(?:(?:exit )?code (?P<code>-?N)|signal SIG(?P<name>[A-Z]+))",
        r"(?:^(?P<node>[\w.-]+): )?rank (?P<rank>N) died from signal (?P<signal>N)",
        r"\bFAILED +(?:0:(?P<signal>[1-9]\d{0,2})|(?P<code>[1-9]\d{0,2}):\d)\b",  # of Slurm's sacct
        r"(?:^|: line \d{1,9}: {1,20}(?P<pid>N) )(?P<name>Killed|Aborted|Terminated|Hangup)"
        r"(?: \(core dumped\))?(?: {2}|$)",
    )
)
# What subprocess says of any command: a launcher's own runs Python, or another launcher.
_OF_SUBPROCESS = re.compile(r"died with <Signals|returned non-zero exit status")
_LAUNCHED = re.compile(
    r"\b(?:python[\d.]*|torchrun|deepspeed|accelerate|mpirun|mpiexec|srun)\b|\.py\b"
)
_HYDRA_RANK = re.compile(r"RANK (?P<rank>\d{1,9}) PID (?P<pid>\d{1,9}) RUNNING AT (?P<node>\S+)")
_HYDRA = re.compile(r"(?:KILLED BY SIGNAL: (?P<signal>\d{1,9})|EXIT CODE: (?P<code>\d{1,9}))")
_PROCESS_NAME = re.compile(r"Process name: \[\S*,(?P<rank>\d{1,9})\]\s*$")
_EXIT_CODE = re.compile(r"Exit code: +(?P<code>\d{1,9})")
# Ray names the process of each rank when it starts them, or the process names its rank itself.
_STARTED = re.compile(
    r"(?:\(.{0,100}?ip=(?P<node>[\w.:]{1,64}), pid=(?P<pid>\d{1,9})\) world_|\[)"
    r"rank=(?P<rank>\d{1,9}), (?:local_rank=(?P<local>\d{1,9})|world_size=)"
)


def _exit(line: Line, *found: re.Match[str] | None) -> list[Found]:
    said = {name: value for one in found if one for name, value in one.groupdict().items() if value}
    number = {name: int(said[name]) for name in ("rank", "local", "pid") if name in said}
    if "signal" in said:
        code = f"-{said['signal']}"
    elif "name" in said:
        code = f"-{SIGNALS.get(said['name'], 0)}"
    else:
        code = said.get("code", "N/A")
    if code == "0":
        return []
    return [
        event(
            "exit",
            code,
            rank=number.get("rank"),
            local_rank=number.get("local"),
            pid=number.get("pid"),
            node=said.get("node") or line.node,
            number=0,
            text=line.text,
        )
    ]


def read(line: Line) -> Sequence[Found]:
    """What a launcher says in one line, or in a block of them."""
    text = line.text
    command = text.partition("Command '")[2]
    if _OF_SUBPROCESS.search(text) and not _LAUNCHED.search(command):
        return []
    if rank := _HYDRA_RANK.search(text):
        return _exit(line, rank, *(_HYDRA.search(below) for below in line.below(3)))
    if rank := _PROCESS_NAME.search(text):
        return _exit(line, rank, *(_EXIT_CODE.search(below) for below in line.below(2)))
    if of := _STARTED.search(text):
        pid, local = (int(of[name]) if of[name] else None for name in ("pid", "local"))
        said = {"node": of["node"] or line.node, "pid": pid or line.pid, "local_rank": local}
        return [event("process", "ray", rank=int(of["rank"]), **said)]
    for pattern in _ENDED:
        if found := pattern.search(text):
            return _exit(line, found)
    return []


LAUNCHERS = Recogniser(
    "launchers",
    (
        "exits with return code",
        "died with <Signals",
        "returned non-zero exit status",
        "exited on signal",
        "terminated with ",
        "died from signal",
        "exited with code ",
        "crashed with exit code",
        "RUNNING AT",
        "Process name: [",
        " world_rank=",
        "[rank=",
        "FAILED  ",
        "Killed",
        "Aborted",
        "Terminated",
        "Hangup",
    ),
    read,
)
