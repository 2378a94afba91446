"""Check whether the hooks would load in the container images of this node's processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from oncall.core.errors import OncallError
from oncall.native import HOOKS, VERBS
from oncall.native.elf import ElfFile, read_elf
from oncall.native.images import Survey, c_library_of_folder, survey, why_not_loaded
from oncall.native.installed import library_for_launchers
from oncall.native.portability import spell, unportable

_MOST_PROBLEMS = 4


@dataclass(frozen=True)
class Images:
    """What was found, in a sentence, and the problems that would make processes exit."""

    text: str
    problems: tuple[str, ...] = ()


def hooks_for_launchers() -> list[ElfFile]:
    """The libraries that launchers preload. Raises OncallError."""
    return [read_elf(library_for_launchers(name)) for name in (HOOKS, VERBS)]


def hooks_text(hooks: Sequence[ElfFile]) -> Images:
    """The path of the hooks and the C library they need."""
    problems = [f"{each.path} {problem}" for each in hooks for problem in unportable(each)]
    needed = max(each.glibc_needed for each in hooks)
    return Images(f"{hooks[0].path}, for {spell(needed)} and newer", tuple(problems))


def images_here(hooks: Sequence[ElfFile], proc: Path = Path("/proc")) -> Images:
    """The C libraries of the running processes, and those with which the hooks would not load."""
    seen = survey(proc)
    problems = [
        f"{found.example}: {why}"
        for found in seen.found
        if (why := why_not_loaded(hooks, found.library))
    ]
    return Images(_spelled(seen), tuple(problems[:_MOST_PROBLEMS]))


def image_in(hooks: Sequence[ElfFile], root: Path) -> Images:
    """The same for an image in a folder. Raises BadInput."""
    library = c_library_of_folder(root)
    why = why_not_loaded(hooks, library)
    return Images(f"{root} has {library}{_CARE.get(str(library), '')}", (why,) if why else ())


def images_status() -> dict[str, object]:
    """The check of running processes, as a node reports it to a console."""
    try:
        images = images_here(hooks_for_launchers())
    except OncallError as error:
        return {"text": str(error), "problems": []}
    return {"text": images.text, "problems": list(images.problems)}


_CARE = {"musl": " (the hooks load but record nothing: NCCL does not support musl)"}


def _spelled(seen: Survey) -> str:
    counts: dict[str, int] = {}
    for found in seen.found:
        counts[str(found.library)] = counts.get(str(found.library), 0) + found.processes
    phrases = [
        f"{name} in {_processes(count)}{_CARE.get(name, '')}"
        for name, count in sorted(counts.items())
    ]
    text = ", ".join(phrases) or "no process with a C library found"
    if seen.hidden:
        text += f"; no permission to inspect {_processes(seen.hidden)}: run as root"
    return text


def _processes(count: int) -> str:
    return f"{count} process{'es' if count != 1 else ''}"
