"""Turn the stderr of OpenSSH's client into reasons that a person can act on."""

from __future__ import annotations

import re

from oncall.fleet.error_output import first_match, last_line, pattern
from oncall.fleet.outcome import HostError

CHANGED_KEY = (
    "host key differs from the one in known_hosts: the node was reinstalled, or another machine "
    "answers in its place. Find out which before you remove the old key (ssh-keygen -R {host})"
)
UNKNOWN_KEY = "host key is not in known_hosts: log in once (ssh {host}) and verify it"
REVOKED_KEY = "host key is marked as revoked in known_hosts"
LOGIN_REFUSED = "{line}: the node accepts none of your keys; check that it is loaded (ssh-add -l)"
TOO_MANY_KEYS = "too many keys offered: set IdentityFile for this host"

_PATTERNS = (
    pattern(
        "hostkey", r"REMOTE HOST IDENTIFICATION HAS CHANGED|host key .* has changed", CHANGED_KEY
    ),
    pattern("hostkey", r"REVOKED HOST KEY|host key .* revoked", REVOKED_KEY),
    pattern("hostkey", r"No .* host key is known for|authenticity of host", UNKNOWN_KEY),
    pattern("hostkey", r"Host key verification failed", UNKNOWN_KEY),
    pattern("hostkey", r"no matching host key type|Host certificate .*(invalid|not)"),
    pattern("auth", r"Permission denied \(", LOGIN_REFUSED),
    pattern("auth", r"Too many authentication failures", TOO_MANY_KEYS),
    pattern("auth", r"No supported authentication methods|account .* expired|This account is"),
    pattern("refused", r"Could not resolve hostname", "unknown host: {line}"),
    pattern("refused", r"Connection refused|No route to host|Network is unreachable"),
    pattern("refused", r"administratively prohibited|open failed|stdio forwarding failed"),
    pattern("error", r"Bad configuration option|Bad owner or permissions|unsupported option"),
    pattern("timeout", r"timed out|Operation timed out|Timeout, server .* not responding"),
    pattern(
        "refused",
        r"kex_exchange_identification|ssh_exchange_identification|Connection (closed|reset) by"
        r"|banner exchange|Connection to .* closed by remote host|Broken pipe",
        "connection closed before the login; the server may have too many at once",
        transient=True,
    ),
)


def classify(host: str, said: str) -> HostError:
    """Why ssh exited with status 255, from its stderr."""
    known = first_match(_PATTERNS, host, said)
    return known or HostError("error", last_line(said) or "ssh failed without a message")


def after_login(host: str, status: int, said: str) -> HostError:
    """Why the command that ssh ran ended with this status, before its answer did."""
    if status == 127 or re.search(r"command not found|: not found", said):
        return HostError("no-agent", f"not in its PATH ({last_line(said)})")
    if status == 126:
        return HostError("no-agent", f"not executable ({last_line(said)})")
    if "No such command" in said:
        return HostError("version", "oncall on the node is too old: upgrade it there")
    if status == 255:
        error = classify(host, said)
        # After the login, a lost connection is no sign of a busy server.
        return HostError("error" if error.kind == "refused" else error.kind, str(error))
    if status < 0:
        return HostError("error", f"connection lost: ssh was killed by signal {-status}")
    return HostError("error", f"oncall exited with status {status}: {last_line(said)}")
