"""Reports of NCCL's diagnostics: what they find, of which ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncall.evidence.incident import Incident
from oncall.importers.detect import load
from oncall.rules.language.load import load_rulebooks, shipped_folder
from oncall.use_case.diagnose import diagnose

AT = "gpu7:4711 NCCL DIAG "
HEAD = f"{AT}=== RAS Diagnostics ===\n"
SOUND = f"{AT}[OK]   CUDA driver version: 13000 consistent across 4 ranks in comm 0x12\n"
OF = "across 4 ranks in comm 0x12"
ECC = f"{AT}[INFO] ECC: uncorrected volatile errors on rank(s) {{2}} (worst=3) {OF}\n"
NVLINK = f"{AT}[INFO] NVLink: inactive link(s) on rank(s) {{1}} {OF}\n"
XID = f"{AT}[INFO] Xid 79 detected 1 time on host gpu9. Follow the documentation: https://x.y\n"
DRIVER = f"{AT}[INFO] CUDA driver version: mismatch {OF}, rank(s) {{3}} differ from rank 0\n"
END = f"{AT}RAS diagnostics completed in 12.3 ms across 4 RAS peers\n"


def setting(name: str, **ranks: str) -> str:
    head = f"{AT}[INFO] NCCL environment: "
    sides = "".join(f"{head}{name}={value} on rank(s) {{{of}}}\n" for value, of in ranks.items())
    return f"{head}mismatch across 4 ranks in comm 0x12 for {name}\n" + sides


@pytest.mark.parametrize(
    ("found", "verdict", "ranks"),
    [
        (SOUND, None, []),
        (ECC, "GPU_ECC", [2]),
        (NVLINK, None, []),
        (XID, "GPU_XID", [None]),
        (DRIVER, None, []),
        (setting("NCCL_ALGO", Ring="0,1,2", Tree="3"), "VERSION_MISMATCH", [3]),
        (setting("NCCL_ALGO", Ring="0,1", Tree="2,3"), "VERSION_MISMATCH", []),
        (setting("NCCL_DEBUG", INFO="0,1,2", WARN="3"), None, []),
    ],
)
def test_what_they_find(tmp_path: Path, found: str, verdict: str | None, ranks: list[int]) -> None:
    (tmp_path / "diag.txt").write_text(HEAD + found + END)
    with Incident.empty() as incident:
        load([tmp_path / "diag.txt"], incident)
        faults = diagnose(incident, load_rulebooks([shipped_folder()])).faults
    assert [fault.verdict for fault in faults] == ([verdict] if verdict else [])
    assert [one.where.get("rank") for fault in faults for one in fault.blame] == ranks


@pytest.mark.parametrize("found", [NVLINK, DRIVER])
def test_what_may_slow_a_job_and_stops_none_is_a_note(tmp_path: Path, found: str) -> None:
    (tmp_path / "diag.txt").write_text(HEAD + found + END)
    with Incident.empty() as incident:
        load([tmp_path / "diag.txt"], incident)
        (note,) = diagnose(incident, load_rulebooks([shipped_folder()])).notes
    assert found.strip().removeprefix(f"{AT}[INFO] ") in note
