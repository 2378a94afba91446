"""The nodes of a Slurm job from outside its allocation, and `srun --overlap` to run there.

`squeue` knows jobs that run and those that ended a moment ago, `sacct` those that ended before.
Both are read as text: the fields and their format are the same from Slurm 20.11 to 24.11, while the
JSON of squeue and sacct changes with each version.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from oncall.core.errors import UsageError
from oncall.fleet.command_prefix import INSTALL, CommandPrefix
from oncall.fleet.configuration import FleetConfiguration
from oncall.fleet.inventory import expand_hosts
from oncall.fleet.outcome import pattern
from oncall.fleet.schedulers.tool import ToolFailed, run_tool

# 1234, a task of an array 1234_5, a part of a heterogeneous job 1234+1.
_JOB_ID = re.compile(r"[0-9]{1,18}(?:[_+][0-9]{1,9})?")
_NO_NODES = ("", "(null)", "None assigned", "None")
_ALIVE = ("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT")
_UNKNOWN_JOB = "Invalid job id"


@dataclass(frozen=True)
class SlurmJob:
    """A job with its nodes; `state` is Slurm's word, such as RUNNING or NODE_FAIL."""

    job_id: str
    state: str
    hosts: tuple[str, ...]

    @property
    def alive(self) -> bool:
        return self.state in _ALIVE


def slurm_job(job_id: str) -> SlurmJob:
    """The job as squeue knows it, else sacct. Raises UsageError for no such job, or no nodes."""
    if not _JOB_ID.fullmatch(job_id):
        raise UsageError(f"{job_id!r} is not the number of a Slurm job, such as 1234")
    parts = _queued(job_id) or _accounted(job_id)
    if not parts:
        raise UsageError(f"no Slurm job {job_id}: neither squeue nor sacct knows it")
    state = next((state for state, _, _ in parts if state in _ALIVE), parts[0][0])
    # Of an array or a heterogeneous job, the parts that run; of one that ended, all of them.
    nodes = ",".join(of for one, of, _ in parts if one == state and of not in _NO_NODES)
    if not nodes:
        reason = f" ({parts[0][2]})" if parts[0][2] not in ("", "None") else ""
        raise UsageError(f"Slurm job {job_id} has no nodes: it is {state}{reason}")
    return SlurmJob(job_id, state, tuple(dict.fromkeys(expand_hosts(nodes))))


def _queued(job_id: str) -> list[tuple[str, str, str]]:
    """State, nodes and reason of each part of the job; none if squeue does not know it."""
    form = ("--noheader", "--states=all", "--format=%T|%N|%r")
    try:
        return _rows(run_tool(("squeue", *form, f"--jobs={job_id}")))
    except ToolFailed as error:
        if _UNKNOWN_JOB in error.said:
            return []
        raise


def _accounted(job_id: str) -> list[tuple[str, str, str]]:
    """The same of a job that ended, from the accounting, where the site keeps one."""
    form = ("--noheader", "--parsable2", "--allocations", "--format=State,NodeList,Reason")
    try:
        return _rows(run_tool(("sacct", *form, f"--jobs={job_id}")))
    except UsageError as error:
        raise UsageError(
            f"no Slurm job {job_id} in squeue; it ended, and the accounting does not answer: "
            f"{error}. Name its nodes with --hosts"
        ) from None


def _rows(text: str) -> list[tuple[str, str, str]]:
    rows = [line.split("|") for line in text.splitlines() if line.count("|") >= 2]
    # sacct writes `CANCELLED by 1000`.
    return [((row[0].split() or [""])[0], row[1].strip(), row[2].strip()) for row in rows]


def overlapping_step(job_id: str, configuration: FleetConfiguration) -> CommandPrefix:
    """Run a command on a node of a running job as a step beside the job's own."""
    patience = f"--immediate={max(1, math.ceil(configuration.connect_timeout_s))}"
    step = (
        *("srun", f"--jobid={job_id}", "--overlap", "--nodes=1", "--ntasks=1"),
        # No --unbuffered and no --pty: a terminal would change the bytes.
        *("--mpi=none", "--quiet", patience, *configuration.srun_options),
    )
    return CommandPrefix(
        "srun",
        lambda host: (*step, f"--nodelist={host}"),
        f"srun --jobid={job_id} --overlap -N1 -n1 -w {{host}}",
        _SRUN_ERRORS,
    )


_SRUN_ERRORS = (
    pattern(
        "no-agent",
        r"execve\(\): .*No such file or directory",
        f"{{line}}; {INSTALL}",
    ),
    pattern("no-agent", r"execve\(\): .*Permission denied", "not executable ({line})"),
    pattern(
        "refused",
        r"Invalid job id|already completing or completed|Job has already finished|Expired",
        "the job ended ({line}); its nodes may still answer over ssh: --hosts slurm:JOB with "
        'transport = "auto" under [fleet]',
    ),
    pattern("refused", r"Requested node.* not .*available|not in .*allocation|invalid node name"),
    pattern(
        "timeout",
        r"Immediate execution impossible|temporarily disabled|Requested nodes are busy",
        "srun found no room for a step beside the job's ({line}); Slurm before 21.08 shares only "
        'the CPUs: set srun_options = ["--mem=0", "--gres=none"] under [fleet]',
    ),
    pattern(
        "error",
        r"unrecognized option .?--overlap",
        "srun is older than Slurm 20.11 and knows no --overlap ({line})",
    ),
    pattern(
        "auth",
        r"Access/permission denied|Invalid authentication credential|Protocol authentication error"
        r"|Munge|Invalid user",
        "Slurm does not let you run a step in this job: {line}",
    ),
    pattern(
        "refused",
        r"Unable to contact slurm controller|Unable to (?:confirm|create)|Socket timed out",
    ),
)
