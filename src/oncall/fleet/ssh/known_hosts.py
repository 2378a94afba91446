"""Look up host keys in known_hosts files as OpenSSH does.

Adds what AsyncSSH lacks: missing files, invalid lines (ignored, as by OpenSSH), and thousands of
hashed names, each of which costs one keyed hash per host.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import asyncssh

from oncall.fleet.ssh.config import SshOptions


class HostKeys(NamedTuple):
    """The known keys of one host, in the order that AsyncSSH expects."""

    host_keys: Sequence[asyncssh.SSHKey] = ()
    authorities: Sequence[asyncssh.SSHKey] = ()
    revoked: Sequence[asyncssh.SSHKey] = ()

    def __bool__(self) -> bool:
        """Whether any key could be the host's."""
        return bool(self.host_keys or self.authorities)


class _HashedLine(NamedTuple):
    """A line with a hashed host name, and the same line with `*` as host name."""

    salt: bytes
    digest: bytes
    of_anyone: str

    @classmethod
    def read(cls, hashed: str, of_anyone: str) -> _HashedLine:
        """`|1|salt|digest`. Raises ValueError."""
        _, _, salt, digest = hashed.split("|")
        return cls(base64.b64decode(salt), base64.b64decode(digest), of_anyone)


class KnownHosts:
    """The content of known_hosts files; unreadable files count as empty."""

    def __init__(self, files: Sequence[str]) -> None:
        self._plain = asyncssh.import_known_hosts("")
        self._hashed: list[_HashedLine] = []
        for name in files:
            try:
                text = Path(name).read_text(errors="replace")
            except OSError:
                continue
            for line in text.splitlines():
                self._add(line.strip())

    def _add(self, line: str) -> None:
        # As in OpenSSH, invalid lines are ignored.
        with suppress(ValueError):
            match line.split():
                case [marker, hashed, *key] if marker[0] == "@" and hashed.startswith("|1|"):
                    self._hashed.append(_HashedLine.read(hashed, f"{marker} * {' '.join(key)}"))
                case [hashed, *key] if hashed.startswith("|1|"):
                    self._hashed.append(_HashedLine.read(hashed, f"* {' '.join(key)}"))
                case _:
                    self._plain.load(line)

    def of(self, options: SshOptions) -> HostKeys:
        """The known keys of the host of `options`, by its alias, or its name and port."""
        found = [self._match(name) for name in _names(options)]
        revoked = [key for known in found for key in known.revoked]
        # The first name with a known key counts; a revoked key is revoked for all names.
        known = next(filter(None, found), HostKeys())
        least_bits = options.number("requiredrsasize", 1024)
        strong = [key for key in known.host_keys if _bits(key) >= least_bits]
        permitted = options.get("casignaturealgorithms").split(",")
        authorities = [key for key in known.authorities if _may_sign(key, permitted)]
        return HostKeys(strong, authorities, revoked)

    def _match(self, name: str) -> HostKeys:
        # Names only: without CheckHostIP, addresses are not looked up.
        plain = self._plain.match(name, "", None)
        lines = [
            line.of_anyone
            for line in self._hashed
            if hmac.digest(line.salt, name.encode(), "sha1") == line.digest
        ]
        hashed = asyncssh.import_known_hosts("\n".join(lines)).match(name, "", None)
        return HostKeys([*plain[0], *hashed[0]], [*plain[1], *hashed[1]], [*plain[2], *hashed[2]])


def _names(options: SshOptions) -> tuple[str, ...]:
    """The names to look up; the first known one counts."""
    if alias := options.get("hostkeyalias"):
        return (alias.lower(),)
    name = options.hostname.lower()
    return (name,) if options.port == 22 else (f"[{name}]:{options.port}", name)


def _may_sign(key: asyncssh.SSHKey, permitted: Sequence[str]) -> bool:
    """Whether CASignatureAlgorithms allows an authority with this key. choose.py checks that for
    RSA both algorithms are allowed or neither."""
    if permitted == [""]:
        return True
    name = key.get_algorithm()
    return (name if name != "ssh-rsa" else "rsa-sha2-512") in permitted


def _bits(key: asyncssh.SSHKey) -> int:
    """The size of an RSA key; other kinds have one size, which is enough."""
    if key.algorithm != b"ssh-rsa":
        return 2**16
    return int(getattr(key.pyca_key, "key_size", 0))
