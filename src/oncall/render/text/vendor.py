"""A ticket for the maker of a part: the verdict in three lines, which part it is, what it reported,
what it counted before and after, and the commands whose output its maker asks for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from oncall.core.diagnosis import Diagnosis, Finding
from oncall.core.errors import UsageError
from oncall.core.printable import clean, typed
from oncall.evidence.codes.pci_addresses import is_pci_address
from oncall.evidence.incident import Incident
from oncall.evidence.schema import BY_NAME
from oncall.views import words

_MOST_LINES = 20  # of what the part reported
_THERE = "node IS NOT DISTINCT FROM ?"  # a kernel's log may not name its host
_READINGS = {"gpu": "gpus", "nic": "nics"}
_IDENTITY = {
    "model": "model",
    "serial": "serial number",
    "pci_bus": "PCI address",
    "firmware": "firmware",
}
# Drivers whose lines name them, and how rocm-smi gives a model.
_OTHER_MAKERS = r"\b(amdgpu|xe|i915|0x[0-9a-f]{4})\b"
_COMMANDS = {
    "gpu of another maker": (
        "ssh {node} sudo lspci -vvv -s {pci_bus}",
        "ssh {node} sudo dmesg -T",
    ),
    "gpu": (
        "ssh {node} sudo nvidia-bug-report.sh",
        "ssh {node} nvidia-smi -q -i {pci_bus}",
        "ssh {node} dcgmi diag -r 3",
    ),
    "nic": (
        "ssh {node} sudo lspci -vvv -s {pci_bus}",
        "ssh {node} ethtool -S {interface}",
        "ssh {node} ethtool -m {interface}",
    ),
}


def vendor_ticket(incident: Incident, diagnosis: Diagnosis) -> str:
    """The ticket about the first GPU or NIC that is blamed. Raises UsageError if none is."""
    for finding in (*words.roots(diagnosis), *diagnosis.findings):
        kind = finding.claim.on or ""
        for where in (one.where for one in finding.blame):
            if kind in _READINGS and where.get(kind) is not None:
                part = _part(incident, kind, where.get("node"), str(where[kind]))
                return "\n".join((*_verdict(finding), *_ticket(incident, kind, part))) + "\n"
    raise UsageError("no GPU or NIC is blamed: there is nothing to tell its maker")


def _verdict(finding: Finding) -> Iterator[str]:
    yield words.sentence(finding)
    yield words.conclusion(finding) or clean(finding.title)
    sure = f"confidence {words.percent(finding.confidence)}"
    yield f"{_at(finding.at_ns)}, {sure}, {finding.rulebook}.{finding.verdict} of oncall"


def _ticket(incident: Incident, kind: str, part: Mapping[str, str | None]) -> Iterator[str]:
    shown = {name: clean(value or "not recorded") for name, value in part.items()}
    name = " ".join(filter(None, (kind.upper(), clean(part["device"] or ""))))
    yield from ("", f"Part: {name} of {clean(part['node'] or 'a host that is not recorded')}")
    yield from (f"  {meaning:<14} {shown[name]}" for name, meaning in _IDENTITY.items())
    yield from _reported(incident, part)
    yield from _counted(incident, kind, part)
    given = {name: value or name.upper() for name, value in part.items()}
    yield from ("", "To attach, from the node before it is reset:")
    yield from (f"  {typed(one, **given)}" for one in _commands(incident, kind, part))


def _commands(incident: Incident, kind: str, part: Mapping[str, str | None]) -> Sequence[str]:
    """Those of the maker, as far as the model and lines of its driver show who that is."""
    rows = incident.con.execute(
        f"SELECT text FROM host_events WHERE {_THERE} AND device = ?",
        [part["node"], part["pci_bus"]],
    ).fetchall()
    said = " ".join(text or "" for (text,) in (*rows, (part["model"],)))
    other = kind == "gpu" and re.search(_OTHER_MAKERS, said)
    return _COMMANDS["gpu of another maker" if other else kind]


def _part(incident: Incident, kind: str, node: Any, blamed: str) -> dict[str, str | None]:
    """What is known of it, by the columns of `devices`; it is blamed by name or PCI address."""
    names = ("device", "interface", *_IDENTITY)
    newest = ", ".join(f"any_value({name} ORDER BY at_ns DESC)" for name in names)
    rows = incident.con.execute(
        f"SELECT {newest} FROM devices WHERE {_THERE} AND kind = ? AND ? IN (device, pci_bus)",
        [node, kind, blamed],
    ).fetchall()
    part = dict(zip(names, rows[0], strict=True))
    named = "pci_bus" if is_pci_address(blamed) else "device"
    return part | {"node": node, named: part[named] or blamed}


def _reported(incident: Incident, part: Mapping[str, str | None]) -> Iterator[str]:
    """Lines of the node about it, as they were written."""
    rows = incident.con.execute(
        f"SELECT at_ns, text FROM host_events WHERE {_THERE} AND device IN (?, ?, ?) "
        "ORDER BY at_ns NULLS LAST, line",
        [part["node"], part["pci_bus"], part["device"], part["interface"]],
    ).fetchall()
    yield from ("", "It reported:" if rows else "It reported nothing that was recorded.")
    yield from (f"  {_at(at_ns)}  {clean(text or '')}" for at_ns, text in rows[:_MOST_LINES])
    if len(rows) > _MOST_LINES:
        yield f"  and {len(rows) - _MOST_LINES} more"


def _counted(incident: Incident, kind: str, part: Mapping[str, str | None]) -> Iterator[str]:
    """Its first and its last reading, as far as they differ; and what stayed the same."""
    table = BY_NAME[_READINGS[kind]]
    names = [one.name for one in table.columns if one.name not in ("node", kind, "at_ns", "port")]
    columns = ", ".join(names)
    rows = incident.con.execute(
        f"SELECT at_ns, {columns} FROM {table.name} WHERE {_THERE} AND {kind}::VARCHAR = ? "
        f"AND concat({columns}) <> '' ORDER BY at_ns",
        [part["node"], part["device"]],
    ).fetchall()
    if not rows:
        yield from ("", "No reading of it was recorded.")
        return
    (first_ns, *before), (last_ns, *after) = rows[0], rows[-1]
    pairs = list(zip(names, map(_shown, before), map(_shown, after), strict=True))
    yield from ("", f"Its readings at {' and at '.join({_at(first_ns): 1, _at(last_ns): 1})}:")
    yield from (f"  {name:<20} {was:>16} {now:>16}" for name, was, now in pairs if was != now)
    same = [f"{name} {was}" for name, was, now in pairs if was == now and was != "-"]
    yield f"  unchanged: {', '.join(same) or 'none'}"


def _at(at_ns: int | None) -> str:
    return "time unknown" if at_ns is None else words.instant(at_ns)


def _shown(value: object) -> str:
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
