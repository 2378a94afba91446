"""Where the site's own pages are: a runbook of a verdict, a dashboard at the time of an incident.

    [watch]
    runbook_url = "https://wiki.example.com/oncall/$rulebook.$verdict"
    dashboard_url = "https://grafana.example.com/d/job?var-job=$job&from=$since_ms"

Fields are quoted as parts of a URL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from string import Template
from urllib.parse import quote, urlsplit

from oncall.core.diagnosis import Finding
from oncall.core.errors import UsageError
from oncall.core.printable import clean

_NS_PER_MS = 10**6
_NAMES = ("job", "rulebook", "verdict", "severity", "node", "rank", "since_ms")


@dataclass(frozen=True)
class Links:
    """Addresses with fields to fill in; None: the site gave none."""

    runbook: Template | None = None
    dashboard: Template | None = None

    def of(self, job: str, finding: Finding | None, since_ns: int) -> dict[str, str]:
        """`runbook_url` and `dashboard_url` of what leads an incident, as far as there are any. No
        runbook is of no verdict."""
        where = finding.blame[0].where if finding is not None and finding.blame else {}
        values = {
            "job": job,
            "rulebook": finding.rulebook if finding else "",
            "verdict": finding.verdict if finding else "",
            "severity": finding.severity if finding else "",
            "node": where.get("node") or "",
            "rank": "" if where.get("rank") is None else where["rank"],
            "since_ms": since_ns // _NS_PER_MS,
        }
        quoted = {name: quote(clean(str(value)), safe="") for name, value in values.items()}
        given = {
            "runbook_url": self.runbook if finding is not None else None,
            "dashboard_url": self.dashboard,
        }
        return {name: one.substitute(quoted) for name, one in given.items() if one is not None}


NO_LINKS = Links()


def url_template(text: str) -> Template:
    """The address. Raises UsageError for one that is none, or that names an unknown field."""
    if urlsplit(text).scheme not in ("http", "https") or not urlsplit(text).hostname:
        raise UsageError(f"must be an http or https URL, not {text!r}")
    return checked_template(text, _NAMES)


def checked_template(text: str, names: Sequence[str]) -> Template:
    """The template. Raises UsageError for a field that is none of these."""
    template = Template(text)
    if not template.is_valid():
        raise UsageError("has a `$` that names no field; write `$$` for a dollar sign")
    unknown = [name for name in template.get_identifiers() if name not in names]
    if unknown:
        raise UsageError(f"names the unknown field ${unknown[0]}; known: {', '.join(names)}")
    return template
