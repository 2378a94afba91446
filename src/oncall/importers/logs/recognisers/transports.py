"""Libraries under and beside NCCL: libfabric and its plugin, verbs, /dev/shm, SHARP, DeepEP."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from oncall.importers.logs.line import Found, Line, Recogniser, event


@dataclass(frozen=True)
class _Form:
    """A form of line: a word that it holds, its pattern, and what it says.

    Groups of the pattern are columns of the event. `said` takes them, too; empty: the whole line.
    """

    word: str
    pattern: re.Pattern[str]
    kind: str
    code: str
    said: str = ""


_FORMS = (
    # Both ends by their instances' ids; EC2 names no host otherwise.
    _Form(
        "Peer host id: ",
        re.compile(
            r"(?:message|Error): (?:\d+ \()?(?P<why>.{1,200}?) ?\(?My EFA addr: \S{1,200} "
            r"My host id: (?P<node>[\w-]{1,64}) Peer EFA addr: \S{1,200} "
            r"Peer host id: (?P<peer_host>[\w-]{1,64})"
        ),
        "ib",
        "transport",
        "EFA reports `{why}` towards {peer_host}",
    ),
    _Form(
        "aws-ofi-nccl",
        re.compile(r"NET/OFI .{0,40}aws-ofi-nccl initialization failed|No eligible providers"),
        "net",
        "no_plugin",
    ),
    _Form(
        "insert remote address",
        re.compile(r"NET/OFI Unable to insert remote address"),
        "init",
        "address",
    ),
    # A warning that counts only where nothing else says why the job failed.
    _Form("libfabric:", re.compile(r"^libfabric:\d{1,9}:\d{1,12}:"), "warning", "libfabric"),
    _Form(
        "Call to ibv_",
        re.compile(r"Call to ibv_\w{1,40} failed with (?:error |\d{1,3} )?Cannot allocate memory"),
        "init",
        "memlock",
    ),
    _Form(
        "No space left on device",
        re.compile(
            r"posix_fallocate failed ?: No space left|/dev/shm/nccl-.{0,80}No space left on device"
        ),
        "init",
        "shared_memory",
    ),
    _Form("CollNet", re.compile(r"Cannot initialize CollNet"), "sharp", "collnet"),
    _Form("SHARP ", re.compile(r"SHARP (?:group create|coll init|init)\b.{0,80}(?:fail|error)"),
        "sharp", "collnet"),
    _Form("SAT tree", re.compile(r"Failed to lock SAT tree"), "sharp", "collnet"),
    _Form("DeepEP", re.compile(r"DeepEP .{0,60}timeout|DeepEP .{0,20}error: .{0,40}time"),
        "desync", "inside"),
    # A thread of each process that lives: it counts the processes of a host.
    _Form("[Service thread]", re.compile(r"Connection closed by localRank"), "process", "nccl"),
)  # fmt: skip


def read(line: Line) -> Sequence[Found]:
    """What one line says. NCCL prints at level INFO what it copes with."""
    for form in _FORMS:
        found = form.pattern.search(line.text) if form.word in line.text else None
        if found is None or (form.kind in ("init", "sharp") and line.nccl == "INFO"):
            continue
        said = found.groupdict()
        about = {name: said[name] for name in said if name != "why"}
        # The host by which NCCL names itself, where it prints the line.
        about = {**about, "node": line.node} if line.nccl and "node" in about else about
        return [event(form.kind, form.code, text=form.said.format(**said) or line.text, **about)]
    return []


TRANSPORTS = Recogniser("transports", tuple(form.word for form in _FORMS), read)
