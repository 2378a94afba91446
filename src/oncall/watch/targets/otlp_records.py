"""Log records by OpenTelemetry's SDK. What OTEL_EXPORTER_OTLP_... and OTEL_RESOURCE_ATTRIBUTES say
of headers, certificates, compression and the service's name counts.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import requests
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import LoggerProvider, ReadableLogRecord
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, LogRecordExportResult
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from oncall import __version__
from oncall.core.printable import clean, harmless_values
from oncall.watch.announcement import Announcement
from oncall.watch.targets.target import NotSent

_SCOPE = "oncall.watch"
_PATH = "/v1/logs"
_SEVERITIES = {"critical": SeverityNumber.ERROR, "warning": SeverityNumber.WARN}


class Sender:
    """Sends records to one collector: those of announcements one by one, lines in batches."""

    def __init__(self, name: str, url: str | None, token: str | None, timeout_s: float) -> None:
        self._exporter = _Exporter(name, url, token, timeout_s)
        ours = Resource.create({"service.name": "oncall-watch", "service.version": __version__})
        self._resource = ours.merge(OTELResourceDetector().detect())
        provider = LoggerProvider(self._resource)
        # Its own exporter: the outcome of a line is none of an announcement.
        lines = _Exporter(name, url, token, timeout_s, reports=True)
        provider.add_log_record_processor(BatchLogRecordProcessor(lines))
        self._lines = provider.get_logger(_SCOPE)

    def send(self, announcement: Announcement) -> None:
        """Raises NotSent."""
        self._exporter.export([self._record(announcement)])
        if self._exporter.problem:
            raise NotSent(self._exporter.problem)

    def shown(self, announcement: Announcement) -> str:
        """The record as JSON."""
        return self._record(announcement).to_json()

    def log(self, job: str, text: str) -> None:
        """A line of the watch, in its order."""
        self._lines.emit(
            severity_number=SeverityNumber.INFO,
            severity_text="info",
            body=clean(text),
            attributes={"oncall.job": clean(job)},
        )

    def _record(self, announcement: Announcement) -> ReadableLogRecord:
        severity = "info" if announcement.kind == "closed" else announcement.severity
        values = harmless_values({"id": announcement.id, **announcement.fields()})
        record = LogRecord(
            timestamp=announcement.at_ns,
            observed_timestamp=announcement.at_ns,
            event_name=f"oncall.incident.{announcement.kind}",
            severity_number=_SEVERITIES.get(severity, SeverityNumber.INFO),
            severity_text=severity,
            body=values.pop("summary"),
            attributes={f"oncall.{name}": value for name, value in values.items() if value},
        )
        return ReadableLogRecord(record, self._resource, InstrumentationScope(_SCOPE))


class _Exporter(OTLPLogExporter):
    """Tells why what it sent was not accepted, which the SDK's own only logs."""

    def __init__(
        self, name: str, url: str | None, token: str | None, timeout_s: float, reports: bool = False
    ) -> None:
        """`reports`: on stderr, each change."""
        self._answers = _Answers()
        super().__init__(
            endpoint=url and url.rstrip("/").removesuffix(_PATH) + _PATH,
            headers={"Authorization": f"Bearer {token}"} if token else None,
            timeout=timeout_s,
            session=self._answers,
        )
        self._name, self._reports = name, reports
        self.problem = ""

    def export(self, batch: Sequence[ReadableLogRecord]) -> LogRecordExportResult:
        result = super().export(batch)
        before = self.problem
        accepted = result is LogRecordExportResult.SUCCESS
        self.problem = "" if accepted else self._answers.problem or "not sent"
        if self._reports and self.problem != before and self.problem:
            print(f"oncall: {self._name}: lines are not accepted: {self.problem}", file=sys.stderr)
        return result


class _Answers(requests.Session):
    """Remembers the outcome of the last request."""

    problem = ""

    def request(self, method: str, url: str, *args: Any, **options: Any) -> requests.Response:  # type: ignore[override]
        place = urlsplit(str(url)).netloc.rpartition("@")[2]
        try:
            answer = super().request(method, url, *args, **options)
        except requests.RequestException as error:
            self.problem = f"{place} cannot be reached: {_reason(error)}"
            raise
        self.problem = f"{place} refused it: HTTP {answer.status_code}"
        return answer


def _reason(error: BaseException) -> str:
    """What the system says, beneath what libraries say."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    return getattr(error, "strerror", None) or type(error).__name__
