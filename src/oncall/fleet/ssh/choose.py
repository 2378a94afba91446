"""Choose the transport for a host: AsyncSSH in this process, or OpenSSH.

AsyncSSH logs in six times faster and needs no child process per host, but supports fewer options
than OpenSSH and ignores those it does not know. So every option in force is checked. An option
allows AsyncSSH if it has OpenSSH's default value, is supported here, or does not affect a channel
without terminal and forwarding. Any other option, also of a later version, means OpenSSH.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from oncall.fleet.ssh.config import SshOptions
from oncall.fleet.ssh.in_process import supported
from oncall.fleet.ssh.keys import Keys

Name = Literal["openssh", "in-process"]


@dataclass(frozen=True)
class Choice:
    """The transport for a host, and why."""

    transport: Name
    why: str


def _each(words: str, why: str) -> dict[str, str]:
    return dict.fromkeys(words.split(), why)


HONOURED = _each(
    "host hostname port user addressfamily bindaddress connecttimeout serveraliveinterval "
    "serveralivecountmax tcpkeepalive compression identityfile identitiesonly identityagent "
    "certificatefile userknownhostsfile globalknownhostsfile hostkeyalias requiredrsasize "
    "proxyjump sendenv setenv ciphers macs kexalgorithms hostkeyalgorithms",
    "passed to AsyncSSH with the value that `ssh -G` prints",
)

# keyword -> why it makes no difference to this channel
HARMLESS: Mapping[str, str] = {
    **_each(
        "batchmode kbdinteractiveauthentication passwordauthentication numberofpasswordprompts "
        "challengeresponseauthentication connectionattempts",
        "no password prompts; the window counts the attempts",
    ),
    **_each(
        "canonicaldomains canonicalizefallbacklocal canonicalizehostname canonicalizemaxdots "
        "canonicalizepermittedcnames tag",
        "`ssh -G` has applied it already",
    ),
    **_each(
        "clearallforwardings exitonforwardfailure localforward remoteforward dynamicforward "
        "gatewayports permitremoteopen streamlocalbindmask streamlocalbindunlink forwardagent "
        "forwardx11 forwardx11timeout forwardx11trusted xauthlocation tunnel tunneldevice",
        "nothing is forwarded",
    ),
    **_each(
        "requesttty sessiontype remotecommand stdinnull forkafterauthentication escapechar "
        "enableescapecommandline permitlocalcommand localcommand obscurekeystroketiming",
        "the channel runs one command, without a terminal",
    ),
    **_each(
        "loglevel logverbose syslogfacility fingerprinthash visualhostkey warnweakcrypto",
        "it changes only what is printed",
    ),
    **_each(
        "hashknownhosts updatehostkeys addkeystoagent",
        "nothing is written to known_hosts or the agent",
    ),
    **_each("controlmaster controlpersist", "no master is alive, and none is left behind"),
    **_each(
        "gssapikexalgorithms gssapidelegatecredentials gssapitrustdns gssapiclientidentity "
        "gssapirenewalforcesrekey gssapiserveridentity hostbasedacceptedalgorithms "
        "enablesshkeysign proxyusefdpass",
        "it belongs to another option, which is checked",
    ),
    "ipqos": "a traffic class",
    "securitykeyprovider": "keys on security tokens are checked",
}


def _is_no(value: str) -> bool:
    return value.lower() in ("", "no", "false", "none")


def _live_master(path: str) -> bool:
    """Whether the path is a socket, on which a master may listen."""
    try:
        return Path(path).is_socket()
    except OSError:
        return False


def _kerberos_ticket() -> bool:
    """Whether there may be a Kerberos ticket, with which GSSAPI could log in."""
    cache = os.environ.get("KRB5CCNAME", "")
    name = cache.removeprefix("FILE:") if cache else f"/tmp/krb5cc_{os.getuid()}"
    # KEYRING:, KCM: and DIR: are not files: assume a ticket if the variable is set.
    return Path(name).exists() if name.startswith("/") else bool(cache)


# keyword -> whether AsyncSSH supports its value; checked even for OpenSSH's default values.
_CHECKS: Mapping[str, Callable[[str], bool]] = {
    "stricthostkeychecking": lambda value: value in ("ask", "yes", "true"),
    "pubkeyauthentication": lambda value: value in ("yes", "true", "unbound", "host-bound"),
    "preferredauthentications": lambda value: not value or "publickey" in value.split(","),
    "controlpath": lambda value: not _live_master(value),
    "gssapiauthentication": lambda value: _is_no(value) or not _kerberos_ticket(),
    "gssapikeyexchange": lambda value: _is_no(value) or not _kerberos_ticket(),
    "ciphers": lambda value: bool(supported("ciphers", value)),
    "macs": lambda value: bool(supported("macs", value)),
    "kexalgorithms": lambda value: bool(supported("kexalgorithms", value)),
    "hostkeyalgorithms": lambda value: bool(supported("hostkeyalgorithms", value)),
    "pubkeyacceptedalgorithms": lambda value: _with_and_without_certificate(value),
    "casignaturealgorithms": lambda value: (
        ("rsa-sha2-256" in value.split(",")) == ("rsa-sha2-512" in value.split(","))
    ),
    "proxycommand": _is_no,
    "checkhostip": _is_no,
    "verifyhostkeydns": _is_no,
    "nohostauthenticationforlocalhost": _is_no,
    "knownhostscommand": _is_no,
    "revokedhostkeys": _is_no,
    "hostbasedauthentication": _is_no,
    "pkcs11provider": _is_no,
    "bindinterface": _is_no,
}


def _with_and_without_certificate(value: str) -> bool:
    """Whether the same algorithms are allowed for keys and for their certificates: AsyncSSH takes
    one list for both. Keys on security tokens use OpenSSH anyway."""
    names = [
        name
        for name in supported("pubkeyacceptedalgorithms", value)
        if not name.startswith(("sk-", "webauthn-"))
    ]
    plain = {name for name in names if "-cert-" not in name}
    certified = {name.partition("-cert-")[0] for name in names if "-cert-" in name}
    return bool(plain) and plain == certified


def choose(options: SshOptions, defaults: Mapping[str, tuple[str, ...]], keys: Keys) -> Choice:
    """The fastest transport that supports all options of the host and its jump hosts."""
    for hop in (*options.jumps, options):
        if obstacle := _obstacle(hop, defaults, keys):
            where = "" if hop is options else f" of jump host {hop.host}"
            return Choice("openssh", f"{obstacle}{where}")
    return Choice("in-process", "AsyncSSH supports all that ssh_config sets")


def master_alive(options: SshOptions) -> bool:
    """Whether OpenSSH will use the connection of a live master, without a login."""
    path = options.get("controlpath")
    return bool(path) and _live_master(path)


def _obstacle(
    options: SshOptions, defaults: Mapping[str, tuple[str, ...]], keys: Keys
) -> str | None:
    """The first option that AsyncSSH does not support, as `keyword value`."""
    for keyword, values in options.values.items():
        if keyword in _CHECKS:
            fit = _CHECKS[keyword]("" if values[0] == "none" else values[0])
        else:
            known = keyword in HONOURED or keyword in HARMLESS
            fit = known or values == defaults.get(keyword)
        if not fit:
            return f"{keyword} {_short(values[0])}"
    agent = options.get("identityagent")
    if "$" in agent and not agent.startswith("$"):
        return f"identityagent {_short(agent)}"
    if foreign := keys.files(options).foreign:
        return f"identityfile {_short(foreign[0])}, which AsyncSSH cannot use"
    return None


def _short(value: str) -> str:
    return value if len(value) <= 40 else value[:39] + "…"
