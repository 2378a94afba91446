"""What sites configure: the collector's file, the fleet's, inventories, node sets, quantities."""

from __future__ import annotations

import contextlib

from oncall.core import nodeset, units
from oncall.core.errors import BadInput, OncallError, UsageError
from oncall.fleet.configuration import read_configuration
from oncall.fleet.inventory import expand_hosts, read_hostfile
from oncall.node.common.config import load

from ..registry import file_of, target

_COLLECTOR = b"""node = "gpu017"
seal_every = "30 s"
keep = "2 d"
keep_bytes = "10 GiB"
sources = ["rings", "hosts"]
[probes]
targets = ["gpu[001-512]"]
by = "rail"
rail_name = "{node}-rail{rail}"
port = 7766
[verbs]
window = 50
[dpa]
all_epochs = true
"""
_FLEET = b"""[fleet]
hosts = "gpu[001-512]"
ssh_options = ["-F", "/etc/ssh/config"]
transport = "openssh"
window = 64
connect_timeout = "10 s"
[thresholds]
x = 1
"""
_HOSTS = b"# nodes\ngpu[001-004,7] slots=8\nlogin:2\ngpu010,gpu011\n10.0.0.1\n[fe80::1]\nme@gpu9\n"
_SETS = [b"gpu[001-512]", b"gpu[1-4,!3]", b"a[1-3]b[01-02]", b"gpu[0-100/5]", b"x,y,z", b"0-2,4"]
_QUANTITIES = [
    b"30 s",
    b"5 min",
    b"10 GiB",
    b"3 %",
    b"1.5e3 MB/s",
    b"400 Gb/s",
    b"2 d",
    b"-7",
    b"0.3",
]


@target(lambda: [_COLLECTOR])
def collector_toml(data: bytes) -> None:
    """collect.toml: a configuration, or an error that names the file."""
    with file_of(data, "collect.toml") as path:
        try:
            load(path)
        except BadInput as error:
            assert str(path) in error.place
        except UsageError:
            pass  # the node's name comes from the command line as well


@target(lambda: [_FLEET])
def fleet_toml(data: bytes) -> None:
    """config.toml of a console."""
    with file_of(data, "config.toml") as path:
        try:
            read_configuration([path])
        except BadInput as error:
            assert str(path) in error.place


@target(lambda: [_HOSTS])
def inventory(data: bytes) -> None:
    """A file with a node set a line, as MPI and Slurm write them."""
    with file_of(data, "hosts") as path:
        try:
            assert all(name and not name.startswith("-") for name in read_hostfile(path))
        except BadInput as error:
            assert str(path) in error.place


@target(lambda: _SETS)
def node_sets(data: bytes) -> None:
    """Node sets and ranks from a command line, by both of their readers."""
    text = data.decode("utf-8", "replace")
    for read in (expand_hosts, nodeset.expand_hosts, nodeset.expand_ranks):
        try:
            found = read(text)
        except UsageError:
            continue
        folded = nodeset.fold_ranks(found) if read is nodeset.expand_ranks else ""  # type: ignore[arg-type]
        assert not folded or set(nodeset.expand_ranks(folded)) == set(found)


@target(lambda: _QUANTITIES)
def quantities(data: bytes) -> None:
    """A number with its unit, as options and rulebooks have them."""
    text = data.decode("utf-8", "replace")
    for read in (units.parse_quantity, units.parse_duration_ns):
        with contextlib.suppress(OncallError):
            read(text)
