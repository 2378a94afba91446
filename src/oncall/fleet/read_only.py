"""Which suggested commands may be run for the reader: those that only read, on one host.

A command is taken apart and put together again from quoted words, so that the remote shell expands
nothing and runs exactly what was checked and shown.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from oncall.core.errors import UsageError
from oncall.fleet.inventory import check_host

_SEPARATORS = {("|",), (";",)}
_NUMBER = re.compile(r"-?\d+(?:s|min|m|h|d)?")  # -1h: of journalctl --since

Words = Sequence[str]
Parts = list[tuple[str, ...]]  # commands, and between them their separators
Check = Callable[[Words], bool]


@dataclass(frozen=True)
class RemoteCommand:
    """What to run on a host: `line` is for its shell, all words quoted."""

    host: str
    line: str


def read_only_command(typed: str, blamed: str = "") -> RemoteCommand:
    """`ssh gpu002 dmesg -T | grep -i xid` as what to run there; the filters run there, too. A
    command that names no node is one for the node that is `blamed`, if there is one.

    Raises UsageError for what may change something, or names no node.
    """
    sequences = _sequences(_commands(typed))
    if any(first[0] == "ssh" for first, *_ in sequences):
        blamed = ""  # what stands beside it without a node is for this machine
    found = [_reached(each, blamed) for each in sequences]
    host = found[0][0]
    if any(one != host for one, _ in found):
        raise UsageError("it goes on with a command elsewhere: c copies it")
    check_host(host)
    words: list[str] = []
    for _, parts in found:
        words += [";"] if words else []
        for before, part in zip([(";",), *parts], parts, strict=False):
            if part in _SEPARATORS:
                words += part
            else:
                _check(part, after_pipe=before == ("|",))
                words.append(shlex.join(part))
    return RemoteCommand(host, " ".join(words))


def _sequences(parts: Parts) -> list[Parts]:
    """What `;` separates, each a command with its filters."""
    ends = [at for at, part in enumerate(parts) if part == (";",)]
    begins = [0, *(at + 1 for at in ends)]
    return [parts[first:end] for first, end in zip(begins, [*ends, len(parts)], strict=True)]


def _reached(parts: Parts, blamed: str) -> tuple[str, Parts]:
    """The node that a command is for, and what runs there."""
    first, *filters = parts
    if first[0] != "ssh" and blamed:
        return blamed, parts
    if len(first) < 3 or first[0] != "ssh" or first[1].startswith("-"):
        raise UsageError("it names no node, so it is yours to run: c copies it")
    # As ssh joins and the shell there splits.
    return first[1].rpartition("@")[2], [*_commands(" ".join(first[2:])), *filters]


def _commands(text: str) -> Parts:
    """Commands, and between them `|` or `;` as tuples of their own; the first of a pipe's filters
    follows its separator. Raises UsageError where a shell would do more than that."""
    if any(character in text for character in "`\n\\"):
        raise UsageError("it holds characters that a shell may expand: c copies it")
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        words = list(lexer)
    except ValueError as error:
        raise UsageError(f"it cannot be taken apart ({error}): c copies it") from None
    found: list[tuple[str, ...]] = []
    command: list[str] = []
    for word in words:
        if (word,) in _SEPARATORS and command:
            found += [tuple(command), (word,)]
            command = []
        elif not word.strip("();<>|&"):
            raise UsageError(f"it holds `{word}`, which may write or run more: c copies it")
        else:
            command.append(word)
    if not command:
        raise UsageError("it is not a whole command: c copies it")
    return [*found, tuple(command)]


def _check(command: tuple[str, ...], after_pipe: bool) -> None:
    name, *words = command
    checks = _FILTERS if after_pipe else _PROGRAMS
    if name not in checks:
        raise UsageError(f"`{name}` is not among the commands that only read: c copies it")
    if "PID" in words:
        raise UsageError("PID is to be filled in: c copies it")
    if not checks[name](words):
        raise UsageError(f"`{shlex.join(command)}` may change something: c copies it")


def _options(*allowed: str, values: int = 0) -> Check:
    """Only these options, and that many words at most that are none, numbers aside."""

    def check(words: Words) -> bool:
        others = [word for word in words if not word.startswith("-") and not word.isdecimal()]
        options = [word for word in words if word.startswith("-") and not _NUMBER.fullmatch(word)]
        known = all(word.partition("=")[0] in allowed for word in options)
        return known and len(others) <= values

    return check


def _starts(*beginnings: str) -> Check:
    """One of these beginnings, and after it no option."""
    wanted = [beginning.split() for beginning in beginnings]

    def check(words: Words) -> bool:
        begins = [one for one in wanted if list(words[: len(one)]) == one]
        return any(not any(word.startswith("-") for word in words[len(one) :]) for one in begins)

    return check


def _any_of(*checks: Check) -> Check:
    return lambda words: any(check(words) for check in checks)


def _kernel_files(words: Words) -> bool:
    places = ("/proc/", "/sys/")
    return bool(words) and all(word.startswith(places) and ".." not in word for word in words)


_GREP = _options("-i", "-E", "-iE", "-Ei", "-v", "-c", "-n", "-w", values=1)
_FILTERS: Mapping[str, Check] = {
    "grep": _GREP,
    "egrep": _GREP,
    "head": _options("-n"),
    "tail": _options("-n"),
    "wc": _options("-l"),
    "sort": _options("-n", "-r", "-rn", "-nr", "-u"),
    "uniq": _options("-c"),
}
_PROGRAMS: Mapping[str, Check] = {
    "py-spy": lambda words: (
        list(words[:1]) == ["dump"]
        and _options("--pid", "-p", "--native", "-n", "--nonblocking", values=0)(words[1:])
    ),
    "dmesg": _options("-T", "-k", "-x", "--ctime"),
    "journalctl": _options("-k", "-u", "-n", "-b", "-p", "--since", "--no-pager", values=2),
    "nvidia-smi": _any_of(
        _options("-i", "-q", "-d", "-L", values=1),
        lambda words: list(words) == ["topo", "-m"],
        lambda words: list(words[:1]) == ["nvlink"] and _options("-s", "-e", "-i")(words[1:]),
        lambda words: list(words[:1]) == ["pmon"] and _options("-c", "-i", "-s")(words[1:]),
    ),
    "ps": lambda words: (
        not any(
            word.startswith("--") and not word.startswith(("--sort", "--ppid")) for word in words
        )
    ),
    "pgrep": _options("-a", "-f", "-af", "-l", values=1),
    "top": lambda words: "-n" in "".join(words) and list(words[:1]) in (["-b"], ["-bn1"]),
    "cat": _kernel_files,
    "lspci": _options("-v", "-vv", "-vvv", "-t", "-tv", "-s", values=1),
    "ethtool": _options("-S", "-i", values=1),
    "rdma": _any_of(
        lambda words: list(words) == ["link"],
        _starts("link show", "statistic show", "resource show", "dev show"),
    ),
    "devlink": _starts("health show", "dev show"),
    "mlxlink": _options("-d", "-m", "-c", "-e", values=1),
    "ibstat": _options(values=1),
    "ss": _options("-t", "-i", "-n", "-tin", "-s"),
    "numastat": _options("-m", "-p"),
    "taskset": lambda words: len(words) == 2 and words[0] in ("-cp", "-p"),
    "systemctl": _starts("status"),
    "systemd-cgtop": _options("-n", "--depth", "-b"),
    "chronyc": _starts("tracking", "sources"),
    "cpupower": _starts("frequency-info"),
    "iostat": _options("-x", "-d"),
    "vmstat": _options(),
    "free": _options("-h", "-m"),
    "df": _options("-h", "-i", values=1),
    "uptime": _options(),
}
