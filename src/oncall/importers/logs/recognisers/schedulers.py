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
    r"(?: DUE TO (?P<why>[A-Z ]+?))? ?(?:,|\*\*\*|$)"
)
_TASK = re.compile(
    r"srun: error: (?P<node>[\w.\[\],-]+): tasks? (?P<task>[\d,\[\]-]+): "
    r"(?P<how>Killed|Terminated|Aborted|Segmentation fault|Bus error|Out Of Memory|"
    r"Exited with exit code (?P<code>[1-9]\d*))"
)
_REASONS = {"TIME LIMIT": "time_limit", "PREEMPTION": "preempted", "NODE FAILURE": "node_failure"}
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
            r"DUE TO TIME LIMIT|walltime \d+ exceeded|TERM_RUNLIMIT|"
            # of Kubernetes, not the status of a remote call
            r"(?<!code = )(?<!status: )DeadlineExceeded"
        ),
        "time_limit",
    ),
    (
        re.compile(
            r"DUE TO PREEMPTION|\bPreempt(?:ed|ing|ionByScheduler)\b|DisruptionTarget|"
            r"[Ss]pot interruption"
        ),
        "preempted",
    ),
    (re.compile(r"DUE TO NODE FAILURE|NodeLost|node failure"), "node_failure"),
    (re.compile(r"\bEvicted\b|TerminationByKubelet"), "preempted"),
)
_SIGTERM = re.compile(
    r"[Rr]eceived (SIGTERM|SIGINT|SIGUSR[12])\b|(?<!on )SIGTERM received|"
    r"after receiving SIG[A-Z]+"
)
# A row of `sacct`: the job's state, and its exit code and signal.
_ACCOUNTED = re.compile(
    r".*\s(?P<state>COMPLETED|FAILED|TIMEOUT|NODE_FAIL|OUT_OF_ME\S*|PREEMPTED|CANCELLED)"
    r"(?:\+| by \d+)?\s+(?P<code>\d+):(?P<signal>\d+)(?:\s|$)"
)
_OF_STATE = {
    "COMPLETED": ("phase", "passed"),
    "TIMEOUT": ("scheduler", "time_limit"),
    "NODE_FAIL": ("scheduler", "node_failure"),
    "PREEMPTED": ("scheduler", "preempted"),
    "CANCELLED": ("scheduler", "cancelled"),
}
_OOM_STEP = re.compile(r"Detected \d+ oom[-_]kill event")
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
        why = (found["why"] or "").strip()
        if why == "JOB REQUEUE":
            return [event("attempt", "requeue", text=text)]
        code = _REASONS.get(why, "cancelled")
        return [event("scheduler", code, node=found["node"], text=text)]
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
    if found := _ACCOUNTED.match(text):
        code = found["code"] if found["signal"] == "0" else f"-{found['signal']}"
        kind, code = _OF_STATE.get(found["state"], ("exit", code))
        if found["state"].startswith("OUT_OF_ME"):
            kind, code = "memory", "host"
        return [event(kind, code, number=0 if kind == "exit" else None, text=text)]
    if "Requeued SLURM job" in text:
        return [event("attempt", "requeue", text=text)]
    if _SIGTERM.search(text):
        return [event("signal", "process", text=text)]
    for pattern, code in _WORDS:
        if pattern.search(text):
            return [event("scheduler", code, text=text)]
    return []


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
        *_OF_STATE,
        "FAILED",
        "OUT_OF_ME",
        "PreemptionByScheduler",
        "DisruptionTarget",
        "Evicted",
        "TerminationByKubelet",
        "NodeLost",
        "pot interruption",
    ),
    read,
)
