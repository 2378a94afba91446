"""Prometheus Alertmanager, API v2: one alert for each incident, resolved when it is closed.

Alertmanager knows an alert by its labels, so they stay the same; the verdict, which changes, is an
annotation. Alertmanager forgets alerts that are not sent again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from oncall.core.units import NS_PER_S
from oncall.watch.announcement import Announcement
from oncall.watch.targets.cloudevents import rfc3339
from oncall.watch.targets.target import post_json

# Without news from its watch an alert ends by itself, as nobody would resolve it.
_LASTS_NS = 3600 * NS_PER_S


@dataclass(frozen=True)
class Alertmanager:
    """Posts alerts; `labels` are added to each."""

    name: str
    url: str = field(repr=False)
    token: str | None = field(default=None, repr=False)
    labels: dict[str, str] = field(default_factory=dict)
    timeout_s: float = 10.0
    repeats: bool = True

    def send(self, announcement: Announcement) -> None:
        url = f"{self.url.rstrip('/')}/api/v2/alerts"
        post_json(url, self._alerts(announcement), token=self.token, timeout_s=self.timeout_s)

    def shown(self, announcement: Announcement) -> str:
        return json.dumps(self._alerts(announcement), indent=2)

    def _alerts(self, announcement: Announcement) -> list[dict[str, Any]]:
        closed = announcement.kind in ("closed", "test")
        return [
            {
                "labels": {
                    **self.labels,
                    "alertname": "OncallIncident",
                    "job": announcement.job,
                    "incident": announcement.incident,
                },
                "annotations": {
                    "summary": announcement.headline,
                    "description": announcement.summary,
                    "severity": announcement.severity,
                    "verdict": "; ".join(announcement.verdict),
                    **announcement.links,
                },
                "startsAt": rfc3339(announcement.opened_ns),
                "endsAt": rfc3339(announcement.at_ns + (0 if closed else _LASTS_NS)),
            }
        ]
