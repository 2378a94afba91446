"""What a job has to be set to so that its next incident leaves evidence, and what a running one
would leave: variables of PyTorch and NCCL by their versions, and of our hooks.

Sources: c10d's FlightRecorder.hpp and ProcessGroupNCCL.hpp, NCCL's documentation and release notes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from oncall.core.printable import shell_word
from oncall.fleet.checkup.doctor_here import Check

Version = tuple[int, ...]

CALLS = 2_000  # of each rank that the Flight Recorder keeps; PyTorch's own default
RENAMED: Version = (
    2,
    8,
)  # PyTorch: the Flight Recorder's variables are called TORCH_FR_* from here
_ON_BY_DEFAULT: Version = (2, 11)  # PyTorch: the Flight Recorder keeps 2,000 calls unasked
_DUMPS_UNASKED: Version = (2, 7)  # PyTorch: from here the default of the dump may be on
_RAS_SINCE: Version = (2, 24)
_RAS_CRASHES: tuple[Version, Version] = ((2, 26, 2), (2, 27, 7))  # ends jobs, both included
_RAS_SAFE: Version = (2, 28, 7)  # answers queries, in JSON, without a risk to the job
PIPE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
_BUFFER = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
_FILE = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")


@dataclass(frozen=True)
class Versions:
    """The versions that a job runs with; None: unknown."""

    torch: Version | None = None
    nccl: Version | None = None


@dataclass(frozen=True)
class Setting:
    """A variable, and why it is set, with the version that knows it."""

    name: str
    value: str
    why: str


def parse_version(text: str | None) -> Version | None:
    """`2.13.0+cpu` as (2, 13, 0); None if it is no version."""
    found = re.match(r"v?(\d{1,4}(?:\.\d{1,4}){1,3})", text or "")
    return tuple(map(int, found[1].split("."))) if found else None


def evidence_settings(folder: str, pipe: str | None, versions: Versions) -> Iterator[Setting]:
    """What to set, in the launcher's words. `folder` is where the evidence of the job goes; `pipe`
    begins the path of each rank's pipe. PyTorch deletes a pipe of that name at start, and fails
    where another user owns it, so no two jobs may share it; None: no pipe.
    """
    for name in _names(_BUFFER, versions):
        yield Setting(
            name,
            str(CALLS),
            f"Flight Recorder: keeps the last {CALLS:,} calls of each rank{_since(name)}",
        )
    yield Setting(
        "TORCH_NCCL_DUMP_ON_TIMEOUT",
        "1",
        "writes the Flight Recorder of every rank when a watchdog times out (PyTorch 2.4)",
    )
    for name in _names(_FILE, versions):
        yield Setting(
            name,
            f"{folder}/fr_trace_rank_",
            f"where it is written, followed by the rank; a folder for each job{_since(name)}",
        )
    if pipe is not None:
        yield Setting(
            PIPE,
            pipe,
            "a pipe a rank: `echo 1 > PIPE` on its node writes its dump at once (PyTorch 2.4)",
        )
    yield Setting(
        "NCCL_DEBUG", "INFO", "NCCL's log; with the subsystems below some hundred lines a rank"
    )
    yield Setting(
        "NCCL_DEBUG_SUBSYS", "INIT,ENV,NET", "what it found at start: networks, GPUDirect, versions"
    )
    yield Setting(
        "NCCL_DEBUG_FILE",
        f"{folder}/nccl.%h.%p.log",
        "a file a rank: %h is the host, %p the process",
    )
    yield from _ras(versions.nccl)
    yield Setting(
        "PYTHONFAULTHANDLER",
        "1",
        "a crashing process writes the stacks of its threads (Python 3.3)",
    )


def _ras(nccl: Version | None) -> Iterator[Setting]:
    if nccl is None or nccl < _RAS_SINCE:
        return
    first, last = _RAS_CRASHES
    if _ras_may_crash(nccl):
        yield Setting(
            "NCCL_RAS_ENABLE",
            "0",
            f"NCCL RAS can end the job from {_dotted(first)} to {_dotted(last)}; newer NCCL: 1",
        )
    elif nccl >= _RAS_SAFE:
        yield Setting(
            "NCCL_RAS_ENABLE",
            "1",
            "NCCL RAS answers for the whole job: `oncall diagnose ras://HOST` (NCCL 2.28.7)",
        )


def _ras_may_crash(nccl: Version) -> bool:
    """Whether any version that begins so can end the job: 2.26 may be 2.26.2."""
    first, last = (each[: len(nccl)] for each in _RAS_CRASHES)
    return first <= nccl[:3] <= last


def ras_remark(nccl: Version | None) -> str:
    """What to know of RAS where nothing is set for it."""
    first, last = map(_dotted, _RAS_CRASHES)
    if nccl is None:
        return (
            f"NCCL RAS: with NCCL {first} to {last} set NCCL_RAS_ENABLE=0, as it can end the job; "
            "--nccl VERSION decides"
        )
    if nccl < _RAS_SINCE:
        return f"NCCL RAS: not there before NCCL {_dotted(_RAS_SINCE)}"
    if nccl < _RAS_SAFE and not _ras_may_crash(nccl):
        return f"NCCL RAS: on, but do not query it before NCCL {_dotted(_RAS_SAFE)}"
    return ""


def _names(names: tuple[str, str], versions: Versions) -> tuple[str, ...]:
    """The names that this PyTorch knows: both where its version is unknown."""
    if versions.torch is None:
        return names
    return names[:1] if versions.torch >= RENAMED else names[1:]


def _since(name: str) -> str:
    new = name.startswith("TORCH_FR_")
    return (
        f" (PyTorch {_dotted(RENAMED)} and newer)"
        if new
        else f" (before PyTorch {_dotted(RENAMED)})"
    )


def _dotted(version: Version) -> str:
    return ".".join(map(str, version))


# ------------------------------------------------------------------- a running job


def job_checks(settings: Mapping[str, str], versions: Versions) -> Iterator[Check]:
    """What a process with these variables would leave of an incident, and what to change."""
    yield _recorder(settings, versions)
    yield _dump(settings, versions.torch)
    yield _folder(settings, versions)
    yield _log(settings)
    if versions.nccl is not None:
        yield _ras_check(settings, versions.nccl)
    yield _hooks(settings)
    yield _faults(settings)


def _recorder(settings: Mapping[str, str], versions: Versions) -> Check:
    name = "Flight Recorder"
    value = next((settings[each] for each in _BUFFER if settings.get(each)), None)
    set_it = _export(_names(_BUFFER, versions)[0], str(CALLS))
    only_new = not settings.get(_BUFFER[1]) and bool(settings.get(_BUFFER[0]))
    if versions.torch is not None and versions.torch < RENAMED and only_new:
        text = f"off: PyTorch {_dotted(versions.torch)} does not know {_BUFFER[0]}"
        return Check(name, "wrong", text, _export(_BUFFER[1], str(CALLS)))
    if value is None:
        if versions.torch is not None and versions.torch >= _ON_BY_DEFAULT:
            return Check(name, "ok", f"keeps {CALLS:,} calls of each rank, PyTorch's default")
        return Check(
            name, "wrong", "not set, and off by default in most versions of PyTorch", set_it
        )
    if not value.isdecimal() or int(value) == 0:
        return Check(name, "wrong", f"off: its size is {value}", set_it)
    return Check(name, "ok", f"keeps {int(value):,} calls of each rank")


def _dump(settings: Mapping[str, str], torch: Version | None) -> Check:
    name = "TORCH_NCCL_DUMP_ON_TIMEOUT"
    value = settings.get(name)
    # Before it became the default, the most detailed debug level switched it on as well.
    detail = value is None and settings.get("TORCH_DISTRIBUTED_DEBUG", "").upper() == "DETAIL"
    if detail or (value or "").lower() in ("1", "true", "yes", "y", "on", "t"):
        return Check("dump", "ok", "written on every rank when a watchdog times out")
    set_it = _export(name, "1")
    if value is None and (torch is None or torch >= _DUMPS_UNASKED):
        text = f"depends on PyTorch: {name} is not set, and only newer versions default to 1"
        return Check("dump", "absent", text, set_it)
    text = f"not written on a timeout: {name} is {value or 'not set'}"
    return Check("dump", "wrong", text, set_it)


def _folder(settings: Mapping[str, str], versions: Versions) -> Check:
    value = next((settings[each] for each in _FILE if settings.get(each)), None)
    if value is not None:
        return Check("dump folder", "ok", f"{value}RANK")
    text = "each node's ~/.cache/torch (before PyTorch 2.8: /tmp), where the next job overwrites it"
    step = _export(_names(_FILE, versions)[0], "/shared/JOB/fr_trace_rank_")
    return Check("dump folder", "absent", text, step)


def _log(settings: Mapping[str, str]) -> Check:
    level, file = settings.get("NCCL_DEBUG"), settings.get("NCCL_DEBUG_FILE")
    if level is None:
        return Check(
            "NCCL log", "absent", "none: NCCL_DEBUG is not set", _export("NCCL_DEBUG", "INFO")
        )
    if file is not None and "%p" not in file and "%h" not in file:
        text = f"{level}, but all ranks write over one another in {file}"
        unique = shell_word(f"{file}.%h.%p", "file")
        return Check("NCCL log", "wrong", text, _export("NCCL_DEBUG_FILE", unique))
    return Check("NCCL log", "ok", f"{level}, to {file or 'the standard output of the job'}")


def _ras_check(settings: Mapping[str, str], nccl: Version) -> Check:
    on = settings.get("NCCL_RAS_ENABLE", "1") != "0"
    if nccl < _RAS_SINCE:
        return Check("RAS", "absent", f"not there before NCCL {_dotted(_RAS_SINCE)}")
    if on and _ras_may_crash(nccl):
        text = f"on: NCCL {_dotted(nccl)} can crash in it, do not query it"
        return Check("RAS", "wrong", text, _export("NCCL_RAS_ENABLE", "0"))
    if not on:
        return Check("RAS", "absent", "off: NCCL_RAS_ENABLE is 0")
    if nccl < _RAS_SAFE:
        return Check("RAS", "absent", f"on, but a query may crash NCCL before {_dotted(_RAS_SAFE)}")
    return Check("RAS", "ok", "answers for the whole job: oncall diagnose ras://HOST")


def _hooks(settings: Mapping[str, str]) -> Check:
    preloaded = "liboncall_hooks" in settings.get("LD_PRELOAD", "")
    if preloaded or "liboncall_hooks" in settings.get("NCCL_PROFILER_PLUGIN", ""):
        return Check("oncall hooks", "ok", "loaded: calls and transfers are recorded")
    return Check("oncall hooks", "absent", "not loaded", "oncall env LAUNCHER")


def _faults(settings: Mapping[str, str]) -> Check:
    if settings.get("PYTHONFAULTHANDLER"):
        return Check("faulthandler", "ok", "a crash leaves the stacks of all threads")
    text = "a crash leaves no stack"
    return Check("faulthandler", "absent", text, _export("PYTHONFAULTHANDLER", "1"))


def _export(name: str, value: str) -> str:
    return f"export {name}={value}  # for the next start"
