"""The processes of a small job on this machine, one a GPU, as torchrun would start them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def start(
    command: Sequence[str], added: Mapping[str, str], ras_ports: Sequence[int], **streams: Any
) -> list[subprocess.Popen[bytes]]:
    """A rank for each of `ras_ports`. Each listens for RAS clients on a port of its own: on a
    shared one a question might reach the very rank that is stopped."""
    ours = ("ONCALL_", "NCCL_PROFILER", "LD_PRELOAD", "PYTHONPATH")
    shared = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
    shared |= {"WORLD_SIZE": str(len(ras_ports)), **added}
    own = [
        {"RANK": str(rank), "LOCAL_RANK": str(rank), "NCCL_RAS_ADDR": f"localhost:{port}"}
        for rank, port in enumerate(ras_ports)
    ]
    return [subprocess.Popen(command, env=shared | one, **streams) for one in own]


class Worker:
    """The job of worker.py, which runs blocks of steps when it is asked to."""

    def __init__(self, python: Path, gpus: int, added: Mapping[str, str], log: IO[bytes]) -> None:
        script = Path(__file__).with_name("worker.py")
        command = [str(python), str(script), "nccl" if gpus else "gloo"]
        ports = [free_port() for _ in range(gpus or 2)]
        pipe = subprocess.PIPE
        self.ranks = start(command, added, ports, stdin=pipe, stdout=pipe, stderr=log)

    def ask(self, what: str, steps: int) -> dict[str, float]:
        """Run a block on all ranks; what rank 0 says of its steps, in seconds."""
        for rank in self.ranks:
            assert rank.stdin is not None
            rank.stdin.write(f"{what} {steps}\n".encode())
            rank.stdin.flush()
        assert self.ranks[0].stdout is not None
        answer = self.ranks[0].stdout.readline()
        if not answer:
            raise RuntimeError("the job has ended, see its log")
        said: dict[str, float] = json.loads(answer)
        return said

    def end(self) -> None:
        for rank in self.ranks:
            rank.kill()
            rank.wait()
