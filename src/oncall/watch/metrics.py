"""What a watch knows as Prometheus metrics: for `/metrics` and node_exporter's textfile."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, generate_latest, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from oncall.core.diagnosis import Diagnosis, Finding
from oncall.core.printable import clean
from oncall.core.units import NS_PER_S
from oncall.views import words
from oncall.watch.course import Open

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

_MOST_FINDINGS = 32
_MOST_BLAMED = 16  # of one finding: a fault of a thousand ranks is one series


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


class _OfWatch(Collector):
    """The metrics of what a watch has seen last."""

    def __init__(self, seen: Callable[[], Seen]) -> None:
        self._seen = seen

    def collect(self) -> Iterator[Metric]:
        seen = self._seen()
        job = {"job": clean(seen.job)}
        yield _filled(GaugeMetricFamily, "oncall_finding", "A root cause in the last diagnosis.",
                      _findings(seen))  # fmt: skip
        for name, about, value in _of_job(seen):
            yield _filled(GaugeMetricFamily, f"oncall_{name}", about, [(job, value)])
        for name, about, kind, label, values in (
            ("lost_gpu_seconds", "GPU time that faults have cost since the watch began.",
             CounterMetricFamily, "cause", seen.lost_gpu_s),
            ("notifications_sent", "Accepted by the target.",
             CounterMetricFamily, "target", seen.sent),
            ("notifications_failed", "Tries that failed.",
             CounterMetricFamily, "target", seen.failed),
            ("notifications_pending", "Not accepted yet.",
             GaugeMetricFamily, "target", seen.pending),
        ):  # fmt: skip
            samples = [({**job, label: clean(one)}, value) for one, value in values.items()]
            yield _filled(kind, f"oncall_{name}", about, samples)


def _of_job(seen: Seen) -> Iterator[tuple[str, str, float]]:
    """Name, meaning and value of each gauge that a job has one of."""
    yield "incident_open", "Whether an incident is open.", seen.incident is not None
    if seen.incident is not None:
        opened_s = seen.incident.opened_ns / NS_PER_S
        yield "incident_opened_timestamp_seconds", "When the open incident was opened.", opened_s
    yield "look_timestamp_seconds", "When the job was last seen.", seen.look_ns / NS_PER_S
    about = "When the watch last looked, with or without success."
    yield "watch_timestamp_seconds", about, seen.at_ns / NS_PER_S
    yield "look_duration_seconds", "How long the last look took.", seen.took_s
    yield "watch_blind", "Whether the last look saw nothing of the job.", seen.blind
    about = "Gateways that failed at the last look; their nodes are asked directly."
    yield "gateways_lost", about, len(seen.lost_gateways)
    if seen.diagnosis is not None:
        coverage = seen.diagnosis.coverage
        yield "ranks", "Ranks of the job.", coverage.ranks
        yield "ranks_seen", "Ranks that left evidence.", coverage.ranks_seen
        yield "nodes", "Nodes of the job.", coverage.nodes
        yield "nodes_answered", "Nodes that left evidence.", coverage.answered


def _filled(
    kind: type[GaugeMetricFamily] | type[CounterMetricFamily],
    name: str,
    about: str,
    samples: Iterable[tuple[Mapping[str, str], float]],
) -> Metric:
    """A family of samples that have the same labels."""
    found = list(samples)
    family = kind(name, about, labels=tuple(found[0][0]) if found else ())
    for labels, value in found:
        family.add_metric(tuple(labels.values()), float(value))
    return family


def exposition(seen: Seen) -> str:
    """The metrics in Prometheus' text format."""
    return generate_latest(_OfWatch(lambda: seen)).decode()


def write_textfile(path: Path, text: str) -> None:
    """Replace the file at once: node_exporter reads it at any time. Raises OSError."""
    draft = path.with_name(f".{path.name}.new")
    draft.write_text(text, encoding="utf-8")
    draft.chmod(0o644)
    draft.replace(path)


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _ServerOfIPv6(_Server):
    address_family = socket.AF_INET6


class _Silent(WSGIRequestHandler):
    timeout = 10

    def log_message(self, *_: object) -> None:
        pass


class MetricsServer:
    """Serves `/metrics`, as text or OpenMetrics, packed for who asks for that; and `/healthz`: 200
    as long as looks go on."""

    def __init__(
        self, host: str, port: int, seen: Callable[[], Seen], healthy: Callable[[], bool]
    ) -> None:
        """Raises OSError where the address cannot be bound."""
        registry = CollectorRegistry()
        registry.register(_OfWatch(seen))
        metrics = make_wsgi_app(registry)

        def app(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
            path = environ["PATH_INFO"]
            if path == "/metrics":
                found: Iterable[bytes] = metrics(environ, start)
                return found
            status, body = "404 Not Found", b"see /metrics\n"
            if path == "/healthz":
                status, body = (
                    ("200 OK", b"ok\n")
                    if healthy()
                    else ("503 Service Unavailable", b"no look for too long\n")
                )
            start(status, [("Content-Type", "text/plain; charset=utf-8")])
            return [body]

        kind = _ServerOfIPv6 if ":" in host else _Server
        self._server = make_server(host, port, app, kind, _Silent)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _findings(seen: Seen) -> Iterator[tuple[dict[str, str], float]]:
    if seen.diagnosis is None or seen.blind:
        return
    for finding in words.roots(seen.diagnosis)[:_MOST_FINDINGS]:
        for rank, node in _blamed(finding):
            labels = {
                "job": seen.job,
                "rulebook": finding.rulebook,
                "verdict": finding.verdict,
                "severity": finding.severity,
                "rank": rank,
                "node": node,
            }
            yield {name: clean(value) for name, value in labels.items()}, 1


def _blamed(finding: Finding) -> list[tuple[str, str]]:
    """Rank and node of each culprit; both empty for too many, or for something else."""
    found = dict.fromkeys(
        tuple("" if one.where.get(key) is None else str(one.where[key]) for key in ("rank", "node"))
        for one in finding.blame
    )
    if not found or len(found) > _MOST_BLAMED:
        return [("", "")]
    return [(rank, node) for rank, node in found]
