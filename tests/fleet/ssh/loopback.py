"""A small fleet behind a real sshd on loopback: its own keys, configuration and ports.

Every alias in the ssh_config is a node of its own: its key's line in authorized_keys sets the
node's name, data and run directory and the `oncall` that its PATH finds. Works as root and as an
ordinary user, and touches nothing outside its folder.

    gpu001, gpu002, gpu003   plain          inner     reached through `bastion`, a second sshd
    locked    restrict,command=             impostor  its host key is not the known one
    dead      nothing listens               hanging   accepts and never speaks
    old       an oncall from before         bare      no oncall there
    stranger  a key that nobody authorised   reading   restrict,command= that only reads

`more_nodes` are plain and `more_inner` behind the bastion; they answer without starting Python.
`more_real` run the `oncall` of today, as the plain ones do. `program` gives a node another one.
"""

from __future__ import annotations

import getpass
import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import asyncssh

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")

PLAIN = ("gpu001", "gpu002", "gpu003")
_WITH_KEY = (
    *("inner", "locked", "reading", "impostor", "dead", "hanging", "old", "bare", "bastion"),
)
_START_S = 20.0

# What an oncall of an older protocol answers to any request.
_OLD_ONCALL = """#!/bin/sh
read -r request
echo '{"error": "this node speaks protocol 0, the console speaks 1", "reason": "version"}'
"""

# Answers every request at once: for tests of many connections, where starting Python 64 times
# would be all that they measure.
_QUICK_ONCALL = """#!/bin/sh
while read -r request; do
  now=$(date +%s%N)
  echo '{"end": {"node": "'$ONCALL_NODE'", "protocol": [1, 1], "oncall_version": "0",' \
       '"received_ns": '$now', "answered_ns": '$now'}}'
done
"""


def why_not() -> str | None:
    """Why this machine cannot run it, or None."""
    if SSHD is None:
        return "there is no sshd here (apt-get install openssh-server)"
    if shutil.which("ssh") is None:
        return "there is no ssh here (apt-get install openssh-client)"
    return None


@dataclass(frozen=True)
class Node:
    """One alias: where its `oncall` keeps its evidence."""

    name: str
    data: Path
    run: Path


@dataclass
class Loopback:
    """The fleet, running. `config` is the ssh_config that knows it; `settings` go to sshd."""

    folder: Path
    more_nodes: Sequence[str] = ()
    more_real: Sequence[str] = ()
    more_inner: Sequence[str] = ()
    settings: Sequence[str] = ("MaxStartups 1000",)
    bastion_settings: Sequence[str] = ("MaxStartups 1000",)
    nodes: dict[str, Node] = field(default_factory=dict)
    _running: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _sockets: list[socket.socket] = field(default_factory=list)

    @property
    def config(self) -> Path:
        return self.folder / "ssh_config"

    @property
    def log(self) -> Path:
        """What the sshd of the nodes says."""
        return self.folder / "sshd.log"

    @property
    def bastion_log(self) -> Path:
        """What the sshd of the jump host says."""
        return self.folder / "bastion.log"

    def __enter__(self) -> Loopback:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._running:
            process.terminate()
        for process in self._running:
            process.wait(10)
        for each in self._sockets:
            each.close()

    def _start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)
        names = [*PLAIN, *_WITH_KEY, *self.more_real, *self.more_nodes, *self.more_inner]
        self._write_programs()
        lines = [self._authorized(name) for name in dict.fromkeys(names)]
        (self.folder / "authorized_keys").write_text("".join(lines))
        self._new_key("stranger")
        self._new_key("authority")
        host_key = self._new_key("host")
        other_key = self._new_key("other_host")
        port = self._run_sshd("sshd", self.settings)
        bastion_port = self._run_sshd("bastion", self.bastion_settings)
        (self.folder / "known_hosts").write_text(
            f"[127.0.0.1]:{port} {host_key}\n[127.0.0.1]:{bastion_port} {host_key}\n"
            f"impostor {other_key}\n"
        )
        self._write_config(port, bastion_port)

    def program(self, name: str, script: str) -> None:
        """From the next connection on, the node's `oncall` is this shell script."""
        folder = self.folder / "programs" / f"of-{name}"
        folder.mkdir(exist_ok=True)
        program = folder / "oncall"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        keys = self.folder / "authorized_keys"
        lines = keys.read_text().splitlines(keepends=True)
        path = f'environment="PATH={self.folder}/programs/'
        own = f'environment="ONCALL_NODE={name}"'
        changed = [
            f"{path}of-{name}:{rest.partition(':')[2]}" if own in line else line
            for line in lines
            for rest in [line.removeprefix(path)]
        ]
        keys.write_text("".join(changed))

    # ------------------------------------------------------------------ files

    def _write_programs(self) -> None:
        """`oncall` of today, of before and a quick one, each in a folder for a node's PATH."""
        today = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m oncall.cli.main "$@"\n'
        for folder, script in (
            ("today", today),
            ("before", _OLD_ONCALL),
            ("quick", _QUICK_ONCALL),
        ):
            program = self.folder / "programs" / folder / "oncall"
            program.parent.mkdir(parents=True)
            program.write_text(script)
            program.chmod(0o755)

    def _new_key(self, name: str) -> str:
        """Make a key pair in `name`, `name`.pub; returns the public line."""
        key = asyncssh.generate_private_key("ssh-ed25519", comment=name)
        key.write_private_key(self.folder / name)
        (self.folder / name).chmod(0o600)
        key.write_public_key(self.folder / f"{name}.pub")
        return key.export_public_key().decode().strip()

    def _authorized(self, name: str) -> str:
        """The line of authorized_keys for a new key of `name`, which makes its node."""
        node = Node(
            name, self.folder / "nodes" / name / "data", self.folder / "nodes" / name / "run"
        )
        for path in (node.data, node.run):
            path.mkdir(parents=True)
            path.chmod(0o700)
        self.nodes[name] = node
        kind = {"old": "before", "bare": "nothing"}.get(name, "today")
        if name in (*self.more_nodes, *self.more_inner):
            kind = "quick"
        environment = {
            "PATH": f"{self.folder}/programs/{kind}:/usr/bin:/bin",
            "ONCALL_NODE": name,
            "ONCALL_DATA_DIR": node.data,
            "ONCALL_RUN_DIR": node.run,
        }
        options = [f'environment="{key}={value}"' for key, value in environment.items()]
        if name in ("locked", "reading"):
            only = " --read-only" if name == "reading" else ""
            options = ["restrict", f'command="oncall node serve{only}"', *options]
        return f"{','.join(options)} {self._new_key(name)}\n"

    def _write_config(self, port: int, bastion_port: int) -> None:
        refused = socket.create_server(("127.0.0.1", 0))
        dead_port = refused.getsockname()[1]
        refused.close()
        # Bound and not listening: refuses, and nobody else can take the port.
        refused = socket.socket()
        refused.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        refused.bind(("127.0.0.1", dead_port))
        silent = socket.create_server(("127.0.0.1", 0), backlog=512)
        self._sockets += [refused, silent]
        special = {
            "impostor": {"HostKeyAlias": "impostor"},
            "bastion": {"Port": bastion_port},
            "dead": {"Port": dead_port},
            "hanging": {"Port": silent.getsockname()[1]},
            **{name: {"ProxyJump": "bastion"} for name in ("inner", *self.more_inner)},
        }
        blocks = []
        for name in [*self.nodes, "stranger"]:
            lines = {"IdentityFile": self.folder / name, **special.get(name, {})}
            blocks.append(
                f"Host {name}\n" + "".join(f"  {key} {value}\n" for key, value in lines.items())
            )
        blocks.append(
            "Host *\n"
            f"  HostName 127.0.0.1\n  Port {port}\n  User {getpass.getuser()}\n"
            f"  IdentitiesOnly yes\n  IdentityAgent none\n"
            f"  UserKnownHostsFile {self.folder}/known_hosts\n"
            "  GlobalKnownHostsFile none\n"
        )
        self.config.write_text("".join(blocks))

    # ------------------------------------------------------------------- sshd

    def _run_sshd(self, name: str, settings: Sequence[str]) -> int:
        """Start an sshd on a free port; returns the port once it greets."""
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd refuses to run without
        for _ in range(5):
            with socket.create_server(("127.0.0.1", 0)) as probe:
                port: int = probe.getsockname()[1]
            config = self.folder / f"{name}_config"
            config.write_text(
                f"Port {port}\nListenAddress 127.0.0.1\n"
                f"HostKey {self.folder}/host\nAuthorizedKeysFile {self.folder}/authorized_keys\n"
                "UsePAM no\nStrictModes no\nPasswordAuthentication no\n"
                "KbdInteractiveAuthentication no\nPermitRootLogin yes\nPidFile none\n"
                "PermitUserEnvironment yes\nLogLevel VERBOSE\n"
                # bash would read ~/.bashrc for every command that sshd starts as SHLVL 1.
                "SetEnv SHLVL=5\nSubsystem sftp internal-sftp\n"
                f"TrustedUserCAKeys {self.folder}/authority.pub\n" + "\n".join(settings) + "\n"
            )
            with (self.folder / f"{name}.log").open("ab") as log:
                process = subprocess.Popen(
                    [str(SSHD), "-D", "-e", "-f", str(config)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            if _greets(process, port):
                self._running.append(process)
                return port
            process.kill()
            process.wait()
        raise RuntimeError(f"sshd does not start: {(self.folder / f'{name}.log').read_text()}")


def _greets(process: subprocess.Popen[bytes], port: int) -> bool:
    """Whether sshd greets on the port before it dies or the time is up."""
    until = time.monotonic() + _START_S
    while time.monotonic() < until and process.poll() is None:
        try:
            with socket.create_connection(("127.0.0.1", port), 5) as peer:
                return peer.recv(4) == b"SSH-"
        except OSError:
            time.sleep(0.02)
    return False
