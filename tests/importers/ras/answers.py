"""Answers of NCCL RAS, in JSON and as text, and what is read of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from oncall.evidence.incident import Incident
from oncall.importers.ras import importer as nccl_ras

HEAD = """NCCL version 2.27.5 compiled with CUDA 12.9
CUDA runtime version 12090, driver version 12090

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      4          8            1         32       32

Communicators... (0.01s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
"""
WORLD = "    0         1         4         8        32        32   RUNNING  MISMATCH\n"
AHEAD = """
Errors
======

Warnings
========

#0-0 (00ab27a079b828ff) MISMATCH
  Communicator ranks have different AllGather operation counts
  30 ranks have launched up to operation 640
  2 ranks have launched up to operation 641
  Rank 12 -- GPU 4 managed by process 812 on node 10.0.0.2
  Rank 13 -- GPU 5 (NVML 7) managed by process 813 on node 10.0.0.2

"""


def rank(number: int, counts: dict[str, int] | None = None, **status: Any) -> dict[str, Any]:
    return {
        "rank": number,
        "host": f"10.0.0.{number // 2}",
        "pid": 100 + number,
        "cuda_dev": number % 2,
        "nvml_dev": number % 2,
        "status": {"init_state": 0, "async_error": 0} | status,
        "collective_counts": counts or {"AllReduce": 5, "AllGather": 2},
    }


def poll(*comms: dict[str, Any], at: str = "2026-01-02 03:04:05") -> str:
    return json.dumps({"nccl_version": "2.29.1", "timestamp": at, "communicators": list(comms)})


def comm(name: str, ranks: list[dict[str, Any]], missing: list[dict[str, Any]] = []) -> Any:  # noqa: B006
    size = len(ranks) + len(missing)
    return {"hash": name, "size": size, "ranks": ranks, "missing_ranks": missing}


@contextmanager
def read(tmp_path: Path, *texts: str) -> Iterator[Incident]:
    paths = []
    for i, text in enumerate(texts):
        paths.append(tmp_path / f"{i}.out")
        paths[-1].write_text(text)
    with Incident.empty() as incident:
        nccl_ras.read(paths, incident, "j")
        yield incident
