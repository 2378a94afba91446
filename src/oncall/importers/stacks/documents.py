"""Stacks as documents: `py-spy dump --json`, and the folded stacks of `py-spy record -f raw`."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from oncall.core.errors import Unreadable
from oncall.importers.bounds import metered
from oncall.importers.documents import JsonValues
from oncall.importers.stacks import places
from oncall.importers.stacks.dump import MOST_THREADS, Place, Process, Thread, bounded, frame

_ARRAY = re.compile(r"^\[", re.MULTILINE)
# What is no line of JSON.
_HEADING = re.compile(r"^(?:[=#*+>]|--|(?!true|false|null)[A-Za-z])", re.MULTILINE)
_FOLDED_FRAME = re.compile(r"^(?P<function>.*?) \((?P<file>[^():]+)(?::(?P<line>\d{1,9}))?\)$")
_FOLDED_PROCESS = re.compile(r"^process (\d{1,10})(?!\d)")
_FOLDED_THREAD = re.compile(r'^thread \((?P<id>\w+)\)(?:: "?(?P<name>[^"]*)"?)?')


def is_spy_json(head: str) -> bool:
    """Whether a text holds what `py-spy dump --json` writes."""
    return '"thread_id"' in head and '"frames"' in head and '"owns_gil"' in head


def from_json(text: str) -> list[Process]:
    """The processes of one or more documents, each below its heading if it has one."""
    found: dict[tuple[int, Place, int | None], Process] = {}
    values, at, number = JsonValues(), 0, 0
    while match := _ARRAY.search(text, at):
        place = _heading_before(text[at : match.start()])
        try:
            threads, at = values.at(text, match.start())
        except (ValueError, Unreadable):
            # No document goes on below a heading, so no line is read twice.
            following = _HEADING.search(text, match.end())
            if following is None:
                break
            at = following.start()
            continue
        number += 1
        for one in threads if isinstance(threads, list) else ():
            if isinstance(one, dict):
                pid = _whole(one.get("pid"))
                process = found.setdefault(
                    (number, place, pid), Process(Place(pid=pid).within(place))
                )
                if len(process.threads) < MOST_THREADS:
                    process.threads.append(_json_thread(one))
    return [process for process in found.values() if process.main is not None]


def _heading_before(text: str) -> Place:
    lines = [line for line in text.splitlines() if line.strip()]
    return (places.heading(lines[-1]) if lines else None) or Place()


def _json_thread(one: Mapping[str, Any]) -> Thread:
    frames = one.get("frames")
    state = {True: "active", False: "idle"}.get(one.get("active"))  # type: ignore[arg-type]
    if state and one.get("owns_gil") is True:
        state += "+gil"
    name, number = one.get("thread_name"), _whole(one.get("os_thread_id"))
    return Thread(
        bounded(_json_frames(frames if isinstance(frames, list) else [])),
        name if isinstance(name, str) else None,
        None if number is None else str(number),
        state,
    )


def _json_frames(frames: list[Any]) -> Iterator[str]:
    for one in frames:
        if isinstance(one, dict):
            file = one.get("short_filename") or one.get("filename") or "?"
            yield frame(str(one.get("name") or "?"), str(file), _whole(one.get("line")))


def _whole(value: Any) -> int | None:
    is_whole = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**62
    return value if is_whole else None


def is_folded(head: str) -> bool:
    """Whether a text holds folded stacks: all its first lines are one each."""
    lines = head.splitlines()[:20]
    found = [_folded(line) for line in lines[:-1] or lines]
    return bool(found) and all(one and _FOLDED_FRAME.match(one[0][-1]) for one in found)


def _folded(line: str) -> tuple[list[str], int] | None:
    """The parts of a folded stack, outermost first, and how often it was seen."""
    stack, _, count = line.rpartition(" ")
    if ";" not in stack or stack[:1].isspace() or not count.isdecimal():
        return None
    return stack.split(";"), int(count[:12])


def from_folded(text: str) -> list[Process]:
    """Each process in the stack of its main thread that was sampled most often."""
    counts: dict[int | None, dict[Thread, int]] = defaultdict(lambda: defaultdict(int))
    for line in metered(text.splitlines()):
        if found := _folded(line):
            pid, thread = _folded_thread(found[0])
            if thread.is_main:
                counts[pid][thread] += found[1]
    return [
        Process(Place(pid=pid), [max(threads, key=lambda one: threads[one])])
        for pid, threads in counts.items()
    ]


def _folded_thread(parts: list[str]) -> tuple[int | None, Thread]:
    pid: int | None = None
    name: str | None = None
    frames: list[str] = []
    for part in parts:
        if found := _FOLDED_PROCESS.match(part):
            pid = int(found[1])
        elif found := _FOLDED_THREAD.match(part):
            name = found["name"] or None
        elif found := _FOLDED_FRAME.match(part):
            line = found["line"]
            frames.append(frame(found["function"], found["file"], int(line) if line else None))
    return pid, Thread(bounded(reversed(frames)), name)
