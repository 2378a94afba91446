"""The published simulator's recordings: an ns-3 RDMA network with a collective and other flows.

Files, all text (Vedrfolnir's repository): `fct.txt` steps and flows that ended, `pfc.txt` pauses,
`topology.txt` links, `flow.txt` flows to come, `telemetry_<switch>.txt` reports of a switch. Hosts
and switches are numbered alike; here they are `host12` and `SW5`, ports count from 1 in the order
of a switch's links, and a rank is called by its host's number.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oncall.core.errors import Unreadable
from oncall.evidence.incident import Incident
from oncall.importers import files
from oncall.importers.bounds import metered
from oncall.importers.recordings import append_recording
from oncall.importers.switches.reports import FlowKey, Reports, read_reports

KIND = "switch_simulation"
IDENTITY = __name__

Integers = NDArray[np.int64]

_STEP_FIELDS = 11  # sid did send_step recv_step prev_sid sport dport bytes start fct standalone
_FLOW_FIELDS = 8  # sid did sport dport bytes start fct standalone
_PAUSE_FIELDS = 5  # time node node_type port pause
_PROTOCOL_UDP = 17
_HEAD_BYTES = 4096
_FACTOR = 40.0  # bytes of memory for each of the text, at worst: numbers of a digit in lists
_MOST_DIGITS = 6

_CONTENT = {
    "fct": re.compile(rb"\A(?:### (?:\d+ ){7}\d+|(?:\d+ ){10}\d+)\s*$", re.M),
    "pfc": re.compile(rb"\A\d+ \d+ [01] \d+ [01]\s*$", re.M),
    "topology": re.compile(
        rb"\A\d+ \d+ \d+\s{0,9}\n[\d ]++\s{0,9}\n\d+ \d+ [\d.]+[KMGT]?bps ", re.M
    ),
    "flow": re.compile(rb"\A\d+\s*\n\d+ \d+ \d+ \d+ \d+ [\d.]+\s*$", re.M),
    "telemetry": re.compile(rb"\Atime \d+\s*\n\s*(?:polling|signal)"),
}
# What never happened leaves an empty file, which only its name tells.
_EMPTY_NAMES = {"pfc": re.compile(r"pfc\.txt"), "telemetry": re.compile(r"telemetry_\d+\.txt")}
_BITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def recognises(path: Path, head: bytes) -> bool:
    """Whether the file starts like one of the simulator's, or is an empty one by its name."""
    return _part(path, head) is not None


def _part(path: Path, head: bytes) -> str | None:
    if not head.strip():
        return next(
            (part for part, name in _EMPTY_NAMES.items() if name.fullmatch(path.name)), None
        )
    return next((part for part, content in _CONTENT.items() if content.match(head)), None)


def _head(path: Path) -> bytes:
    try:
        return files.head(path, _HEAD_BYTES)
    except Unreadable:
        return b""


@dataclass(frozen=True)
class Identity:
    """Which parts of a recording a folder holds; the most come first."""

    folder: Path
    parts: frozenset[str]

    @property
    def worth(self) -> int:
        return len(self.parts)


def identify(paths: Sequence[Path]) -> Identity:
    """The parts of a recording in one folder."""
    parts = (_part(path, _head(path)) for path in paths)
    return Identity(paths[0].parent, frozenset(part for part in parts if part))


def relate(one: Identity, other: Identity) -> str | None:
    """`part` if two folders beside or inside each other hold different parts of a recording."""
    near = one.folder.parent in (other.folder, other.folder.parent) or (
        other.folder.parent == one.folder
    )
    return "part" if near and not one.parts & other.parts else None


# ---------------------------------------------------------------------- read


@dataclass(frozen=True)
class _Ended:
    """What fct.txt tells: steps (n, 11) and other flows (m, 8)."""

    steps: Integers
    others: Integers


def read(paths: Sequence[Path], incident: Incident, job: str) -> None:
    """Add flow_steps, flows, links, ranks, comms and the switch tables of one recording.

    Lines that cannot be read are counted in the recording's problem; the rest is kept. Without
    fct.txt or topology.txt the recording says what cannot be known.
    """
    heads = {path: _head(path) for path in paths}
    found = {path: _part(path, head) for path, head in heads.items()}
    ended = _Ended(_integers(0, _STEP_FIELDS), _integers(0, _FLOW_FIELDS))
    reports = Reports()
    for path, part in sorted(found.items(), key=lambda item: str(item[0])):
        problem, rows, text = None, 0, ""
        try:
            text = files.whole(path, _FACTOR).decode("ascii", "replace")
        except Unreadable as error:
            part, problem = "unreadable", str(error)
        if part == "fct":
            ended, problem = _read_ended(text)
            rows = len(ended.steps) + len(ended.others)
        elif part == "pfc":
            pauses, problem = _table(text.splitlines(), _PAUSE_FIELDS, range(1, 5))
            rows = _write_pauses(incident, pauses)
        elif part == "topology":
            rows, problem = _write_links(incident, text)
        elif part == "telemetry":
            switch = _switch_name(path)
            rows, problem = read_reports(text, switch, reports)
        elif part is None:
            problem = "not a file of the simulator, though named like one"
        append_recording(incident, job, KIND, path, rows, problem, [_note(part, heads[path])])
    flows = _numbered(ended, reports)
    if not len(ended.steps):
        where = str(paths[0].parent / "fct.txt")
        problem = "no step of a collective has ended: late steps are unknown"
        incident.append("recordings", {"job": [job], "path": [where], "problem": [problem]})
    _write_steps(incident, job, ended.steps, flows)
    _write_flows(incident, job, ended, flows)
    reports.write(incident, flows)


def _note(part: str | None, head: bytes) -> str | None:
    if part == "telemetry" and head.strip():
        return "switches reported only when a host asked for it"
    return None


def _switch_name(path: Path) -> str:
    number = re.search(r"(\d+)\D*$", path.stem)
    return f"SW{number[1]}" if number else path.stem


def _integers(rows: int, fields: int) -> Integers:
    return np.zeros((rows, fields), np.int64)


def _table(lines: Sequence[str], fields: int, names: range) -> tuple[Integers, str | None]:
    """Lines of `fields` whole numbers as (n, fields), and what was wrong with the others.

    Those of `names` are numbers of hosts, ports and steps, which are small.
    """
    kept: list[list[int]] = []
    bad = 0
    for line in metered(lines):
        words = line.split()
        whole = len(words) == fields and all(len(w) <= 18 and w.isdecimal() for w in words)
        if whole and all(len(words[place]) <= _MOST_DIGITS for place in names):
            kept.append([int(word) for word in words])
        elif words:
            bad += 1
    table = np.array(kept, np.int64).reshape(-1, fields)
    return table, f"{bad:,} of {len(kept) + bad:,} lines could not be read" if bad else None


def _read_ended(text: str) -> tuple[_Ended, str | None]:
    lines = text.splitlines()
    others, bad_others = _table(
        [line[3:] for line in lines if line[:3] == "###"], _FLOW_FIELDS, range(4)
    )
    steps, bad_steps = _table([line for line in lines if line[:3] != "###"], _STEP_FIELDS, range(7))
    return _Ended(steps, others), bad_steps or bad_others


# --------------------------------------------------------------------- write


def _write_pauses(incident: Incident, pauses: Integers) -> int:
    return incident.append(
        "switch_pauses",
        {
            "switch": [
                f"SW{node}" if is_switch else f"host{node}"
                for node, is_switch in pauses[:, 1:3].tolist()
            ],
            "port": pauses[:, 3],
            "at_ns": pauses[:, 0],
            "paused": pauses[:, 4] == 1,
        },
    )


def _write_links(incident: Incident, text: str) -> tuple[int, str | None]:
    """The links of topology.txt. A device's ports are numbered in the order of its links."""
    lines = text.splitlines()
    expected = int(lines[0].split()[2])
    switches = {int(word) for word in lines[1].split()}
    used: dict[int, int] = {}
    rows: list[dict[str, Any]] = []
    for line in lines[2:]:
        link = re.match(r"(\d{1,6}) (\d{1,6}) (\d{1,6}(?:\.\d+)?)([KMGT]?)bps ", line)
        if link is None or len(rows) == expected:
            break
        ends = int(link[1]), int(link[2])
        for end in ends:
            used[end] = used.get(end, 0) + 1
        a, b = (f"SW{end}" if end in switches else f"host{end}" for end in ends)
        rate = int(float(link[3]) * _BITS[link[4]] / 8)
        ports = {"a": a, "a_port": used[ends[0]], "b": b, "b_port": used[ends[1]]}
        rows.append({**ports, "rate_bytes_per_s": rate})
    incident.append_rows("links", rows)
    missing = expected - len(rows)
    problem = f"{missing} of {expected} links are missing" if missing else None
    return len(rows), problem


def _numbered(ended: _Ended, reports: Reports) -> dict[FlowKey, int]:
    """Every flow that anything names, numbered in the order of its addresses."""
    keys = {tuple(key) for key in ended.steps[:, [0, 1, 5, 6]].tolist()}
    keys |= {tuple(key) for key in ended.others[:, [0, 1, 2, 3]].tolist()}
    return {key: number for number, key in enumerate(sorted(keys | reports.flows()), 1)}


def _write_steps(incident: Incident, job: str, steps: Integers, flows: dict[FlowKey, int]) -> None:
    if not len(steps):
        return
    ended = len(steps)
    steps = np.concatenate([steps, _in_flight(steps)])
    ids = np.array([flows[tuple(key)] for key in steps[:, [0, 1, 5, 6]].tolist()])
    # What arrives at a host during one step is what its next step sends on.
    arriving = {(dst, step): flow for dst, step, flow in zip(*steps.T[1:3], ids, strict=True)}
    waits = [arriving.get((src, step - 1)) for src, step in steps[:, [0, 2]].tolist()]
    hosts = np.unique(steps[:, 0])
    comm = _hash_of(hosts)
    incident.append(
        "flow_steps",
        {
            "job": job,
            "comm": np.full(len(steps), comm, np.uint64),
            "seq": 0,
            "flow": ids,
            "src": steps[:, 0],
            "dst": steps[:, 1],
            "step": steps[:, 2],
            "bytes": steps[:, 7],
            "started_ns": steps[:, 8],
            "ended_ns": np.ma.masked_array(
                steps[:, 8] + steps[:, 9], np.arange(len(steps)) >= ended
            ),
            "waits_for_flow": waits,
            "expected_ns": steps[:, 10],
        },
    )
    names = [f"host{host}" for host in hosts]
    incident.append("ranks", {"job": job, "rank": hosts, "node": names})
    incident.append(
        "comms",
        {
            "job": job,
            "comm": np.full(len(hosts), comm, np.uint64),
            "rank": hosts,
            "comm_rank": np.arange(len(hosts)),
            "size": len(hosts),
            "name": f"collective of {len(hosts)} hosts",
        },
    )


def _in_flight(steps: Integers) -> Integers:
    """Steps that had begun and not ended, which fct.txt does not list; they have no duration.

    A sender that has ended fewer steps than another begins its next one when the last one and what
    it sends on are there.
    """
    ends = {(src, step): row for row, (src, step) in enumerate(steps[:, [0, 2]].tolist())}
    most = int(steps[:, 2].max(initial=0))
    arriving = {(dst, step): row for row, (dst, step) in enumerate(steps[:, 1:3].tolist())}
    found = []
    for src in np.unique(steps[:, 0]).tolist():
        done = int(steps[steps[:, 0] == src, 2].max())
        last, data = ends[src, done], arriving.get((src, done))
        if done < most and data is not None:
            row = steps[last].copy()
            row[2] = done + 1
            row[8] = (steps[[last, data], 8] + steps[[last, data], 9]).max()
            found.append(row)
    return np.array(found, np.int64).reshape(-1, _STEP_FIELDS)


def _hash_of(hosts: Integers) -> int:
    """Something to call the communicator by: the recording gives it no name."""
    digest = hashlib.blake2b(",".join(map(str, hosts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def _write_flows(incident: Incident, job: str, ended: _Ended, flows: dict[FlowKey, int]) -> None:
    ended_flows = {tuple(row[:4]): row[4:] for row in ended.others.tolist()}
    members = {tuple(key) for key in ended.steps[:, [0, 1, 5, 6]].tolist()}
    pairs = Counter(key[:2] for key in flows if key not in members)

    def row(key: FlowKey, flow: int) -> dict[str, Any]:
        src, dst, port, to_port = key
        own, ended_flow = key in members, ended_flows.get(key)
        size, began_ns, took_ns = ended_flow[:3] if ended_flow else (None, 0, 0)
        return {
            "flow": flow,
            "name": f"{src}->{dst}" + (f" port {port}" if pairs[src, dst] > 1 else ""),
            "src_ip": _address(src), "dst_ip": _address(dst),
            "src_host": f"host{src}", "dst_host": f"host{dst}",
            "src_port": port, "dst_port": to_port,
            "job": job if own else None, "rank": src if own else None, "is_collective": own,
            "bytes": size, "started_ns": began_ns if ended_flow else None,
            "ended_ns": began_ns + took_ns if ended_flow else None,
        }  # fmt: skip

    incident.append_rows("flows", (row(*one) for one in flows.items()), protocol=_PROTOCOL_UDP)


def _address(host: int) -> str:
    """The simulator's address of a host: 11, two bytes of its number, 1."""
    return f"11.{host >> 8 & 255}.{host & 255}.1"
