"""What schedulers say of a job: cancelled, preempted, out of time, a node failed, a task killed."""

from __future__ import annotations

import re
from collections.abc import Sequence

from oncall.core.errors import UsageError
from oncall.core.nodeset import expand_ranks
from oncall.importers.logs.line import Found, Line, Recogniser, event
from oncall.importers.logs.recognisers.launchers import SIGNALS

_CANCELLED = re.compile(
    r"\*\*\* (?P<what>JOB|STEP) (?P<job>\S+) ON (?P<node>\S+) CANCELLED AT \S+"
    r"(?: DUE TO [A-Z ]+?)? ?(?:,|\*\*\*|$)"
)
_TASK = re.compile(
    r"srun: error: (?P<node>[\w.\[\],-]+): tasks? (?P<task>[\d,\[\]-]+): "
    r"(?P<how>Killed|Terminated|Aborted|Segmentation fault|Bus error|Out Of Memory|"
    r"Exited with exit code (?P<code>[1-9]\d*))"
)
_NODE_FAILED = re.compile(
    r"srun: error: Node failure on (?P<slurm>\S+)|"
    r"^(?>.*?The node with )(?>.*?(?:address|ip): (?P<ray>[\w.:-]++),? ).*has been marked dead "
    r"because|Remote daemon: \[\S+ on node (?P<mpi>\S+)"  # below "has lost communication with"
)
_LAUNCH = re.compile(
    r"srun: error: (?:Task launch for \S+ failed on node (?P<node>[\w.-]+)|"
    r"Application launch failed|Unable to (?:create step|allocate resources|confirm allocation))"
)
_WORDS = (
    (
        re.compile(
            r"DUE TO TIME LIMIT|\bTIMEOUT +\d+:\d|walltime \d+ exceeded|TERM_RUNLIMIT|"
            # of Kubernetes, not the status of a remote call
            r"(?<!code = )(?<!status: )DeadlineExceeded"
        ),
        "time_limit",
    ),
    (
        re.compile(
            r"DUE TO PREEMPTION|\bPREEMPTED +\d+:\d|"
            r"\bPreempt(?:ed|ing|ionByScheduler)\b|DisruptionTarget|"
            r"[Ss]pot interruption"
        ),
        "preempted",
    ),
    (re.compile(r"DUE TO NODE FAILURE|NodeLost|node failure|\bNODE_FAIL +\d"), "node_failure"),
    (re.compile(r"\bEvicted\b|TerminationByKubelet"), "preempted"),
    (re.compile(r"\bCANCELLED(?:\+| by \d+)? +\d+:\d"), "cancelled"),
)
_SIGTERM = re.compile(
    r"[Rr]eceived (SIGTERM|SIGINT|SIGUSR[12])\b|(?<!on )SIGTERM received|"
    r"after receiving SIG[A-Z]+"
)
_OOM_STEP = re.compile(r"Detected \d+ oom[-_]kill event|\bOUT_OF_ME\S{0,20} +\d{1,3}:\d")
_MOST_TASKS = 100_000


def _tasks(found: re.Match[str]) -> list[Found]:
    """How many tasks there are at least, and the host of each that the line names: of several."""
    numbers = found["task"].strip("[]")
    last = max(map(int, re.findall(r"\d{1,9}", numbers)), default=0)
    at_least = [event("world", "least", number=last + 1)]
    if last >= _MOST_TASKS or "[" in found["node"]:
        return at_least
    try:
        tasks = expand_ranks(numbers)
    except UsageError:
        return at_least
    return at_least + [event("process", "srun", task=task, node=found["node"]) for task in tasks]


def read(line: Line) -> Sequence[Found]:
    """What one line of a scheduler says."""
    text = line.text
    if found := _CANCELLED.search(text):
        if "DUE TO JOB REQUEUE" in text:
            return [event("attempt", "requeue", text=text)]
        return [event("scheduler", _reason(text) or "cancelled", node=found["node"], text=text)]
    if found := _NODE_FAILED.search(text):
        node = found["slurm"] or found["ray"] or found["mpi"]
        return [event("scheduler", "node_failed", node=node, text=text)]
    if found := _LAUNCH.search(text):
        return [event("init", "launch", node=found["node"], text=text)]
    if _OOM_STEP.search(text):
        return [event("memory", "host", text=text)]
    if found := _TASK.search(text):
        task = int(found["task"]) if found["task"].isdecimal() else None
        if found["how"] == "Out Of Memory":
            return [event("memory", "host", node=found["node"], rank=task, text=text)]
        code = found["code"] or f"-{SIGNALS[found['how']]}"
        ended = event("exit", code, node=found["node"], number=0, text=text, rank=task)
        if task is not None:
            return [ended]
        return [ended, *_tasks(found)]
    if "Requeued SLURM job" in text:
        return [event("attempt", "requeue", text=text)]
    if _SIGTERM.search(text):
        return [event("signal", "process", text=text)]
    code = _reason(text)
    return [event("scheduler", code, text=text)] if code else []


def _reason(text: str) -> str | None:
    """Why the scheduler ended it, by its words."""
    return next((code for pattern, code in _WORDS if pattern.search(text)), None)


SCHEDULERS = Recogniser(
    "schedulers",
    (
        " CANCELLED AT ",
        "srun: error:",
        "oom_kill event",
        "oom-kill event",
        "received SIGTERM",
        "Received SIGTERM",
        "SIGTERM received",
        "after receiving SIG",
        "received SIGUSR",
        "received SIGINT",
        "DUE TO ",
        "Requeued SLURM job",
        "has been marked dead",
        "Remote daemon: ",
        "TERM_RUNLIMIT",
        "walltime ",
        "DeadlineExceeded",
        "reempted",
        "PREEMPTED  ",
        "OUT_OF_ME",
        "NODE_FAIL ",
        "TIMEOUT  ",
        "CANCELLED ",
        "PreemptionByScheduler",
        "DisruptionTarget",
        "Evicted",
        "TerminationByKubelet",
        "NodeLost",
        "pot interruption",
    ),
    read,
)
