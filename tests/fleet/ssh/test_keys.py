"""Logging in with what OpenSSH would log in with: agents, certificates, keys with passphrases."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import asyncssh
import pytest
from asking import Fleet


@pytest.fixture
def agent(tmp_path: Path, loopback: object) -> Iterator[Path]:  # noqa: ARG001 - skips without ssh
    """An ssh-agent that holds nothing yet."""
    path = tmp_path / "agent"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()  # it says where it listens
    yield path
    process.terminate()
    process.wait()
    process.stdout.close()


def _add(agent: Path, key: Path) -> None:
    environment = {**os.environ, "SSH_AUTH_SOCK": str(agent)}
    subprocess.run(["ssh-add", "-q", str(key)], env=environment, check=True, capture_output=True)


def test_agent_holds_the_key(fleet: Fleet, agent: Path, tmp_path: Path) -> None:
    options = (f"-oIdentityAgent={agent}", "-oIdentitiesOnly=no", f"-oIdentityFile={tmp_path}/none")
    assert fleet.refusal("stranger", *options).kind == "auth"
    _add(agent, fleet.loopback.folder / "quick")
    assert fleet.hello("stranger", *options).status["node"] == "quick"


def test_agent_of_the_environment(
    fleet: Fleet, agent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _add(agent, fleet.loopback.folder / "quick")
    monkeypatch.setenv("SSH_AUTH_SOCK", str(agent))
    options = ("-oIdentityAgent=SSH_AUTH_SOCK", "-oIdentitiesOnly=no")
    assert fleet.hello("stranger", *options).status["node"] == "quick"


def test_identities_only_leaves_the_agents_others_out(fleet: Fleet, agent: Path) -> None:
    _add(agent, fleet.loopback.folder / "quick")
    options = (f"-oIdentityAgent={agent}", "-oIdentitiesOnly=yes")
    assert fleet.refusal("stranger", *options).kind == "auth"


def test_key_with_a_passphrase_is_the_agents_or_nobodys(
    fleet: Fleet, agent: Path, tmp_path: Path
) -> None:
    locked = tmp_path / "locked"
    for suffix in ("", ".pub"):
        shutil.copy(fleet.loopback.folder / f"quick{suffix}", f"{locked}{suffix}")
    locked.chmod(0o600)
    lock = ["ssh-keygen", "-q", "-p", "-N", "secret", "-f", str(locked)]
    subprocess.run(lock, check=True, capture_output=True)
    options = (f"-oIdentityAgent={agent}", f"-oIdentityFile={locked}")
    assert fleet.refusal("stranger", *options).kind == "auth"
    _add(agent, fleet.loopback.folder / "quick")
    assert fleet.hello("stranger", *options).status["node"] == "quick"


@pytest.mark.parametrize("implicit", [True, False])
def test_certificate(fleet: Fleet, tmp_path: Path, implicit: bool) -> None:
    authority = asyncssh.read_private_key(fleet.loopback.folder / "authority")
    key = asyncssh.generate_private_key("ssh-ed25519")
    key.write_private_key(tmp_path / "key")
    (tmp_path / "key").chmod(0o600)
    certificate = authority.generate_user_certificate(
        key, "me", principals=[getpass.getuser()], force_command="echo certified >&2; exit 9"
    )
    name = "key-cert.pub" if implicit else "other-cert.pub"
    certificate.write_certificate(tmp_path / name)
    options = [f"-oIdentityFile={tmp_path}/key"]
    options += [] if implicit else [f"-oCertificateFile={tmp_path}/{name}"]
    # Whoever is let in by this certificate runs its command: no oncall, but a login.
    error = fleet.refusal("stranger", *options)
    assert "certified" in str(error)


def test_keys_sign_as_the_configuration_permits(fleet: Fleet) -> None:
    # The fleet's keys are ed25519.
    without = "-oPubkeyAcceptedAlgorithms=-*ed25519*"
    assert fleet.refusal("quick", without).kind == "auth"
    alone = "-oPubkeyAcceptedAlgorithms=ssh-ed25519,ssh-ed25519-cert-v01@openssh.com"
    assert fleet.hello("quick", alone).status["node"] == "quick"
