"""CloudEvents 1.0 in structured JSON mode, for event buses and programs of a site.

The id of an event is the same however often it is sent, so that a receiver can drop copies.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from oncall.core.printable import clean
from oncall.core.units import NS_PER_S
from oncall.watch.announcement import Announcement
from oncall.watch.targets.target import post_json

_CONTENT_TYPE = "application/cloudevents+json; charset=UTF-8"


@dataclass(frozen=True)
class CloudEvents:
    """Posts each announcement as one event, with the diagnosis as its data."""

    name: str
    url: str = field(repr=False)
    token: str | None = field(default=None, repr=False)
    timeout_s: float = 10.0
    repeats: bool = False

    def send(self, announcement: Announcement) -> None:
        post_json(self.url, event(announcement), _CONTENT_TYPE, self.token, self.timeout_s)

    def shown(self, announcement: Announcement) -> str:
        values = event(announcement)
        values["data"] = {**values["data"], "diagnosis": "..."}
        return json.dumps(values, indent=2)


def event(announcement: Announcement) -> dict[str, Any]:
    """The event of an announcement."""
    return {
        "specversion": "1.0",
        "id": announcement.id,
        "source": f"/oncall/jobs/{quote(clean(announcement.job), safe='')}",
        "type": f"oncall.incident.{announcement.kind}",
        "subject": announcement.incident,
        "time": rfc3339(announcement.at_ns),
        "datacontenttype": "application/json",
        "data": {
            **announcement.fields(),
            "number": announcement.number,
            "verdict": list(announcement.verdict),
            "opened_ns": announcement.opened_ns,
            "at_ns": announcement.at_ns,
            "diagnosis": announcement.diagnosis,
        },
    }


def rfc3339(at_ns: int) -> str:
    """The instant as RFC 3339, UTC to the millisecond."""
    moment = datetime.fromtimestamp(at_ns / NS_PER_S, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
