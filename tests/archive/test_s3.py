"""An archive in a bucket: of a stand-in for S3, where moto and s3fs are installed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from oncall.archive import upkeep
from oncall.archive.history import Wanted, history
from oncall.archive.store import Archive

from .diagnoses import FIRST_NS, added, diagnosis, finding

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # of botocore and werkzeug
]


@pytest.fixture
def archive(monkeypatch: pytest.MonkeyPatch) -> Iterator[Archive]:
    pytest.importorskip("s3fs", reason="no s3fs: pip install 'oncall-console[s3]'")
    server = pytest.importorskip(
        "moto.server", reason="no stand-in for S3: pip install moto[server]"
    )
    running = server.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    made = Archive.at("s3://incidents/oncall")
    made.place._files.mkdir("incidents")  # type: ignore[attr-defined]
    yield made
    running.stop()


def test_a_bucket_holds_what_a_folder_holds(archive: Archive) -> None:
    for day in range(3):
        incident = added(archive, diagnosis(day, finding()))
        added(archive, diagnosis(day, finding()))
    archive.solved(incident, "reseated the cable", FIRST_NS)
    (tally,) = history(archive, Wanted()).by_component
    assert (tally.times, tally.fixed_by) == (3, "reseated the cable")

    assert [count for _, count in upkeep.compact(archive)] == [3]
    assert history(archive, Wanted("gpu017")).by_component == (tally,)
    archive.place._files.pipe_file(  # type: ignore[attr-defined]
        "incidents/oncall/findings/month=2026-09/cluster=a3/job=llama/cut.parquet", b"PAR1"
    )
    assert [one.path[-11:] for one in upkeep.verify(archive) if one] == ["cut.parquet"]
    assert history(archive, Wanted()).held.incidents == 3
    list(upkeep.expire(archive, "2030-01", "2030-01"))
    assert history(archive, Wanted()).held.incidents == 0
