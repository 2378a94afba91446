"""The keys to log in with, as OpenSSH picks and orders them: agent, files, certificates."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import asyncssh

from oncall.fleet.ssh.config import SshOptions


@dataclass(frozen=True)
class KeyFiles:
    """Keys on disk: private keys without passphrase, public halves of keys that the agent may
    hold, certificates; and files that AsyncSSH cannot use (`foreign`)."""

    private: tuple[asyncssh.SSHKey, ...] = ()
    public: tuple[asyncssh.SSHKey, ...] = ()
    certificates: tuple[asyncssh.SSHCertificate, ...] = ()
    foreign: tuple[str, ...] = ()


def identity_files(options: SshOptions) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Paths of the identity files and of the certificates that exist."""
    expanded = [
        [options.expand(path) for path in options.values.get(keyword, ()) if path != "none"]
        for keyword in ("identityfile", "certificatefile")
    ]
    keys, certificates = ([path for path in paths if _exists(path)] for paths in expanded)
    # An identity may be in the agent with only its public half here.
    keys += [path for path in expanded[0] if path not in keys and _exists(path + ".pub")]
    certificates += [f"{path}-cert.pub" for path in expanded[0] if _exists(path + "-cert.pub")]
    return tuple(keys), tuple(dict.fromkeys(certificates))


def read_key_files(keys: Sequence[str], certificates: Sequence[str]) -> KeyFiles:
    """Read the files. An encrypted key is read as its public half: only an agent can use it."""
    private: list[asyncssh.SSHKey] = []
    public: list[asyncssh.SSHKey] = []
    foreign: list[str] = []
    for path in keys:
        if not _exists(path):
            public += _read_public(path + ".pub")
            continue
        try:
            key = asyncssh.read_private_key(path)
        except (OSError, ValueError) as error:
            if str(error).startswith("Passphrase"):
                public += _read_public(path + ".pub")
            elif found := _read_public(path):
                public += found
            elif os.access(path, os.R_OK):
                foreign.append(path)
        else:
            # A key on a security token needs a touch, which only OpenSSH supports.
            if key.get_algorithm().startswith("sk-"):
                foreign.append(path)
            else:
                private.append(key)
    read = [certificate for path in certificates for certificate in _read_certificate(path)]
    return KeyFiles(tuple(private), tuple(public), tuple(read), tuple(foreign))


@dataclass
class Keys:
    """Key files, read once for all hosts, and agents."""

    _files: dict[tuple[tuple[str, ...], tuple[str, ...]], KeyFiles] = field(default_factory=dict)
    _agents: dict[str, asyncio.Task[asyncssh.SSHAgentClient | None]] = field(default_factory=dict)

    def files(self, options: SshOptions) -> KeyFiles:
        """The key files of a host's options."""
        named = identity_files(options)
        if named not in self._files:
            self._files[named] = read_key_files(*named)
        return self._files[named]

    async def pairs(self, options: SshOptions) -> list[asyncssh.SSHKeyPair]:
        """Key pairs for one login, in OpenSSH's order: the configured ones in the agent, its other
        keys unless IdentitiesOnly, then the files."""
        files = self.files(options)
        named = {key.public_data for key in (*files.private, *files.public)}
        named |= {certificate.key.public_data for certificate in files.certificates}
        held = await self._of_agent(agent_path(options))
        first = [pair for pair in held if pair.key_public_data in named]
        others = [pair for pair in held if pair.key_public_data not in named]
        in_agent = {pair.key_public_data for pair in first}
        on_disk = [key for key in files.private if key.public_data not in in_agent]
        # A server limits attempts: a certificate comes before its key.
        agents = first if options.get("identitiesonly") == "yes" else first + others
        return [
            *_with_certificates(agents, files.certificates),
            *asyncssh.load_keypairs(on_disk, certlist=list(files.certificates)),
        ]

    async def close(self) -> None:
        """Close the connections to agents."""
        for task in self._agents.values():
            if (agent := await task) is not None:
                agent.close()
                await agent.wait_closed()
        self._agents.clear()

    async def _of_agent(self, path: str) -> Sequence[asyncssh.SSHKeyPair]:
        if not path:
            return ()
        if path not in self._agents:
            self._agents[path] = asyncio.create_task(_connect_agent(path))
        agent = await asyncio.shield(self._agents[path])
        try:
            return await agent.get_keys() if agent is not None else ()
        except (OSError, ValueError):
            return ()


def agent_path(options: SshOptions) -> str:
    """The agent's socket; "" for none."""
    if options.values.get("identityagent") == ("none",):
        return ""
    path = options.get("identityagent", "SSH_AUTH_SOCK")
    if path == "SSH_AUTH_SOCK":
        return os.environ.get("SSH_AUTH_SOCK", "")
    return os.environ.get(path[1:].strip("{}"), "") if path[0] == "$" else options.expand(path)


async def _connect_agent(path: str) -> asyncssh.SSHAgentClient | None:
    try:
        return await asyncssh.connect_agent(path)
    except (OSError, asyncssh.Error):
        return None


def _with_certificates(
    pairs: Sequence[asyncssh.SSHKeyPair], certificates: Sequence[asyncssh.SSHCertificate]
) -> list[asyncssh.SSHKeyPair]:
    """The agent's keys, with their certificates from files."""
    certified = {certificate.key.public_data: certificate for certificate in certificates}
    for pair in pairs:
        if not pair.has_cert and (certificate := certified.get(pair.key_public_data)):
            pair.set_certificate(certificate)
    return list(pairs)


def _exists(path: str) -> bool:
    try:
        return Path(path).is_file()
    except OSError:
        return False


def _read_public(path: str) -> list[asyncssh.SSHKey]:
    try:
        return [asyncssh.read_public_key(path)]
    except (OSError, ValueError):
        return []


def _read_certificate(path: str) -> list[asyncssh.SSHCertificate]:
    try:
        return [asyncssh.read_certificate(path)]
    except (OSError, ValueError):
        return []
