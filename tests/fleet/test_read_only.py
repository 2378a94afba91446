"""Which commands may be run for the reader."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncall.core.errors import OncallError
from oncall.fleet.read_only import RemoteCommand, read_only_command


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("ssh gpu002 py-spy dump --pid 4013", "py-spy dump --pid 4013"),
        ("ssh gpu002 dmesg -T | grep -iE 'xid|nvrm|sxid'", "dmesg -T | grep -iE 'xid|nvrm|sxid'"),
        ("ssh gpu002 'rdma statistic show; ibstat'", "rdma statistic show ; ibstat"),
        ("ssh gpu002 'lspci -tv; dmesg -T | grep -i aer'", "lspci -tv ; dmesg -T | grep -i aer"),
        ("ssh gpu002 ps aux --sort -rss | head", "ps aux --sort -rss | head"),
        ("ssh gpu002 nvidia-smi -i 3 -q -d MEMORY", "nvidia-smi -i 3 -q -d MEMORY"),
        ("ssh gpu002 ethtool -S eth0 | grep pause", "ethtool -S eth0 | grep pause"),
        ("ssh gpu002 cat /proc/pressure/cpu", "cat /proc/pressure/cpu"),
        ("ssh gpu002 taskset -cp 4013", "taskset -cp 4013"),
        ("ssh root@gpu002 uptime", "uptime"),
        ("ssh gpu002 rdma statistic show; ssh gpu002 ibstat", "rdma statistic show ; ibstat"),
        (
            "ssh gpu002 'ps -o pid,ppid,stat,wchan:32,cmd -p 4013; journalctl --since -1h'",
            "ps -o pid,ppid,stat,wchan:32,cmd -p 4013 ; journalctl --since -1h",
        ),
    ],
)
def test_what_only_reads_is_run_as_shown(typed: str, line: str) -> None:
    assert read_only_command(typed) == RemoteCommand("gpu002", line)


@pytest.mark.parametrize(
    "typed",
    [
        "ssh gpu002 kill -CONT 4013",
        "ssh gpu002 sudo dmesg",
        "ssh gpu002 py-spy dump --pid PID",
        "ssh gpu002 dmesg -C",
        "ssh gpu002 dmesg --clear",
        "ssh gpu002 nvidia-smi -r",
        "ssh gpu002 nvidia-smi -i 0 -pl 200",
        "ssh gpu002 nvidia-smi --gpu-reset -i 0",
        "ssh gpu002 dcgmi diag -r 3 -i 0",
        "ssh gpu002 systemctl restart oncall-collect",
        "ssh gpu002 systemctl status x --now",
        "ssh gpu002 journalctl --vacuum-time=1s",
        "ssh gpu002 rdma link set mlx5_0/1 netdev x",
        "ssh gpu002 rdma link delete mlx5_0",
        "ssh gpu002 ethtool -s eth0 speed 1000",
        "ssh gpu002 ss -K dst 10.0.0.1",
        "ssh gpu002 taskset -p 3 4013",
        "ssh gpu002 cat /etc/shadow",
        "ssh gpu002 cat /proc/../etc/shadow",
        "ssh gpu002 dmesg > /tmp/x",
        "ssh gpu002 'dmesg > /tmp/x'",
        "ssh gpu002 'uptime; rm -rf /'",
        "ssh gpu002 'uptime && reboot'",
        "ssh gpu002 'uptime & reboot'",
        "ssh gpu002 uptime | sort -o /etc/passwd",
        "ssh gpu002 uptime | tee /etc/passwd",
        "ssh gpu002 dmesg | grep -f /etc/shadow x",
        "ssh gpu002 `reboot`",
        "ssh gpu002 dmesg -T | grep xid; reboot",
        "ssh -oProxyCommand=reboot gpu002 uptime",
        "ssh gpu002",
        "py-spy dump --pid 4013",
        "kubectl delete pod x",
        "ssh gpu002 'uptime",
        "",
    ],
)
def test_what_may_change_something_is_not(typed: str) -> None:
    with pytest.raises(OncallError):
        read_only_command(typed)


def test_a_command_that_names_no_node_is_for_the_blamed_one() -> None:
    typed = "journalctl --since -1h; nvidia-smi -q -d PERFORMANCE"
    line = "journalctl --since -1h ; nvidia-smi -q -d PERFORMANCE"
    assert read_only_command(typed, "gpu004") == RemoteCommand("gpu004", line)
    for other in (
        "kill -CONT 4013",
        "ssh gpu002 uptime; uptime",
        "ssh gpu002 uptime; ssh gpu003 uptime",
        "oncall probe gpu004",
    ):
        with pytest.raises(OncallError):
            read_only_command(other, "gpu004")


@pytest.mark.parametrize("node", ["-oProxyCommand=reboot", "gpu 1", "gpu;reboot", "$(reboot)"])
def test_a_blamed_node_that_is_no_host_name_is_refused(node: str) -> None:
    with pytest.raises(OncallError):
        read_only_command("uptime", node)


@given(st.text(alphabet="abdmesg $();|&<>'\"`\\-T*\n~", max_size=40))
def test_no_text_makes_a_shell_do_more(text: str) -> None:
    """Whatever passes is words, each quoted, between pipes and semicolons."""
    try:
        command = read_only_command(f"ssh gpu002 dmesg -T | grep {text}")
    except OncallError:
        return
    lexer = shlex.shlex(command.line, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    parts = list(lexer)
    assert parts[:3] == ["dmesg", "-T", "|"] and parts[3] == "grep"
    assert "".join(shlex.quote(part) if part not in "|;" else part for part in parts)
