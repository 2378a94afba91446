"""What OpenSSH's client says on stderr, as a reason that a person can act on."""

from __future__ import annotations

import re
from dataclasses import dataclass

from oncall.fleet.outcome import HostError, Kind


class TransientError(HostError):
    """A failure that another try may well not meet: a server too busy to greet."""


@dataclass(frozen=True)
class _Sign:
    """A phrase of ssh's stderr; the first of the list that is found counts."""

    kind: Kind
    pattern: re.Pattern[str]
    advice: str = ""
    transient: bool = False


def _sign(kind: Kind, pattern: str, advice: str = "", *, transient: bool = False) -> _Sign:
    return _Sign(kind, re.compile(pattern, re.IGNORECASE), advice, transient)


CHANGED_KEY = (
    "its host key is not the one in known_hosts: the node was reinstalled, or something else "
    "answers in its place. Find out which before you remove the old key (ssh-keygen -R {host})"
)
UNKNOWN_KEY = "its host key is not in known_hosts: log in once by hand (ssh {host}) and compare it"
REVOKED_KEY = "its host key is marked as revoked in known_hosts"
NOT_LET_IN = "{line}: none of our keys will do; is the right one loaded (ssh-add -l)?"

_SIGNS = (
    _sign(
        "hostkey", r"REMOTE HOST IDENTIFICATION HAS CHANGED|host key .* has changed", CHANGED_KEY
    ),
    _sign("hostkey", r"REVOKED HOST KEY|host key .* revoked", REVOKED_KEY),
    _sign("hostkey", r"No .* host key is known for|authenticity of host", UNKNOWN_KEY),
    _sign("hostkey", r"Host key verification failed", UNKNOWN_KEY),
    _sign("hostkey", r"no matching host key type|Host certificate .*(invalid|not)", "{line}"),
    _sign("auth", r"Permission denied \(", NOT_LET_IN),
    _sign("auth", r"Too many authentication failures", "it tired of our keys: set IdentityFile"),
    _sign("auth", r"No supported authentication methods|account .* expired|This account is"),
    _sign("refused", r"Could not resolve hostname", "there is no such host: {line}"),
    _sign("refused", r"Connection refused|No route to host|Network is unreachable"),
    _sign("refused", r"administratively prohibited|open failed|stdio forwarding failed"),
    _sign("error", r"Bad configuration option|Bad owner or permissions|unsupported option"),
    _sign("timeout", r"timed out|Operation timed out|Timeout, server .* not responding"),
    _sign(
        "refused",
        r"kex_exchange_identification|ssh_exchange_identification|Connection (closed|reset) by"
        r"|banner exchange|Connection to .* closed by remote host|Broken pipe",
        "it closed the connection before the login, as a server does that has too many at once",
        transient=True,
    ),
)
_MOST_LINE = 200


def classify(host: str, said: str) -> HostError:
    """Why ssh left with status 255, from what it said."""
    for sign in _SIGNS:
        if match := sign.pattern.search(said):
            line = _line_at(said, match.start())
            message = (sign.advice or "{line}").format(host=host, line=line)
            return (TransientError if sign.transient else HostError)(sign.kind, message)
    return HostError("error", last_line(said) or "ssh ended without a reason")


def after_login(host: str, status: int, said: str) -> HostError:
    """Why the command that ssh ran ended with this status, before its answer did."""
    if status == 127 or re.search(r"command not found|: not found", said):
        return HostError("no-agent", f"none in its PATH ({last_line(said)})")
    if status == 126:
        return HostError("no-agent", f"it may not be run ({last_line(said)})")
    if "No such command" in said:
        return HostError("version", "its oncall is too old to be asked: upgrade it there")
    if status == 255:
        error = classify(host, said)
        # The login is behind us: what broke is the answer, not a busy server's greeting.
        return HostError("error" if error.kind == "refused" else error.kind, str(error))
    if status < 0:
        return HostError("error", f"the connection was cut: ssh ended by signal {-status}")
    return HostError("error", f"oncall ended with status {status}: {last_line(said)}")


def last_line(said: str) -> str:
    """The last line that says anything, short and without what could steer a terminal."""
    lines = [line for line in plain(said).splitlines() if line.strip()]
    return lines[-1].strip()[:_MOST_LINE] if lines else ""


def plain(text: str) -> str:
    """Foreign text with only its line feeds left of what does not print."""
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text)


def _line_at(said: str, position: int) -> str:
    start = said.rfind("\n", 0, position) + 1
    return plain(said[start:].partition("\n")[0]).strip()[:_MOST_LINE]
