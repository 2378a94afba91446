"""Which transport a configuration leads to, by the real `ssh -G`; and jump hosts on the way."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import asyncssh
import pytest
from loopback import why_not

from oncall.fleet.outcome import HostError
from oncall.fleet.ssh.choose import Choice, choose
from oncall.fleet.ssh.config import Resolver, SshOptions, parse_options
from oncall.fleet.ssh.keys import Keys

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


@pytest.fixture(autouse=True)
def _no_ticket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KRB5CCNAME", "FILE:/nonexistent/ticket")


def _choose(tmp_path: Path, text: str, host: str = "gpu001") -> Choice:
    config = tmp_path / "config"
    config.write_text(text)

    async def run() -> Choice:
        resolver = Resolver(options=("-F", str(config)))
        options = await resolver.resolve(host)
        return choose(options, await resolver.defaults(), Keys())

    return asyncio.run(run())


def _resolve(tmp_path: Path, text: str, host: str) -> SshOptions:
    config = tmp_path / "config"
    config.write_text(text)
    return asyncio.run(Resolver(options=("-F", str(config))).resolve(host))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "HostName 10.0.0.1\nPort 2222\nUser me\n",
        "ConnectTimeout 1m\nServerAliveInterval 1m\n",
        "ControlMaster auto\nControlPath ~/.ssh/none-%C\nControlPersist 10m\n",
        "GSSAPIAuthentication yes\n",
        "ForwardAgent yes\nLocalForward 9999 x:1\nRemoteCommand tmux\nRequestTTY force\n",
        "HashKnownHosts yes\nUpdateHostKeys no\nLogLevel QUIET\nIPQoS throughput\n",
        "StrictHostKeyChecking yes\n",
        "Ciphers aes256-gcm@openssh.com\nMACs hmac-sha2-256\nKexAlgorithms curve25519-sha256\n",
        "SetEnv A=1\nSendEnv LC_*\nCompression yes\n",
        "Match exec true\n  User me\n",
        "Host gpu*\n  ProxyJump bastion\n",
        "RequiredRSASize 2048\n",
        "PubkeyAcceptedAlgorithms -*rsa*\nCASignatureAlgorithms ssh-ed25519\n",
    ],
)
def test_in_process_where_every_option_is_honoured(tmp_path: Path, text: str) -> None:
    choice = _choose(tmp_path, text)
    assert choice.transport == "in-process", choice.why


@pytest.mark.parametrize(
    ("text", "keyword"),
    [
        ("StrictHostKeyChecking no\n", "stricthostkeychecking"),
        ("StrictHostKeyChecking accept-new\n", "stricthostkeychecking"),
        ("KnownHostsCommand /bin/true\n", "knownhostscommand"),
        ("RevokedHostKeys /etc/revoked\n", "revokedhostkeys"),
        ("VerifyHostKeyDNS yes\n", "verifyhostkeydns"),
        ("CheckHostIP yes\n", "checkhostip"),
        ("NoHostAuthenticationForLocalhost yes\n", "nohostauthenticationforlocalhost"),
        ("ProxyCommand nc %h %p\n", "proxycommand"),
        ("PubkeyAcceptedAlgorithms ssh-rsa\n", "pubkeyacceptedalgorithms"),
        ("PubkeyAcceptedAlgorithms *-cert-*\n", "pubkeyacceptedalgorithms"),
        ("CASignatureAlgorithms rsa-sha2-512\n", "casignaturealgorithms"),
        ("PubkeyAuthentication no\n", "pubkeyauthentication"),
        ("PreferredAuthentications gssapi-with-mic\n", "preferredauthentications"),
        ("HostbasedAuthentication yes\n", "hostbasedauthentication"),
        ("PKCS11Provider /usr/lib/p11.so\n", "pkcs11provider"),
        ("BindInterface lo\n", "bindinterface"),
        ("RekeyLimit 1M\n", "rekeylimit"),
        ("KexAlgorithms sntrup761x25519-sha512@openssh.com\n", "kexalgorithms"),
    ],
)
def test_openssh_where_one_is_not(tmp_path: Path, text: str, keyword: str) -> None:
    choice = _choose(tmp_path, text)
    assert choice.transport == "openssh"
    assert choice.why.startswith(keyword)


def test_master_that_is_alive_is_used(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as master:
        master.bind(str(tmp_path / "master"))
        choice = _choose(tmp_path, f"ControlPath {tmp_path}/master\n")
    assert (choice.transport, "controlpath" in choice.why) == ("openssh", True)


def test_ticket_of_kerberos_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ticket").touch()
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path}/ticket")
    choice = _choose(tmp_path, "GSSAPIAuthentication yes\n")
    assert choice == Choice("openssh", "gssapiauthentication yes")


def test_key_that_only_openssh_can_use(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("-----BEGIN ODD PRIVATE KEY-----\nAAAA\n")
    choice = _choose(tmp_path, f"IdentityFile {tmp_path}/key\n")
    assert (choice.transport, "identityfile" in choice.why) == ("openssh", True)
    asyncssh.generate_private_key("ssh-ed25519").write_private_key(tmp_path / "key")
    assert _choose(tmp_path, f"IdentityFile {tmp_path}/key\n").transport == "in-process"


def test_jump_hosts_options_count_too(tmp_path: Path) -> None:
    text = "Host gpu*\n  ProxyJump bastion\nHost bastion\n  ProxyCommand nc %h %p\n"
    choice = _choose(tmp_path, text)
    assert choice.transport == "openssh"
    assert "of jump host bastion" in choice.why


# What `ssh -G` tells of the crypto policy DEFAULT on RHEL 9, where it differs from OpenSSH's own.
_RHEL = """\
ciphers aes256-gcm@openssh.com,chacha20-poly1305@openssh.com,aes256-ctr,aes128-gcm@openssh.com
macs hmac-sha2-256-etm@openssh.com,hmac-sha1-etm@openssh.com,hmac-sha2-256,hmac-sha1,hmac-sha2-512
kexalgorithms curve25519-sha256,curve25519-sha256@libssh.org,ecdh-sha2-nistp256
gssapikexalgorithms gss-curve25519-sha256-,gss-nistp256-sha256-,gss-group14-sha256-
gssapikeyexchange no
gssapiauthentication yes
hostkeyalgorithms ecdsa-sha2-nistp256,ssh-ed25519,rsa-sha2-256,rsa-sha2-512
pubkeyacceptedalgorithms ecdsa-sha2-nistp256,ecdsa-sha2-nistp256-cert-v01@openssh.com,\
sk-ecdsa-sha2-nistp256@openssh.com,sk-ecdsa-sha2-nistp256-cert-v01@openssh.com,ssh-ed25519,\
ssh-ed25519-cert-v01@openssh.com,rsa-sha2-256,rsa-sha2-256-cert-v01@openssh.com,rsa-sha2-512,\
rsa-sha2-512-cert-v01@openssh.com
casignaturealgorithms ecdsa-sha2-nistp256,sk-ecdsa-sha2-nistp256@openssh.com,ssh-ed25519,\
rsa-sha2-256,rsa-sha2-512
requiredrsasize 2048
"""


def test_crypto_policy_of_a_distribution_is_honoured_in_process() -> None:
    defaults = asyncio.run(Resolver().defaults())
    policy = parse_options(_RHEL)
    choice = choose(SshOptions("gpu001", {**defaults, **policy}), defaults, Keys())
    assert choice.transport == "in-process", choice.why


def test_way_through_several_jump_hosts(tmp_path: Path) -> None:
    text = (
        "Host gpu*\n  ProxyJump me@outer:2222,inner\n"
        "Host outer\n  HostName outer.example\nHost inner\n  Port 23\n"
    )
    options = _resolve(tmp_path, text, "gpu001")
    way = [(hop.hostname, hop.port, hop.words[:4]) for hop in options.jumps]
    assert way == [
        ("outer.example", 2222, ("-l", "me", "-p", "2222")),
        ("inner", 23, ("-J", "me@outer:2222")),
    ]
    assert options.jumps[0].user == "me"


def test_jump_hosts_own_jump_host(tmp_path: Path) -> None:
    text = "Host gpu*\n  ProxyJump inner\nHost inner\n  ProxyJump outer\n"
    options = _resolve(tmp_path, text, "gpu001")
    assert [hop.host for hop in options.jumps] == ["outer", "inner"]


def test_a_cycle_of_jump_hosts_ends(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="loops"):
        _resolve(tmp_path, "Host a\n  ProxyJump b\nHost b\n  ProxyJump a\n", "a")


def test_configuration_that_is_wrong_is_reported(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="config") as reported:
        _resolve(tmp_path, "Nonsense yes\n", "gpu001")
    assert reported.value.kind == "error"


def test_no_ssh_here() -> None:
    with pytest.raises(HostError, match="not found on this machine"):
        asyncio.run(Resolver("no-such-ssh").resolve("gpu001"))
