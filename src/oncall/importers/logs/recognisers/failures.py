"""Errors of a process: Python exceptions, CUDA errors, memory that ran out, signals that end it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from typing import Any

from oncall.importers.logs.clock import Clock
from oncall.importers.logs.line import Found, Line, Recogniser, event
from oncall.importers.logs.prefixes import peeled
from oncall.importers.logs.recognisers.watchdog import whose

_EXCEPTION = re.compile(
    r"^(?:[a-z_][\w]*\.)*(?P<type>[A-Z]\w*(?:Error|Exception|Interrupt|Failure|Exit|Signal)|"
    r"(?:subprocess\.)?TimeoutExpired|Exception)(?:: (?P<message>.*))?$"
)
# An error that is called otherwise: the first line below the frames of its traceback.
_TRACEBACK = "Traceback (most recent call last)"
# Distributed checkpoints repeat on rank 0 what failed on another.
_OF_RANK = re.compile(r"last\): \(RANK (\d{1,7})\)")
_RAISED = re.compile(
    r"^(?!jax\.errors\.Simpl)(?:[A-Za-z_]\w*\.)*(?P<type>[A-Z]\w+)(?:: (?P<message>.*))?$"
)
_MOST_OF_TRACEBACK = 150  # lines
_FRAME = re.compile(r'\s{1,8}File "(?P<path>[^"]{1,400})", line (?P<line>\d{1,7})')
_OF_LIBRARY = re.compile(r"(?:site|dist)-packages/|/lib/python\d|^<")
# PyTorch raises anew what a data loader's worker or another thread raised: the cause stands below.
_RERAISED = re.compile(r"Caught \w+ in (?P<where>[\w .]{1,80}?)\.?$")
_OF_NPU = re.compile(r"\s*\[Error\]: (\S.*)")  # what CANN says below, of an error of its interface
_ORIGINAL = "Original " + _TRACEBACK
_GRAPH = re.compile(r"[\s~^]*$")
_CUDA = re.compile(
    r"^(?>.*?(?:(?:CUDA|HIP|NPU)(?: driver)? error: |(?=ACL [\w ]{1,60} failed)))(?P<why>.*?\S)\s*+"
    r"(?:CUDA kernel errors|Compile with|Search for|For debugging|Exception raised|$)"
)
# As XLA names the driver's errors, of a task where its coordination service passes them on.
_DRIVER = re.compile(r"CUDA_ERROR_(?P<name>[A-Z_]{3,60})(?::? (?P<why>[a-zA-Z][^\n]{0,300}))?")
_OF_TASK = re.compile(r"/task:(\d{1,7})\b")
_FAILURE = re.compile(r"Cuda failure (?:\d+ )?'(?P<why>[^']+)'")
# In any line that says so; ROCm's runtime ends the process, and no exception follows.
_ECC = r"uncorrectable ECC error|ECCUncorrectable|double[- ]bit ECC"
_NVLINK = r"uncorrectable NVLink error|cudaErrorNvlinkUncorrectable"
_OUTRIGHT = tuple(
    (code, re.compile(pattern))
    for code, pattern in (
        ("ecc", _ECC),
        ("nvlink", _NVLINK),
        (
            "illegal_access",
            r"Memory access fault by GPU node-\d+|HSA_STATUS_ERROR_MEMORY_(?:FAULT|APERTURE_V)",
        ),
        ("gpu", r"HW Exception by GPU node-\d+|HSA_STATUS_ERROR_EXCEPTION"),
        ("other", r"HSA_STATUS_ERROR_OUT_OF_RESOURCES"),
    )
)
# Who ended the process for it: the kernel, or Ray's monitor before it came to that; of a refused
# allocation nobody.
_OF_MEMORY = tuple(
    (code, re.compile(pattern))
    for code, pattern in (
        ("ray", r"killed due to (?:memory pressure|the node running low on memory)"),
        (
            "host",
            r"oom-kill:|[Oo]ut of memory: Kill(?:ed)? process|OOMKilled|oom_kill_process|"
            r"[Mm]emory cgroup out of memory",
        ),
        (
            "refused",
            r"can't allocate memory|Cannot allocate memory|std::bad_alloc|"
            r"^(?:[\w.]*\.)?_?(?:Array)?MemoryError\b",
        ),
        # Ray's list of what may have ended a worker that left without a word.
        ("worker", r"Worker unexpectedly exits with a connection error"),
        (
            "gpu",
            r"(?:CUDA|HIP|NPU) out of memory(?:\. |\.?$)|Error: (?:CUDA|HIP|NPU) out of memory|"
            r"OutOfMemoryError|(?:CUDA|HIP)(?: \w+)? error\b.{0,300}: out of memory|"
            r"Cuda failure (?:2 )?'out of memory'|cudaErrorMemoryAllocation|"
            r"CUBLAS_STATUS_ALLOC_FAILED|RESOURCE_EXHAUSTED: (?:Out of memory|.{0,300}[Aa]llocat)|"
            r"CUDA_ERROR_OUT_OF_MEMORY|OOM when allocating|ran out of memory trying to allocate",
        ),
    )
)
_PID = re.compile(r"(?:pid=|pid: |[Pp]rocess )(\d{1,9})")
_WORKER_HOST = re.compile(r"(?:Worker IP address|^ip): (?P<host>[\w.:-]{1,64})", re.MULTILINE)
_SIGKILL = re.compile(
    r"Signal 9 \(SIGKILL\)|(?i:exit(?:ed with)? (?:exit )?code)[: ]+137\b|signal: killed|"
    r"killed by signal: Killed"
)
_CRASH = re.compile(
    r"Segmentation fault|SIGSEGV|\(SIG(?:BUS|FPE|ILL)\)|"
    r"Fatal Python error: (?P<fatal>[^\n]+)|Signal: \w[\w ]+ \(\d+\)|"
    r"Unexpected bus error encountered in worker|Bus error|double free or corruption|"
    r"Floating point exception"
)
_LOADER = re.compile(
    r"DataLoader worker \(pid\(?s?\)? [\d, ]+\) (?:is killed by signal: (?P<how>[^.]+)|exited)"
)
_DUPLICATE = re.compile(r"Duplicate GPU detected ?: rank (\d+) and rank (\d+)")
_MOST_FRAMES = 12
_COPED_WITH = {"I", "D", "INFO"}  # levels: info, debug, NCCL's info
_ERRORS = ("E", "F", "C")  # error, fatal, critical
_OF_CUDA = (
    ("ecc", re.compile(rf"{_ECC}|^ecc uncorrectable")),
    ("nvlink", re.compile(_NVLINK)),
    ("assert", re.compile(r"device-side assert")),
    ("illegal_access", re.compile(r"illegal memory access|misaligned address|illegal instruction")),
    ("system", re.compile(r"system not yet initialized|SystemNotReady|forward compatibility")),
    ("busy", re.compile(r"busy or unavailable|invalid device ordinal|no CUDA-capable device")),
    ("driver", re.compile(r"driver version is insufficient|no kernel image")),
    (
        "gpu",
        re.compile(
            r"unknown error|unspecified launch failure|launch failure|hardware stack|"
            r"GPU is lost|fallen off|timed out and was terminated|device not ready|"
            r"unrecoverable|reset required|MMU|graphics|^contained|hardware error|"
            r"error code: ?507\d{3}"  # of an Ascend device
        ),
    ),
)


def _cuda(why: str) -> Found:
    code = next((code for code, pattern in _OF_CUDA if pattern.search(why)), "other")
    return event("cuda", code, text=why)


def _memory(line: Line, text: str) -> list[Found]:
    """Memory that ran out, the host's or a GPU's: Ray names its own errors as PyTorch does, and an
    actor's process above."""
    for code, pattern in _OF_MEMORY:
        if pattern.search(text):
            above = map(str.strip, line.above(4) if code == "worker" else ())
            said = "\n".join([text, *above])
            pid, host = _PID.search(said), _WORKER_HOST.search(said)
            about = {"pid": int(pid[1]) if pid else None, "node": host["host"] if host else None}
            return [event("memory", code, text=text, **about)]
    return []


def _of_device(line: Line, text: str) -> list[Found]:
    """What a GPU's runtime says, or that memory ran out."""
    if memory := _memory(line, text):
        return memory
    if found := next((code for code, pattern in _OUTRIGHT if pattern.search(text)), None):
        return [event("cuda", found, text=text)]
    if known := _CUDA.search(text) or (_FAILURE.search(text) if line.nccl else None):
        return [_cuda(known["why"])]
    return []


def _traceback(line: Line) -> list[Found]:
    """The error below a traceback's frames, unless its own line says as much: where only the first
    line of a traceback bears prefixes, the others name no rank."""
    if any("Exception ignored in" in above for above in line.above(1)):
        return []
    for raw in line.raw_below(_MOST_OF_TRACEBACK):
        below = peeled(0, raw, Clock(None))
        of_another = below.rank not in (None, line.rank)
        if of_another or below.text[:1].isspace() or _GRAPH.match(below.text):
            continue
        found = _RAISED.match(below.text)
        if found is None or (_EXCEPTION.match(below.text) and below.rank == line.rank):
            return []
        said = found["message"] or found["type"]
        return _of_device(line, below.text) or [event("error", found["type"], text=said)]
    return []


def _frame(line: Line) -> str:
    """` (train.py:204)`: where the program itself was, by the traceback that the line ends."""
    for above in line.above(_MOST_OF_TRACEBACK):
        if _TRACEBACK in above or not above[:1].isspace():
            break
        found = _FRAME.match(above)
        if found and not _OF_LIBRARY.search(found["path"]):
            return f" ({found['path'].rpartition('/')[2]}:{found['line']})"
    return ""


def _original(line: Line, message: str) -> str:
    """What an error says, with what an NPU's runtime adds; of one that is raised anew, what the
    original one said, and where."""
    if "NPU function error" in message:
        said = next((found[1] for one in line.below(4) if (found := _OF_NPU.match(one))), None)
        return f"{message}: {said}" if said else message
    again = _RERAISED.match(message)
    below = iter(line.raw_below(_MOST_OF_TRACEBACK) if again else ())
    if again is None or _ORIGINAL not in next(below, ""):
        return message
    for raw in below:
        text = peeled(0, raw, Clock(None)).text
        if found := _EXCEPTION.match(text):
            return f"{found['message'] or found['type']} (in {again['where']})"
        if not text[:1].isspace() and not _GRAPH.match(text):
            break
    return message


def _stated(line: Line) -> dict[str, Any]:
    """The rank in the heading of the traceback that the line ends; else rank and host of what a
    logger wrote as an error above."""
    above = iter(line.raw_above(_MOST_OF_TRACEBACK))
    for raw in above:
        text = peeled(0, raw, Clock(None)).text
        if found := _OF_RANK.search(text):
            return {"rank": int(found[1])}
        if _TRACEBACK in text:
            logged = (peeled(0, one, Clock(None)) for one in islice(above, 1))
            errors = (one for one in logged if one.level in _ERRORS)
            return next(({"rank": one.rank, "node": one.node} for one in errors), {})
        if not text[:1].isspace() and not _GRAPH.match(text):
            break
    return {}


def read(line: Line) -> Sequence[Found]:
    """What one line says of a process that fails. At level INFO a program says what it copes with,
    or quotes."""
    found = [] if _COPED_WITH & {line.level, line.nccl} else _said(line)
    for one in found:
        one.columns = {**_stated(line), **one.columns}
    return found


def _said(line: Line) -> list[Found]:
    text = line.text
    if line.rank is None and "watchdog thread terminated" in text:
        line.rank = whose(line, text)["rank"]
    if text.lstrip().startswith("what():"):
        text = text.lstrip()[7:].strip()
    if _TRACEBACK in text:
        return _traceback(line)
    if of_device := _of_device(line, text):
        return of_device
    if _SIGKILL.search(text.strip()):
        return [event("exit", "-9", number=0, text=text)]
    if found := _DRIVER.search(text):
        task = _OF_TASK.search(text)
        known = _cuda(f"{found['name'].replace('_', ' ').lower()}: {found['why'] or text}")
        known.columns |= {"rank": int(task[1]) if task else line.rank}
        return [known]
    if duplicate := _DUPLICATE.search(text):
        return [
            event("error", "DuplicateGPU", rank=int(rank), text=duplicate[0])
            for rank in duplicate.groups()
        ]
    if loader := _LOADER.search(text):
        return [event("error", "DataLoaderWorker", text=loader[0])]
    if found := _EXCEPTION.match(text.strip()):
        if any("Exception ignored in" in above for above in line.above(_MOST_FRAMES)):
            return []  # at the end of a process, from a destructor
        text = _original(line, found["message"] or found["type"]) + _frame(line)
        return [event("error", found["type"], text=text)]
    if crash := _CRASH.search(text):
        return [event("crash", None, text=crash["fatal"] or text)]
    return []


FAILURES = Recogniser(
    "failures",
    (
        "Error",
        "Exception",
        "Interrupt",
        "TimeoutExpired",
        "CUDA error",
        "CUDA_ERROR_",
        "HIP error",
        "driver error:",
        "Cuda failure",
        "by GPU node-",
        "HSA_STATUS_ERROR",
        "out of memory",
        "OOM when",
        "RESOURCE_EXHAUSTED",
        "Out of memory",
        "ECC error",
        "NVLink error",
        "oom-kill:",
        "allocate memory",
        "Worker unexpectedly exits",
        "due to memory pressure",
        "low on memory",
        "bad_alloc",
        _TRACEBACK,
        "Duplicate GPU",
        "killed by signal",
        "exited unexpectedly",
        "SIGKILL",
        "signal: killed",
        "code 137",
        "ode: 137",
        "ode:    137",
        "Segmentation fault",
        "SIGSEGV",
        "(SIGBUS)",
        "(SIGFPE)",
        "(SIGILL)",
        "Fatal Python error",
        "Signal: ",
        "us error",
        "double free or",
        "loating point exception",
        "ALLOC_FAILED",
    ),
    read,
)
