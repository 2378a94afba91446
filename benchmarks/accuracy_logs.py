"""How often the headline names what a job's log shows: text logs whose truth is known.

    python benchmarks/accuracy_logs.py [../shared/data/logs] [-v]

Each folder holds a case: files of text, and `truth.json` with the kind of fault, who is to blame
(null: nobody may be named) and readings that are as good. Only the first finding counts; findings
for information do not. A healthy log must have none, whatever the exit code.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from oncall.core.diagnosis import Diagnosis, Finding
from oncall.core.errors import OncallError
from oncall.evidence.codes.pci_addresses import is_pci_address, pci_address
from oncall.evidence.incident import Incident
from oncall.importers import detect
from oncall.rules.language.load import load_rulebooks, shipped_folder
from oncall.use_case import diagnose as use_case

CASES = Path(__file__).parents[2] / "shared" / "data" / "logs"

# Which verdicts say a kind of fault.
VERDICTS: dict[str, set[str | None]] = {
    "all_waiting_unknown": {"ALL_WAITING", "NO_PROGRESS", "H3", "STANDSTILL"},
    "checkpoint_or_eval_longer_than_timeout": {"CHECKPOINT_OR_EVALUATION"},
    "data_loader_stall": {"DATA_LOADER"},
    "ecc": {"GPU_ECC"},
    "gdr_off": {"GDR_OFF"},
    "healthy": {None},
    "heartbeat_stuck": {"HEARTBEAT_STUCK"},
    "ib_error": {"IB_COMPLETION"},
    "init_hang": {"INIT_HANG"},
    "link_down": {"LINK_DOWN", "LINK_FLAPPED"},
    "mismatch": {"MISMATCH", "H2"},
    "node_failed": {"NODE_FAILED"},
    # The last three by stacks: the odd one out.
    "not_joined": {"NOT_JOINED", "H1", "STANDSTILL", "AWAITED", "ELSEWHERE", "NOT_ENTERED"},
    "nvls": {"NVLS", "SHARP_OFF", "FABRIC_MANAGER"},
    "oom_gpu": {"OOM_GPU"},
    "oom_host": {"OOM_HOST"},
    "preempted/signal": {"TERMINATED", "TIME_LIMIT", "PREEMPTED"},
    "slow_rank": {"SLOW_ITERATIONS", "SLOW_RANK", "SLOW_DATA", "GPU_THROTTLED"},
    "socket_fallback": {"SOCKET_FALLBACK"},
    "traceback_first": {"FIRST_ERROR", "PROCESS_CRASHED", "HOST_CRASHED"},
    "version_mismatch": {"VERSION_MISMATCH", "DRIVER_MISMATCH"},
    "wrong_interface": {"WRONG_INTERFACE", "WRONG_INTERFACE_USED"},
    "xid": {"GPU_XID", "GPU_ERROR", "GPU_REPAIR", "GPU_PROGRAM"},
}
_MOST_OF_A_SIDE = 12


def blamed(finding: Finding) -> dict[str, set[str]]:
    """Ranks, nodes, GPUs and links that a finding blames."""
    found: dict[str, set[str]] = {"ranks": set(), "nodes": set(), "gpus": set(), "links": set()}
    for one in finding.blame:
        where = one.where
        if where.get("rank") is not None:
            found["ranks"].add(str(where["rank"]))
        elif is_pci_address(str(where.get("gpu", ""))):  # an index names no GPU of the truth's
            found["gpus"].add(str(where["gpu"]).removesuffix(".0"))
        elif where.get("node") is not None:
            found["nodes"].add(str(where["node"]))
        if where.get("link") is not None:
            found["links"].add(str(where["link"]))
    return {kind: names for kind, names in found.items() if names}


def right(finding: Finding, wanted: dict[str, Any] | None) -> bool:
    """Whether it blames just these; where several kinds of things are named, one will do."""
    found = blamed(finding)
    if wanted is None:
        return not found
    truth = {
        kind: {
            " - ".join(map(str, name))
            if isinstance(name, list)
            else (pci_address(str(name)) or str(name)).removesuffix(".0")
            for name in names
        }
        for kind, names in wanted.items()
        if names
    }
    return any(found.get(kind) == names for kind, names in truth.items())


def diagnosed(folder: Path) -> Diagnosis | str:
    """The diagnosis of a case, or why there is none."""
    with Incident.empty() as incident:
        try:
            paths = sorted(path for path in folder.iterdir() if path.name != "truth.json")
            detect.load([folder] if len(paths) > 1 else paths, incident, folder.name)
            return use_case.diagnose(incident, load_rulebooks([shipped_folder()]))
        except OncallError as error:
            return str(error)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", type=Path, nargs="?", default=CASES)
    parser.add_argument("-v", action="store_true", help="list every case")
    given = parser.parse_args()
    count: Counter[str] = Counter()
    for place in sorted(given.cases.glob("*/truth.json")):
        truth = json.loads(place.read_text())
        healthy = truth["kind"] == "healthy"
        count["healthy" if healthy else "faults"] += 1
        answer = diagnosed(place.parent)
        if isinstance(answer, str):
            print(f"not read   {place.parent.name}: {answer[:150]}")
            continue
        count["recognised"] += 1
        first = answer.faults[0] if answer.faults else None
        verdict = first.verdict if first else None
        # A kind that no verdict says alone has the verdict that comes closest.
        said = truth["kind"] if truth["kind"] in VERDICTS else truth["verdict"]
        kind = verdict in VERDICTS.get(said, set())
        who = kind and (
            first is None or any(right(first, one) for one in (truth["who"], *truth["also_right"]))
        )
        count["alarms"] += healthy and first is not None
        if not healthy:
            count["kind"] += kind
            count["who"] += who
        if given.v or not kind or not who:
            named = (
                {k: sorted(v)[:_MOST_OF_A_SIDE] for k, v in blamed(first).items()} if first else {}
            )
            mark = "ok        " if who else "WHO       " if kind else "KIND      "
            others = [finding.verdict for finding in answer.faults[1:]]
            print(
                f"{mark} {place.parent.name}: {truth['kind']} {truth['who']}, got "
                f"{verdict} {named} {others}"
            )
    faults, cases = count["faults"], count["faults"] + count["healthy"]
    print(f"recognised {count['recognised']}/{cases}")
    print(f"kind       {count['kind']}/{faults}")
    print(f"who        {count['who']}/{faults}")
    print(f"alarms     {count['alarms']}/{count['healthy']} healthy logs")
    sys.exit(0)


if __name__ == "__main__":
    main()
