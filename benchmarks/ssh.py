"""How long it takes to reach a fleet: log in and say hello to every node, by both transports.

    python benchmarks/ssh.py [64 256]

One sshd on loopback stands for all nodes, so client and server share this machine's cores. Every
node answers from a shell script: what is measured is the way there, not Python starting on the
node. Both transports run in turns, and each figure is the median of the rounds.
"""

from __future__ import annotations

import asyncio
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "fleet" / "ssh"))

from loopback import Loopback, why_not

from oncall.fleet.configuration import FleetConfiguration, TransportName
from oncall.fleet.ssh.transport import SshTransport

ROUNDS = 3
TRANSPORTS: tuple[TransportName, ...] = ("in-process", "openssh")


async def reach(configuration: FleetConfiguration, hosts: Sequence[str]) -> int:
    """Say hello to all; returns how many answered."""
    async with SshTransport(configuration) as transport:

        async def hello(host: str) -> bool:
            async with transport.connect(host) as connection:
                return (await connection.hello()).status["node"] == host

        return sum(await asyncio.gather(*map(hello, hosts)))


def measure(fleet: Loopback, transport: TransportName, hosts: Sequence[str]) -> tuple[float, float]:
    """Seconds that it took, and seconds of CPU of this process and its children."""
    configuration = FleetConfiguration(
        transport=transport, ssh_options=("-F", str(fleet.config)), connect_timeout_s=120.0
    )
    cpu, began = _cpu_s(), time.monotonic()
    answered = asyncio.run(reach(configuration, hosts))
    took_s = time.monotonic() - began
    assert answered == len(hosts), f"{answered} of {len(hosts)} answered"
    return took_s, _cpu_s() - cpu


def _cpu_s() -> float:
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def main() -> None:
    if reason := why_not():
        sys.exit(reason)
    sizes = [int(word) for word in sys.argv[1:]] or [64, 256]
    print(f"connect and hello, {os.cpu_count()} cores shared with sshd, median of {ROUNDS}")
    print("nodes    in-process        OpenSSH           ratio")
    print("         wall      CPU     wall      CPU     wall")
    for size in sizes:
        hosts = [f"node{number:03}" for number in range(size)]
        with (
            tempfile.TemporaryDirectory(prefix="oncall-ssh-") as folder,
            Loopback(Path(folder), more_nodes=hosts) as fleet,
        ):
            rounds = [[measure(fleet, each, hosts) for each in TRANSPORTS] for _ in range(ROUNDS)]
        inside, outside = (
            [statistics.median(values) for values in zip(*figures, strict=True)]
            for figures in zip(*rounds, strict=True)
        )
        ratio = statistics.median(theirs[0] / ours[0] for ours, theirs in rounds)
        print(
            f"{size:5}  {inside[0]:6.2f} s {inside[1]:6.2f} s  "
            f"{outside[0]:6.2f} s {outside[1]:6.2f} s  {ratio:6.1f}"
        )


if __name__ == "__main__":
    main()
