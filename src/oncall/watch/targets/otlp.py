"""OpenTelemetry: announcements, and the lines of the watch, as log records. An optional extra."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from oncall.core.errors import UsageError
from oncall.watch.announcement import Announcement

if TYPE_CHECKING:
    from oncall.watch.targets.otlp_records import Sender

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def endpoint() -> str:
    """The collector that the environment names for whatever sends logs; empty if none."""
    return next(filter(None, map(os.environ.get, _ENDPOINTS)), "")


@dataclass(frozen=True)
class Otlp:
    """Sends to a collector by OTLP over HTTP. `url` is its address without a path for logs; where
    it is None, that of the environment counts."""

    name: str
    url: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    timeout_s: float = 10.0
    repeats: bool = False

    def check(self) -> None:
        """Raises UsageError where the library is absent."""
        _ = self._sender

    def send(self, announcement: Announcement) -> None:
        self._sender.send(announcement)

    def shown(self, announcement: Announcement) -> str:
        return self._sender.shown(announcement)

    def log(self, job: str, text: str) -> None:
        """A line of the watch. It is sent within seconds, or dropped; nothing waits for it."""
        self._sender.log(job, text)

    @cached_property
    def _sender(self) -> Sender:
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # we say it ourselves
        try:
            from oncall.watch.targets.otlp_records import Sender
        except ModuleNotFoundError as error:
            raise UsageError(
                f"OTLP needs OpenTelemetry's SDK ({error.name} is missing): "
                "pip install 'oncall-console[otlp]'"
            ) from None
        return Sender(self.name, self.url, self.token, self.timeout_s)
