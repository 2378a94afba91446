"""Hosts from node sets, files, Slurm and the configuration; and names that are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncall.core.errors import BadInput, UsageError
from oncall.core.nodeset import fold_hosts
from oncall.fleet.configuration import FleetConfiguration
from oncall.fleet.inventory import (
    Inventory,
    check_host,
    expand_hosts,
    find_hosts,
    read_hostfile,
)
from oncall.fleet.local import local_nodes


@given(st.sets(st.integers(0, 999), min_size=1, max_size=40))
def test_folded_hosts_expand_to_themselves(numbers: set[int]) -> None:
    hosts = {f"gpu{number:03}" for number in numbers}
    assert set(expand_hosts(fold_hosts(hosts))) == hosts


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("-oProxyCommand=touch x", "option"),
        ("gpu001,-oProxyCommand=x", "option"),
        ("gpu001;reboot", "host name"),
        ("$(reboot)", "host name"),
        ("`reboot`", "host name"),
        ("gpu 001", "space"),
        ("gpu\x1b[2J001", "control character"),
        ("gpu001\ngpu002", "control character"),
        ("gpu[1-99999999999]", "more than"),
        ("a[1-999]b[1-999]c[1-999],x", "more than"),
        ("gpu[1-", "bracket"),
        ("gpu[9-1]", "range"),
        ("gpu[0-999999-1]", "no number and no span"),
        ("gpu[" + "9" * 5000 + "]", "no number and no span"),
        ("gpu" + "9" * 5000, "not a node set"),
        ("gpu[001-512]1474836472", "not a node set"),
        ("*", "name the hosts"),
        ("@nobody-has-this-group", "groups"),
        ("", "no host"),
    ],
)
def test_refused_with_reason(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        expand_hosts(text)


@given(st.text(max_size=30))
def test_no_name_reaches_ssh_as_option_or_with_blanks(name: str) -> None:
    try:
        check_host(name)
    except UsageError:
        return
    assert not name.startswith("-")
    assert not name.partition("@")[2].startswith("-")
    assert all(c.isascii() and c.isprintable() and not c.isspace() for c in name)
    assert not set(name) & set(";&|<>$`'\"\\(){}*?!#~/")


def test_hostfile(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("# the rack\ngpu[001-002] slots=8\n\ngpu003:8\nme@gpu004  # a user\ngpu001\n")
    assert read_hostfile(path) == ("gpu001", "gpu002", "gpu003", "me@gpu004")


@pytest.mark.parametrize(
    ("content", "words"),
    [("gpu001\n-oX=y\n", "hosts:2: .*option"), ("# none\n", "no host"), ("gpu 1\n", "space")],
)
def test_bad_hostfile_is_placed(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "hosts"
    path.write_text(content)
    with pytest.raises(BadInput, match=words):
        read_hostfile(path)


def test_hostfile_of_bytes_or_none(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInput, match="text file"):
        read_hostfile(tmp_path / "bytes")
    with pytest.raises(BadInput, match="No such file"):
        read_hostfile(tmp_path / "none")


def test_first_source_counts_alone(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("b1\n")
    configuration = FleetConfiguration(hosts="d1")
    slurm = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "c[1-2]"}
    assert find_hosts("a1", None, configuration, slurm) == Inventory(("a1",), "--hosts")
    assert find_hosts(None, path, configuration, slurm) == Inventory(("b1",), str(path))
    found = find_hosts(None, None, configuration, slurm)
    assert found == Inventory(("c1", "c2"), "SLURM_JOB_NODELIST")
    assert find_hosts(None, None, configuration, {}) == Inventory(("d1",), "the configuration")
    assert find_hosts(None, None, FleetConfiguration(), {}) is None
    with pytest.raises(UsageError, match="not both"):
        find_hosts("a1", path, configuration, {})


def test_folders_under_home_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A shell leaves the ~ of `--hosts local:~/try` alone.
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "try" / "gpu017").mkdir(parents=True)
    assert local_nodes("local:~/try/*") == {"gpu017": tmp_path / "try" / "gpu017"}
    with pytest.raises(UsageError, match="no such folder"):
        local_nodes("local:~/nothing")
