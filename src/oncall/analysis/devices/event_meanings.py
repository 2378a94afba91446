"""What the codes in `host_events` mean, which device they concern, and what to do."""

from __future__ import annotations

from oncall.evidence import relation
from oncall.evidence.codes.event_catalogue import MEANINGS, Advice, Weight, advice_of


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _advice(code: str, weight: Weight) -> str:
    advice: Advice = advice_of(code, weight)
    return f"{_quoted(advice.action)}, {_quoted(advice.command)}, {advice.there}"


@relation(
    "event_meanings",
    reads=["host_events|hosts|nics|gpus|devices"],
    columns=[
        ("code", "VARCHAR", "", "as in host_events"),
        (
            "part",
            "VARCHAR",
            "",
            "gpu, nvlink, nic, pcie, fabric, memory, cpu, process, storage or host",
        ),
        ("weight", "VARCHAR", "", "fault, warning, program (its own doing) or notice"),
        ("meaning", "VARCHAR", "", "in words"),
        ("action", "VARCHAR", "", "what to do, as a sentence"),
        ("command", "VARCHAR", "", "a command that shows more; NIC, GPU, ... stand for the device"),
        ("is_there", "BOOLEAN", "", "the command is typed on the event's host"),
    ],
    source="NVIDIA Xid catalogue; the kernel's own messages",
)
def event_meanings() -> str:
    """What each code means; an Xid that was seen and is not known is a warning of its GPU."""
    known = ", ".join(
        f"('{code}', '{part}', '{weight}', {_quoted(meaning)}, {_advice(code, weight)})"
        for code, (part, weight, meaning) in MEANINGS.items()
    )
    unknown = advice_of("", "warning")
    return f"""
        WITH known(code, part, weight, meaning, action, command, is_there) AS (VALUES {known}),
        seen AS (
            SELECT code, regexp_replace(code, '^sxid_\\d+$', 'sxid') AS known_as,
                regexp_extract(code, '^xid_(\\d+)$', 1) AS xid
            FROM (SELECT code FROM host_events WHERE code IS NOT NULL UNION SELECT code FROM known))
        SELECT seen.code, coalesce(part, 'gpu') AS part, coalesce(weight, 'warning') AS weight,
            coalesce(meaning, 'Xid ' || xid || ', see the driver''s documentation') AS meaning,
            coalesce(action, {_quoted(unknown.action)}) AS action,
            coalesce(command, {_quoted(unknown.command)}) AS command,
            coalesce(is_there, {unknown.there}) AS is_there
        FROM seen LEFT JOIN known ON known.code = known_as WHERE part IS NOT NULL OR xid <> ''
    """
