"""How to watch and whom to notify: `[watch]` of config.toml.

    [watch]
    every = "30s"                  # between looks
    confirm = "3s"                 # until a suspicion is looked at again
    listen = "2s"                  # between two questions whether anything moves
    standstill = "5m"              # without a log line, or a launch by NCCL RAS
    textfile = "/var/lib/node_exporter/textfile/oncall.prom"
    metrics = "127.0.0.1:9469"     # serves /metrics and /healthz
    gpu_hour = "2.50 EUR"          # what a GPU-hour costs, for notifications
    runbook_url = "https://wiki/oncall/$verdict"    # and dashboard_url: oncall.watch.links

    [watch.notify.slack]
    kind = "apprise"               # or "cloudevents", "alertmanager", "otlp"
    url_file = "/etc/oncall/slack.url"       # or url_env = "SLACK_URL"
    title = "$job: $headline"
    severity = "warning"           # the least that is sent

Secrets are read from files or the environment, never from the command line.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import urlsplit

from oncall.core.configuration import meant, read_settings, text_of
from oncall.core.errors import BadInput, UsageError
from oncall.core.units import NS_PER_S, parse_duration_ns
from oncall.views.lost_gpu_time import Price
from oncall.watch.announcement import BODY, FIELDS, TITLE
from oncall.watch.course import Patience
from oncall.watch.links import NO_LINKS, Links, checked_template, url_template
from oncall.watch.targets.alertmanager import Alertmanager
from oncall.watch.targets.apprise_target import Apprise
from oncall.watch.targets.cloudevents import CloudEvents
from oncall.watch.targets.otlp import Otlp, endpoint
from oncall.watch.targets.target import SEVERITIES, Target

_KINDS = ("apprise", "cloudevents", "alertmanager", "otlp")
_OF_TARGET = {
    *("kind", "url", "url_file", "url_env", "token_file", "token_env", "severity", "timeout"),
    *("title", "body", "labels"),
}
_LEAST_NS = NS_PER_S // 10


@dataclass(frozen=True)
class NotifyTarget:
    """A target and the least severe incident that it is sent."""

    target: Target
    severity: str = "warning"

    def wants(self, severity: str) -> bool:
        return SEVERITIES.index(severity) <= SEVERITIES.index(self.severity)


@dataclass(frozen=True)
class WatchSettings:
    """All of `[watch]`. Durations in ns."""

    every_ns: int = 30 * NS_PER_S
    confirm_ns: int = 3 * NS_PER_S
    listen_ns: int = 2 * NS_PER_S
    standstill_ns: int = 300 * NS_PER_S
    calm_ns: int = 120 * NS_PER_S
    quiet_ns: int = 300 * NS_PER_S
    blind_ns: int = 300 * NS_PER_S
    textfile: Path | None = None
    metrics: str | None = None
    saves: bool = True  # what is announced, as a file
    price: Price | None = None
    links: Links = NO_LINKS
    notify: Mapping[str, NotifyTarget] = field(default_factory=dict)

    @property
    def patience(self) -> Patience:
        return Patience(self.every_ns, self.confirm_ns, self.calm_ns, self.quiet_ns, self.blind_ns)


_DURATIONS = {
    one.name.removesuffix("_ns"): one.name
    for one in fields(WatchSettings)
    if one.name.endswith("_ns")
}
_FIELDS = {**_DURATIONS, "textfile": "textfile", "metrics": "metrics", "gpu_hour": "price"}
_LINKS = {"runbook_url": "runbook", "dashboard_url": "dashboard"}


def read_watch_settings(file: Path | None = None) -> WatchSettings:
    """The settings of `file`, else of the configuration files. Raises BadInput, naming file and
    key, for unknown options, bad values, and secrets that cannot be read."""
    if file is not None and not file.is_file():
        raise BadInput(str(file), "no such file")
    targets: dict[str, NotifyTarget] = {}
    readers: dict[str, Callable[[Any], Any]] = {
        **dict.fromkeys(_DURATIONS, _duration),
        **dict.fromkeys(_LINKS, lambda value: url_template(text_of(value))),
        "textfile": lambda value: Path(text_of(value)),
        "metrics": _address_text,
        "gpu_hour": lambda value: _price(text_of(value)),
        "notify": lambda value: targets.update(_targets(value)),
    }
    found = read_settings("watch", readers, None if file is None else [file])
    if endpoint() and not any(isinstance(one.target, Otlp) for one in targets.values()):
        targets = _of_environment() | targets
    return WatchSettings(
        **{field_: found[key] for key, field_ in _FIELDS.items() if key in found},
        links=Links(**{link: found[key] for key, link in _LINKS.items() if key in found}),
        notify=targets,
    )


def _address_text(value: Any) -> str:
    address(text_of(value))
    return text_of(value)


def _price(text: str) -> Price:
    """`2.50 EUR` as the price of a GPU-hour. Raises UsageError."""
    amount, _, currency = text.partition(" ")
    try:
        price = Price(float(amount), currency.strip())
    except ValueError:
        price = Price(-1)
    if not 0 <= price.a_gpu_hour < float("inf"):
        raise UsageError(f'must be a price such as "2.50 EUR", not {text!r}')
    return price


def address(text: str) -> tuple[str, int]:
    """`127.0.0.1:9469` or `[::]:9469` as host and port. Raises UsageError."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f'must be an address such as "127.0.0.1:9469", not {text!r}')
    return host.strip("[]"), int(port)


def _of_environment() -> dict[str, NotifyTarget]:
    """The collector that the environment names, for any program: no reason not to watch."""
    try:
        return {"otlp": _target("otlp", {"kind": "otlp", "severity": "info"})}
    except UsageError as error:
        print(f"oncall: OTEL_EXPORTER_OTLP_ENDPOINT is set, but {error}", file=sys.stderr)
        return {}


def _targets(tables: Any) -> dict[str, NotifyTarget]:
    if not isinstance(tables, dict):
        raise UsageError("must be tables such as [watch.notify.slack]")
    found = {}
    for name, values in tables.items():
        try:
            if not isinstance(values, dict):
                raise UsageError("must be a table")
            found[name] = _target(name, values)
        except UsageError as error:
            raise UsageError(f"is wrong: [watch.notify.{name}] {error}") from None
    return found


def _target(name: str, values: Mapping[str, Any]) -> NotifyTarget:
    for key in values:
        if key not in _OF_TARGET:
            raise UsageError(f"has the unknown option `{key}`{meant(key, _OF_TARGET)}")
    kind = values.get("kind")
    if kind not in _KINDS:
        raise UsageError(f"needs `kind`: one of {', '.join(_KINDS)}")
    severity = values.get("severity", "warning")
    if severity not in SEVERITIES:
        raise UsageError(f"`severity` must be one of {', '.join(SEVERITIES)}")
    if kind == "apprise":
        return NotifyTarget(_apprise(name, values), severity)
    for key in ("title", "body"):
        if key in values:
            raise UsageError(f"`{key}` is for apprise alone")
    url = _secret(values, "url")
    used = urlsplit(url or (endpoint() if kind == "otlp" else ""))
    if used.scheme not in ("http", "https") or not used.hostname:
        raise UsageError("needs an http or https URL: url, url_file or url_env")
    if used.password is not None:
        raise UsageError("has a password in its URL: use token_file")
    timeout_s = _duration(values.get("timeout", "10s")) / NS_PER_S
    token = _secret(values, "token")
    if kind == "otlp":
        collector = Otlp(name, url, token, timeout_s)
        collector.check()
        return NotifyTarget(collector, severity)
    url = used.geturl()
    if kind == "cloudevents":
        return NotifyTarget(CloudEvents(name, url, token, timeout_s), severity)
    labels = values.get("labels", {})
    if not isinstance(labels, dict) or not all(isinstance(one, str) for one in labels.values()):
        raise UsageError('`labels` must be a table such as {cluster = "a"}')
    return NotifyTarget(Alertmanager(name, url, token, labels, timeout_s), severity)


def _apprise(name: str, values: Mapping[str, Any]) -> Apprise:
    if "url" in values:
        raise UsageError("`url` of apprise holds secrets: use url_file or url_env")
    url = _secret(values, "url")
    if url is None:
        raise UsageError("needs url_file or url_env")
    title, body = _template(values, "title", TITLE), _template(values, "body", BODY)
    target = Apprise(name, url, title, body)
    target.check()
    return target


def _template(values: Mapping[str, Any], key: str, default: str) -> Template:
    try:
        return checked_template(text_of(values.get(key, default)), FIELDS)
    except UsageError as error:
        raise UsageError(f"`{key}` {error}") from None


def _secret(values: Mapping[str, Any], name: str) -> str | None:
    """The value of `name`, `name_file` or `name_env`; None if none is given."""
    given = [key for key in (name, f"{name}_file", f"{name}_env") if key in values]
    if not given:
        return None
    if len(given) > 1:
        raise UsageError(f"has {' and '.join(given)}; give one of them")
    (key,) = given
    value = text_of(values[key])
    if key == name:
        return value
    if key.endswith("_env"):
        secret = os.environ.get(value, "")
        place = f"the environment variable {value}"
    else:
        place = value
        try:
            secret = Path(value).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not text"
            raise UsageError(f"`{key}` cannot be read: {value}: {reason}") from None
    if not secret.strip():
        raise UsageError(f"`{key}` is empty: {place}")
    return secret.strip()


def _duration(value: Any) -> int:
    duration_ns = parse_duration_ns(text_of(value))
    if duration_ns < _LEAST_NS:
        raise UsageError(f"must be at least 100ms, not {value!r}")
    return duration_ns
