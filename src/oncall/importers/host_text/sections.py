"""Text of several hosts in one file, as pdsh, clush, ansible, `tail` and shells write it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from oncall.core.errors import UsageError
from oncall.core.nodeset import expand_hosts
from oncall.importers.bounds import metered
from oncall.importers.host_names import host_named, may_be_host

_HOST = r"[A-Za-z0-9][\w.\[\],-]{0,199}"
_HEADINGS = tuple(
    re.compile(rf"\A(?:{heading})")
    for heading in (
        rf"(?:={{2,9}}|#{{2,9}}|-{{2,9}}|\*{{2,9}}|>{{2,9}}) *(?:(?:host|node):? )?"
        rf"(?P<host>{_HOST}?):? *[=#*<-]*$",
        rf"(?P<host>{_HOST}) \| (?:CHANGED|SUCCESS|FAILED)\b.*>>$",
        rf"(?:\[?\w[\w-]*@(?P<host>{_HOST}?)(?::| )\S*\]?[$#]|\$) \S.*$",
    )
)
_OF_TAIL = re.compile(r"==> (?:.*/)?(?P<name>[^/]+) <==$")
_RULE = re.compile(r"[-=]{3,}$")
_PREFIX = re.compile(rf"(?P<host>{_HOST}?): ?")
# What begins lines of one host's own tools and is named as hosts are.
_DEVICE = re.compile(r"(?:eth|en[opsx]|ib|bond|veth|mlx\d_|nvme|nvidia)\w*|CPU\d+|hca_id")
_LEAST_SHARE = 0.9  # of the lines, that bear a host: tools add few lines of their own
_MOST_HOSTS = 4096
_MOST_LINES = 1 << 20  # of a part times its hosts


@dataclass
class Section:
    """The lines of one host, each with its number in the file; None: no line says whose."""

    host: str | None
    lines: list[str] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)

    def add(self, number: int, line: str) -> None:
        """Put a line at its end."""
        self.lines.append(line)
        self.numbers.append(number)


def sections(lines: Sequence[str], prompts: bool = True) -> list[Section]:
    """The text host by host; all of it, where it is of one. `prompts` of shells name hosts, too,
    unless who reads the text reads their commands."""
    return _by_prefix(lines) or _by_heading(lines, _HEADINGS if prompts else _HEADINGS[:-1])


def _by_prefix(lines: Sequence[str]) -> list[Section]:
    """`gpu001: ` before each line; nothing where lines bear none."""
    written = [line for line in lines if line.strip()]
    hosts = [_prefix(line) for line in written]
    if not written or sum(map(bool, hosts)) < _LEAST_SHARE * len(written):
        return []
    found: dict[str, Section] = {}
    for number, line in enumerate(metered(lines), start=1):
        host = _prefix(line)
        if host and len(found) < _MOST_HOSTS:
            section = found.setdefault(host, Section(host))
            section.add(number, line[len(host) + 1 :].removeprefix(" "))
    return list(found.values())


def _prefix(line: str) -> str | None:
    found = _PREFIX.match(line)
    host = found["host"] if found else None
    return host if host and may_be_host(host) and not _DEVICE.fullmatch(host) else None


def _by_heading(lines: Sequence[str], headings: Sequence[re.Pattern[str]]) -> list[Section]:
    """Parts below headings, or below prompts of shells. Of hosts that are folded, as they print the
    same, each has the part."""
    parts = [Section(None)]
    hosts: list[tuple[str, ...]] = [()]
    for number, line in enumerate(metered(lines), start=1):
        named = _heading(lines, number - 1, headings)
        if named is not None:
            parts.append(Section(None))
            hosts.append(named)
        elif not (_RULE.match(line.strip()) and _between_rules(lines, number - 1)):
            parts[-1].add(number, line)
    return list(_joined(parts, hosts))


def _joined(parts: Sequence[Section], hosts: Sequence[tuple[str, ...]]) -> Iterator[Section]:
    """A section for each host and command."""
    for part, named in zip(parts, hosts, strict=True):
        several = len(named) * len(part.lines) <= _MOST_LINES
        if any(line.strip() for line in part.lines):
            for host in (named if several else ()) or (None,):
                yield Section(host, part.lines, part.numbers)


def _heading(
    lines: Sequence[str], at: int, headings: Sequence[re.Pattern[str]]
) -> tuple[str, ...] | None:
    """The hosts that a line names as those of the lines below it; nobody after a prompt that names
    none; None: it is no heading."""
    line = lines[at].strip()
    if not line or len(line) > 200:
        return None
    if found := _OF_TAIL.match(line):
        host = host_named(found["name"])
        return (host,) if host else None
    between = _between_rules(lines, at)
    for pattern in headings:
        if found := pattern.match(line):
            return _hosts(found["host"]) or None if found["host"] else ()
    return (_hosts(line) or None) if between else None


def _between_rules(lines: Sequence[str], at: int) -> bool:
    """Whether it is a host between two lines of dashes, or one of these lines."""
    return any(
        first >= 0
        and first + 2 < len(lines)
        and all(_RULE.match(lines[place].strip()) for place in (first, first + 2))
        and bool(_hosts(lines[first + 1].strip()))
        for first in range(at - 2, at + 1)
    )


def _hosts(text: str) -> tuple[str, ...]:
    if "[" not in text:
        return (text,) if may_be_host(text) and not _DEVICE.fullmatch(text) else ()
    try:
        return tuple(expand_hosts(text))
    except UsageError:
        return ()
