"""The site's own pages in notifications: filled in, quoted, and checked when they are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncall.core.diagnosis import Blame, Coverage, Diagnosis, Finding
from oncall.core.errors import BadInput
from oncall.core.units import NS_PER_S
from oncall.watch.announcement import Announcement, of_trouble
from oncall.watch.course import Open
from oncall.watch.look import Trouble
from oncall.watch.settings import read_watch_settings
from oncall.watch.targets.alertmanager import Alertmanager

AT_NS = 1_795_403_400 * NS_PER_S
HANG = Finding(
    "F1", "hang", "H1", "Not-entered hang", "hang", "critical", 0.99, AT_NS,
    (Blame("rank", {"rank": 5, "node": "gpu017"}),), {}, (),
)  # fmt: skip


def announced(tmp_path: Path, config: str, finding: Finding | None = HANG) -> Announcement:
    path = tmp_path / "config.toml"
    path.write_text(f"[watch]\n{config}\n")
    found = () if finding is None else (finding,)
    diagnosis = Diagnosis("a job/1", AT_NS, AT_NS, Coverage(1, 1, 8, 8), found)
    opened = Open("i", AT_NS, "critical", 1, AT_NS, ("hang H1 rank 5 on gpu017",))
    trouble = Trouble("hang", "H1", "rank 5", "critical", "hang", "rank 5 hangs")
    links = read_watch_settings(path).links
    return of_trouble("opened", "a job/1", opened, AT_NS, (trouble,), diagnosis, "", None, links)


def test_both_pages_are_filled_in_and_quoted(tmp_path: Path) -> None:
    news = announced(
        tmp_path,
        'runbook_url = "https://wiki/oncall/$rulebook.$verdict"\n'
        'dashboard_url = "https://g/d?job=$job&node=$node&rank=$rank&from=$since_ms"',
    )
    assert news.links == {
        "runbook_url": "https://wiki/oncall/hang.H1",
        "dashboard_url": "https://g/d?job=a%20job%2F1&node=gpu017&rank=5&from=1795403400000",
    }
    assert "Runbook: https://wiki/oncall/hang.H1" in news.summary
    shown = Alertmanager("alerts", "http://a").shown(news)
    assert '"runbook_url": "https://wiki/oncall/hang.H1"' in shown


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("wiki/$verdict", "must be an http or https URL"),
        ("https://wiki/$verdicts", r"unknown field \$verdicts; known: job, rulebook, verdict"),
        ("https://wiki/$", "names no field"),
    ],
)
def test_a_wrong_address_is_refused_when_it_is_read(tmp_path: Path, url: str, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        announced(tmp_path, f'runbook_url = "{url}"')
