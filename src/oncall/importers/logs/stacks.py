"""Stacks as py-spy, faulthandler and gdb print them: which Python function each process is in."""

from __future__ import annotations

import re
from collections.abc import Sequence

from oncall.importers.logs.line import Found, Line, Recogniser, event

_THREAD = re.compile(
    r"^\s*(?:Current thread|Thread) (?P<id>0x[0-9a-fA-F]+|"
    r'\d+)(?: \((?P<state>[\w+ ]+)\))?(?:: "(?P<name>[^"]*)"|'
    r" \(most recent call first\):)"
)
_PYSPY = re.compile(r"^\s+(?P<function>[\w.<>:~ ]+) \((?P<file>[^():]+):(?P<line>\d+)\)\s*$")
_FAULT = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>\S+)')
_MOST_FRAMES = 60
_LOADER = re.compile(r"dataloader|data_loader|DataLoader|data/_utils|webdataset|streaming/base")
_CHECKPOINT = re.compile(
    r"save_checkpoint|checkpoint\w*/|torch\.save|save_pretrained|serialization\.py"
)
_COLLECTIVE = re.compile(
    r"distributed_c10d|all_reduce|all_gather|reduce_scatter|broadcast|barrier|\brecv\b|\bsend\b|"
    r"cudaStreamSynchronize|ncclGroup|synchronize|cuCtx|cuStream|cuEvent"
)
_IDLE = re.compile(r"^(?:wait|acquire|_wait_for_tstate_lock|select|poll|accept|epoll|sleep)$")


def _frames(line: Line) -> list[str]:
    """The frames below a thread's line, innermost first; further threads share them."""
    frames: list[str] = []
    for text in line.below(_MOST_FRAMES):
        if _THREAD.search(text):
            if frames:
                break
            continue
        found = _PYSPY.search(text) or _FAULT.search(text)
        if found is None:
            break
        frames.append(f"{found['function'].strip()} at {found['file']}:{found['line']}")
    return frames


def _place(frames: Sequence[str]) -> tuple[str, str]:
    """What the process does, and its innermost frame that says so."""
    for frame in frames:
        if _LOADER.search(frame):
            return "data_loader", frame
        if _CHECKPOINT.search(frame):
            return "checkpoint", frame
        if _COLLECTIVE.search(frame):
            return "collective", frame
    return "waiting" if _IDLE.match(frames[0].split(" ")[0]) else "other", frames[0]


def read(line: Line) -> Sequence[Found]:
    """The stack of the thread whose first line this is; only main threads count."""
    found = _THREAD.search(line.text)
    if found is None or (found["name"] not in (None, "MainThread")):
        return []
    frames = _frames(line)
    if not frames:
        return []
    place, frame = _place(frames)
    return [event("stack", place, text=frame, thread=found["id"])]


STACKS = Recogniser("stacks", ('"MainThread"', "most recent call first", "Current thread"), read)
