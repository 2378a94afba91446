"""The processes of a small job on this machine, one a GPU, as torchrun would start them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

HERE = Path(__file__).parent


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def start(
    command: Sequence[str],
    added: Mapping[str, str],
    ras_ports: Sequence[int],
    output: IO[bytes],
    asked: bool = False,
) -> list[subprocess.Popen[bytes]]:
    """A rank for each of `ras_ports`. Each listens for RAS clients on a port of its own: on a
    shared one a question might reach the very rank that is stopped."""
    ours = ("ONCALL_", "NCCL_PROFILER", "LD_PRELOAD", "PYTHONPATH")
    base = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    base |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), **added}
    base |= {"WORLD_SIZE": str(len(ras_ports)), "OMP_NUM_THREADS": "1"}
    pipe = subprocess.PIPE if asked else None
    return [
        subprocess.Popen(
            command,
            env={**base, **dict.fromkeys(("RANK", "LOCAL_RANK"), str(rank))}
            | {"NCCL_RAS_ADDR": f"localhost:{port}"},
            stdin=pipe or subprocess.DEVNULL,
            stdout=pipe or output,
            stderr=output,
        )
        for rank, port in enumerate(ras_ports)
    ]


class Worker:
    """The job of worker.py, which runs blocks of steps when it is asked to."""

    def __init__(
        self, python: Path, world: int, backend: str, added: Mapping[str, str], log: Path
    ) -> None:
        self.log = log
        command = [str(python), str(HERE / "worker.py"), backend]
        with log.open("ab") as output:
            self.ranks = start(command, added, [free_port() for _ in range(world)], output, True)

    def ask(self, what: str, steps: int) -> dict[str, Any]:
        """Run a block on all ranks; what rank 0 says of it: seconds of a step."""
        for rank in self.ranks:
            assert rank.stdin is not None
            rank.stdin.write(f"{what} {steps}\n".encode())
            rank.stdin.flush()
        assert self.ranks[0].stdout is not None
        answer = self.ranks[0].stdout.readline()
        if not answer:
            raise RuntimeError(f"the job ended: {self.log.read_text(errors='replace')[-500:]}")
        said: dict[str, Any] = json.loads(answer)
        return said

    def end(self) -> None:
        for rank in self.ranks:
            rank.kill()
        for rank in self.ranks:
            rank.wait()
