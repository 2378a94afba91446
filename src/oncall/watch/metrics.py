"""What a watch knows as Prometheus metrics: text for `/metrics` and node_exporter's textfile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from oncall.core.diagnosis import Diagnosis, Finding
from oncall.core.printable import clean
from oncall.core.units import NS_PER_S
from oncall.views import words
from oncall.watch.course import Open

_MOST_FINDINGS = 32
_MOST_BLAMED = 16  # of one finding: a fault of a thousand ranks is one series
_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True)
class Seen:
    """What is published: the last look, its diagnosis, the open incident, and deliveries by target.
    Instants are Unix time in ns; `look_ns` is 0 before the first look that saw the job."""

    job: str
    at_ns: int = 0
    look_ns: int = 0
    took_s: float = 0.0
    blind: bool = False
    diagnosis: Diagnosis | None = None
    incident: Open | None = None
    lost_gateways: Mapping[str, str] = field(default_factory=dict)
    sent: Mapping[str, int] = field(default_factory=dict)
    failed: Mapping[str, int] = field(default_factory=dict)
    pending: Mapping[str, int] = field(default_factory=dict)
    lost_gpu_s: Mapping[str, float] = field(default_factory=dict)  # by cause


def exposition(seen: Seen) -> str:
    """The metrics in Prometheus' text format."""
    lines: list[str] = []

    def metric(name: str, about: str, samples: Mapping[tuple[tuple[str, str], ...], float]) -> None:
        if samples:
            lines.append(f"# HELP {name} {about}")
            lines.append(f"# TYPE {name} {'counter' if name.endswith('_total') else 'gauge'}")
            lines.extend(f"{name}{_labels(key)} {value:.15g}" for key, value in samples.items())

    job = (("job", seen.job),)
    metric("oncall_finding", "A root cause in the last diagnosis.", dict(_findings(seen)))
    incident = seen.incident
    metric("oncall_incident_open", "Whether an incident is open.", {job: incident is not None})
    if incident is not None:
        metric(
            "oncall_incident_opened_timestamp_seconds",
            "When the open incident was opened.",
            {job: incident.opened_ns / NS_PER_S},
        )
    metric(
        "oncall_look_timestamp_seconds",
        "When the job was last seen.",
        {job: seen.look_ns / NS_PER_S},
    )
    metric(
        "oncall_watch_timestamp_seconds",
        "When the watch last looked, with or without success.",
        {job: seen.at_ns / NS_PER_S},
    )
    metric("oncall_look_duration_seconds", "How long the last look took.", {job: seen.took_s})
    metric("oncall_watch_blind", "Whether the last look saw nothing of the job.", {job: seen.blind})
    if seen.diagnosis is not None:
        coverage = seen.diagnosis.coverage
        metric("oncall_ranks", "Ranks of the job.", {job: coverage.ranks})
        metric("oncall_ranks_seen", "Ranks that left evidence.", {job: coverage.ranks_seen})
        metric("oncall_nodes", "Nodes of the job.", {job: coverage.nodes})
        metric("oncall_nodes_answered", "Nodes that left evidence.", {job: coverage.answered})
    metric(
        "oncall_lost_gpu_seconds_total",
        "GPU time that faults have cost since the watch began.",
        {(*job, ("cause", cause)): lost for cause, lost in seen.lost_gpu_s.items()},
    )
    metric(
        "oncall_gateways_lost",
        "Gateways that failed at the last look; their nodes are asked directly.",
        {job: len(seen.lost_gateways)},
    )
    for name, about, values in (
        ("oncall_notifications_sent_total", "Accepted by the target.", seen.sent),
        ("oncall_notifications_failed_total", "Tries that failed.", seen.failed),
        ("oncall_notifications_pending", "Not accepted yet.", seen.pending),
    ):
        metric(name, about, {(*job, ("target", one)): count for one, count in values.items()})
    return "\n".join(lines) + "\n"


def write_textfile(path: Path, text: str) -> None:
    """Replace the file at once: node_exporter reads it at any time. Raises OSError."""
    draft = path.with_name(f".{path.name}.new")
    draft.write_text(text, encoding="utf-8")
    draft.chmod(0o644)
    draft.replace(path)


class MetricsServer:
    """Serves `/metrics`, and `/healthz`: 200 as long as looks go on."""

    def __init__(
        self, host: str, port: int, text: Callable[[], str], healthy: Callable[[], bool]
    ) -> None:
        """Raises OSError where the address cannot be bound."""

        class Handler(BaseHTTPRequestHandler):
            timeout = 10

            def do_GET(self) -> None:
                pages: dict[str, tuple[int, str]] = {
                    "/metrics": (200, text()),
                    "/healthz": (200, "ok\n") if healthy() else (503, "no look for too long\n"),
                }
                status, body = pages.get(self.path.partition("?")[0], (404, "see /metrics\n"))
                content = body.encode()
                self.send_response(status)
                self.send_header("Content-Type", _CONTENT_TYPE)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        family = {"address_family": 10} if ":" in host else {}
        server = type("Server", (ThreadingHTTPServer,), {"daemon_threads": True, **family})
        self._server: ThreadingHTTPServer = server((host, port), Handler)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _findings(seen: Seen) -> Iterator[tuple[tuple[tuple[str, str], ...], float]]:
    if seen.diagnosis is None or seen.blind:
        return
    for finding in words.roots(seen.diagnosis)[:_MOST_FINDINGS]:
        for rank, node in _blamed(finding):
            yield (
                (
                    ("job", seen.job),
                    ("rulebook", finding.rulebook),
                    ("verdict", finding.verdict),
                    ("severity", finding.severity),
                    ("rank", rank),
                    ("node", node),
                ),
                1,
            )


def _blamed(finding: Finding) -> list[tuple[str, str]]:
    """Rank and node of each culprit; both empty for too many, or for something else."""
    found = dict.fromkeys(
        tuple("" if one.where.get(key) is None else str(one.where[key]) for key in ("rank", "node"))
        for one in finding.blame
    )
    if not found or len(found) > _MOST_BLAMED:
        return [("", "")]
    return [(rank, node) for rank, node in found]


def _labels(pairs: tuple[tuple[str, str], ...]) -> str:
    def escaped(value: str) -> str:
        return clean(value).replace("\\", "\\\\").replace('"', '\\"')

    return "{" + ",".join(f'{name}="{escaped(value)}"' for name, value in pairs) + "}"
