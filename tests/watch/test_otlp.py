"""Announcements and lines of a watch reach a collector of OpenTelemetry, as protobuf over HTTP."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from tests.watch.servers import Receiver, receiving
from tests.watch.test_notifying import NEWS, configured

from oncall.core.errors import BadInput
from oncall.core.printable import is_harmless
from oncall.watch.settings import read_watch_settings
from oncall.watch.targets.otlp import Otlp
from oncall.watch.targets.target import NotSent

LOG = "[rank5]: Traceback (most recent call last):\n[rank5]: KeyError: 'tokens'\n"


def collector(**options: Any) -> Receiver:
    return Receiver(decode=ExportLogsServiceRequest.FromString, **options)


@pytest.fixture(autouse=True)
def nothing_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", raising=False)
    yield


def records(receiver: Receiver) -> list[Any]:
    return [
        record
        for _, _, request in receiver.received
        for resource in request.resource_logs
        for scope in resource.scope_logs
        for record in scope.log_records
    ]


def attributes(of: Any) -> dict[str, str]:
    return {one.key: one.value.string_value for one in of.attributes}


def test_an_announcement_is_an_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "cluster=a")
    (tmp_path / "token").write_text("s3cret-token\n")
    with receiving(collector()) as it:
        text = f'[watch.notify.otel]\nkind = "otlp"\nurl = "{it.url}"\n'
        text += f'token_file = "{tmp_path}/token"\n'
        target = configured(tmp_path, text).notify["otel"].target
        target.send(NEWS)
        target.send(replace(NEWS, kind="closed", number=2, headline="moves again"))
    path, given, request = it.received[0]
    headers = {name.lower(): value for name, value in given.items()}
    assert (path, headers["content-type"]) == ("/v1/logs", "application/x-protobuf")
    assert headers["authorization"] == "Bearer s3cret-token"
    resource = attributes(request.resource_logs[0].resource)
    assert (resource["service.name"], resource["cluster"]) == ("oncall-watch", "a")
    opened, closed = records(it)
    assert (opened.event_name, opened.severity_text) == ("oncall.incident.opened", "critical")
    assert opened.severity_number > closed.severity_number
    assert (opened.time_unix_nano, opened.body.string_value) == (NEWS.at_ns, NEWS.summary)
    about = attributes(opened)
    assert about["oncall.id"] == "llama-20261123T031000Z/1"
    assert about["oncall.headline"] == NEWS.headline and about["oncall.job"] == "llama"
    assert closed.event_name == "oncall.incident.closed"


def test_names_that_could_steer_a_terminal_do_not_leave() -> None:
    with receiving(collector()) as it:
        target = Otlp("it", it.url)
        target.send(replace(NEWS, job="\x1b[2J\u202egood\udce9", summary="rank \x1b[2J"))
    (record,) = records(it)
    assert is_harmless(record.body.string_value)
    assert all(map(is_harmless, attributes(record).values()))


def test_a_refusal_says_why_and_holds_no_secret(tmp_path: Path) -> None:
    with receiving(collector(statuses=[403])) as it:
        (tmp_path / "token").write_text("SECRET-token\n")
        text = f'[watch.notify.otel]\nkind = "otlp"\nurl = "{it.url}"\n'
        text += f'token_file = "{tmp_path}/token"\n'
        target = configured(tmp_path, text).notify["otel"].target
        with pytest.raises(NotSent, match="HTTP 403") as raised:
            target.send(NEWS)
    assert "SECRET" not in str(raised.value) + repr(target)
    with pytest.raises(NotSent, match=r"127\.0\.0\.1:9 cannot be reached: Connection refused"):
        Otlp("otel", "http://127.0.0.1:9", timeout_s=0.5).send(NEWS)


def test_the_environment_names_a_collector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    (tmp_path / "config.toml").write_text("[watch]\n")
    settings = read_watch_settings(tmp_path / "config.toml")
    assert settings.notify["otlp"].wants("info")
    (tmp_path / "mine").mkdir()
    mine = '[watch.notify.mine]\nkind = "otlp"\nurl = "http://127.0.0.1:4319"\n'
    assert list(configured(tmp_path / "mine", mine).notify) == ["mine"]
    # Where the library is missing, the watch goes on without.
    for name in [one for one in sys.modules if one.startswith("opentelemetry.sdk")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "oncall.watch.targets.otlp_records", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)
    assert not read_watch_settings(tmp_path / "config.toml").notify
    assert "pip install 'oncall-console[otlp]'" in capsys.readouterr().err
    with pytest.raises(BadInput, match=r"oncall-console\[otlp\]"):
        configured(tmp_path / "mine", mine)


def test_a_watch_sends_its_lines_and_its_incident(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "job.log").write_text(LOG)
    with receiving(collector()) as it:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", it.url)
        monkeypatch.setenv("OTEL_BLRP_SCHEDULE_DELAY", "100")
        (tmp_path / "config.toml").write_text('[watch]\nevery = "1s"\nconfirm = "1s"\n')
        watch = subprocess.Popen(
            [
                *(sys.executable, "-m", "oncall.cli.main", "watch", "--logs", tmp_path / "job.log"),
                *("--job", "llama", "--config", tmp_path / "config.toml"),
                *("--folder", tmp_path / "watch"),
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            until_s = time.monotonic() + 60
            while time.monotonic() < until_s and not any(r.event_name for r in records(it)):
                time.sleep(0.1)
        finally:
            watch.terminate()
            _, printed = watch.communicate(timeout=30)
    lines = [one.body.string_value for one in records(it) if not one.event_name]
    (event,) = (one for one in records(it) if one.event_name)
    assert "KeyError" in event.body.string_value
    assert attributes(event)["oncall.job"] == "llama"
    assert [line.split("  ", 1)[1] for line in printed.splitlines()] == lines
    assert any(line.startswith("opened llama-") for line in lines)
