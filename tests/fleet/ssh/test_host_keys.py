"""Host keys: both transports trust the same ones, and nothing makes either trust another."""

from __future__ import annotations

import base64
import hmac
import os
from pathlib import Path

import asyncssh
import pytest
from asking import Fleet

from oncall.fleet.ssh.config import SshOptions
from oncall.fleet.ssh.known_hosts import KnownHosts


def _known(fleet: Fleet) -> list[str]:
    """The lines of the fleet's known_hosts: name and key."""
    return (fleet.loopback.folder / "known_hosts").read_text().splitlines()


def _files(tmp_path: Path, *lines: str) -> str:
    path = tmp_path / "known_hosts"
    path.write_text("".join(f"{line}\n" for line in lines))
    return f"-oUserKnownHostsFile={path}"


def _hashed(line: str) -> str:
    name, key = line.split(None, 1)
    salt = os.urandom(20)
    digest = hmac.digest(salt, name.encode(), "sha1")
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()} {key}"


def test_unknown_key_is_refused(fleet: Fleet, tmp_path: Path) -> None:
    error = fleet.refusal("quick", _files(tmp_path))
    assert (error.kind, "not in known_hosts" in str(error)) == ("hostkey", True)


def test_file_that_is_not_there_is_as_good_as_empty(fleet: Fleet, tmp_path: Path) -> None:
    missing = f"-oUserKnownHostsFile={tmp_path}/none"
    assert fleet.refusal("quick", missing).kind == "hostkey"
    there = f"-oUserKnownHostsFile={tmp_path}/none {fleet.loopback.folder}/known_hosts"
    assert fleet.hello("quick", there).status["node"] == "quick"


def test_hashed_name_is_found(fleet: Fleet, tmp_path: Path) -> None:
    lines = [_hashed(line) for line in _known(fleet)]
    others = [_hashed(f"gpu{number} {lines[0].split(None, 1)[1]}") for number in range(50)]
    assert fleet.hello("quick", _files(tmp_path, *others, *lines)).status["node"] == "quick"
    assert fleet.refusal("quick", _files(tmp_path, *others)).kind == "hostkey"


def test_name_without_port_vouches_for_any_port(fleet: Fleet, tmp_path: Path) -> None:
    key = _known(fleet)[0].split(None, 1)[1]
    assert fleet.hello("quick", _files(tmp_path, f"127.0.0.1 {key}")).status["node"] == "quick"


def test_wrong_lines_are_passed_over(fleet: Fleet, tmp_path: Path) -> None:
    wrong = ("nonsense", "|1|x|y ssh-ed25519", "@odd a b c", "127.0.0.1 ssh-ed25519 ****", "# x")
    lines = _files(tmp_path, *wrong, *_known(fleet))
    assert fleet.hello("quick", lines).status["node"] == "quick"


def test_revoked_key_is_refused(fleet: Fleet, tmp_path: Path) -> None:
    key = _known(fleet)[0].split(None, 1)[1]
    lines = _files(tmp_path, *_known(fleet), f"@revoked * {key}")
    error = fleet.refusal("quick", lines)
    assert (error.kind, "revoked" in str(error)) == ("hostkey", True)


@pytest.mark.parametrize(
    ("permitted", "trusted"),
    [
        ("ssh-ed25519,rsa-sha2-512,rsa-sha2-256", {"ssh-ed25519", "ssh-rsa"}),
        ("ssh-ed25519", {"ssh-ed25519"}),
        ("rsa-sha2-512,rsa-sha2-256", {"ssh-rsa"}),
    ],
)
def test_authority_signs_as_the_configuration_permits(
    tmp_path: Path, permitted: str, trusted: set[str]
) -> None:
    path = tmp_path / "known_hosts"
    keys = [asyncssh.generate_private_key(kind) for kind in ("ssh-ed25519", "ssh-rsa")]
    lines = [f"@cert-authority gpu* {key.export_public_key().decode()}" for key in keys]
    path.write_text("".join(lines))
    options = SshOptions("gpu001", {"casignaturealgorithms": (permitted,)})
    known = KnownHosts([str(path)]).of(options)
    assert {key.get_algorithm() for key in known.authorities} == trusted


def test_key_of_another_name_is_refused(fleet: Fleet, tmp_path: Path) -> None:
    key = _known(fleet)[0].split(None, 1)[1]
    lines = _files(tmp_path, f"somebody {key}")
    assert fleet.refusal("quick", lines).kind == "hostkey"
    assert fleet.hello("quick", "-oHostKeyAlias=somebody", lines).status["node"] == "quick"


@pytest.mark.parametrize("transport", ["auto", "in-process", "openssh"])
def test_jump_hosts_key_is_verified_too(fleet: Fleet, tmp_path: Path, transport: str) -> None:
    bastion = _known(fleet)[1].split(None, 1)[0]
    other = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode().strip()
    folder = tmp_path / "config"
    folder.mkdir()
    lines = [line for line in _known(fleet) if not line.startswith(bastion)]
    (folder / "known_hosts").write_text("\n".join([*lines, f"{bastion} {other}", ""]))
    config = fleet.loopback.config.read_text()
    known = str(fleet.loopback.folder / "known_hosts")
    (folder / "ssh_config").write_text(config.replace(known, f"{folder}/known_hosts"))
    options = ("-F", str(folder / "ssh_config"))
    error = fleet.refusal("inner01", *options, transport=transport)
    assert error.kind == "hostkey", error
