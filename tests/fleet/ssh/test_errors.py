"""What ssh says, as a reason. The texts are those of OpenSSH 7.4 to 9.9."""

from __future__ import annotations

import pytest

from oncall.fleet.outcome import TransientError
from oncall.fleet.ssh.openssh import after_login, classify

_CHANGED = """@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
Host key for gpu001 has changed and you have requested strict checking.
Host key verification failed.
"""


@pytest.mark.parametrize(
    ("said", "kind", "words"),
    [
        (_CHANGED, "hostkey", "differs from the one in known_hosts"),
        ("No ED25519 host key is known for gpu001 and you have requested strict checking.\n"
         "Host key verification failed.\n", "hostkey", "not in known_hosts"),
        ("me@gpu001: Permission denied (publickey,gssapi-with-mic).\n", "auth", "ssh-add"),
        ("Received disconnect from 10.0.0.1 port 22:2: Too many authentication failures\n",
         "auth", "IdentityFile"),
        ("ssh: connect to host gpu001 port 22: Connection refused\n", "refused", "refused"),
        ("ssh: connect to host gpu001 port 22: No route to host\n", "refused", "No route"),
        ("ssh: Could not resolve hostname gpu001: Name or service not known\n", "refused",
         "unknown host"),
        ("ssh: connect to host gpu001 port 22: Connection timed out\n", "timeout", "timed out"),
        ("Connection timed out during banner exchange\n", "timeout", "banner"),
        ("channel 0: open failed: connect failed: Connection refused\nstdio forwarding failed\n"
         "kex_exchange_identification: Connection closed by remote host\n", "refused", "refused"),
        ("/etc/ssh/x: line 3: Bad configuration option: foo\n", "error", "Bad configuration"),
        ("", "error", "without a message"),
    ],
)  # fmt: skip
def test_reason_that_will_not_change(said: str, kind: str, words: str) -> None:
    error = classify("gpu001", said)
    assert (error.kind, isinstance(error, TransientError)) == (kind, False)
    assert words in str(error)


@pytest.mark.parametrize(
    ("status", "said", "kind"),
    [
        (127, "bash: line 1: oncall: command not found\n", "no-agent"),
        (1, "sh: 1: oncall: not found\n", "no-agent"),
        (126, "bash: /usr/bin/oncall: Permission denied\n", "no-agent"),
        (2, "Error: No such command 'node'.\n", "version"),
        (255, "client_loop: send disconnect: Broken pipe\n", "error"),
        (255, "Timeout, server gpu001 not responding.\n", "timeout"),
        (70, "oncall: this is a bug\n", "error"),
        (-9, "", "error"),
    ],
)
def test_reason_after_the_login(status: int, said: str, kind: str) -> None:
    error = after_login("gpu001", status, said)
    assert (error.kind, isinstance(error, TransientError)) == (kind, False)


def test_what_could_steer_a_terminal_is_gone() -> None:
    error = classify("gpu001", "ssh: connect to host \x1b]0;x\x07 port 22: Connection refused\n")
    assert str(error).isprintable()
