"""How the console opens: one job, several, none, and what kept them from being found."""

from __future__ import annotations

import threading

from oncall.console.queries import GatherSnapshot, GetSnapshot, GlanceAtJob, ListJobs
from oncall.core.errors import UsageError
from oncall.views.snapshot import HostTrouble, JobLine

from .console import console, piloted
from .fake_session import FakeSession
from .snapshots import JOB, LAST_NS
from .until import until, until_seen


@piloted
async def test_how_far_a_gather_is_is_reported_while_it_goes_on() -> None:
    async with console() as running:
        running.session.gate.clear()
        running.session.so_far = "17 of 512 hosts answered"
        await running.pilot.press("left_square_bracket")
        await running.pilot.pause()
        running.app.beat()
        await running.pilot.pause()
        assert "reading: 17 of 512 hosts answered …" in running.text()
        running.session.gate.set()
        await running.settle()
        assert "17 of 512" not in running.text()


@piloted
async def test_a_session_that_cannot_be_opened_says_why_and_what_to_type() -> None:
    said = "no hosts are named\nWrite them under [fleet] in config.toml, or: oncall --hosts NODES"

    def opener() -> FakeSession:
        raise UsageError(said)

    async with console(opener=opener) as running:
        assert "no hosts are named" in running.text()
        assert "oncall --hosts NODES" in running.text()


@piloted
async def test_what_kept_jobs_from_being_found_can_be_tried_again() -> None:
    session = FakeSession()
    session.fails[ListJobs] = UsageError("gpu017: host key not verified; type: ssh gpu017")
    async with console(session) as running:
        assert "type: ssh gpu017" in running.text()
        del session.fails[ListJobs]
        await running.press("R")
        assert running.app.current_mode == "incident"


@piloted
async def test_what_is_wrong_with_hosts_is_reported_folded_with_what_to_type() -> None:
    session = FakeSession(jobs=())
    session.live = True
    session.fails[GetSnapshot] = UsageError(
        "no host has evidence of any job: gpu[1-3] does not let us log in"
    )
    session.hosts_troubles = (
        HostTrouble("gpu[1-3]", 3, "does not let us log in", "ssh-add -l"),
        HostTrouble("gpu7", 1, "host key not verified", "ssh gpu7"),
        HostTrouble("gpu8", 1, "no collector is running", silent=False),
    )
    async with console(session) as running:
        reported = (
            "✖ gpu[1-3] (3)  does not let us log in",
            "$ ssh-add -l",
            "▲ gpu8  no collector",
        )
        for line in ("no host has evidence of any job.", *reported):
            assert line in running.text()
        for command in ("ssh-add -l", "ssh gpu7", "ssh-add -l"):
            await running.press("c")
            assert running.app.clipboard == command
            assert f"copied: {command}" in running.text()
        del session.fails[GetSnapshot]
        session.hosts_troubles = ()
        session._jobs = (JOB,)
        await running.press("R")
        assert running.app.current_mode == "incident"


@piloted
async def test_a_disabled_key_says_why() -> None:
    async with console() as running:
        await running.press("R")
        assert "this is a recording" in running.text()
        assert not running.session.asked_for(GatherSnapshot)
        await running.press("right_square_bracket")
        assert "Forward: already at the end" in running.text()


@piloted
async def test_several_jobs_are_judged_one_after_another_while_one_looks() -> None:
    session = FakeSession(jobs=("gpt-9", JOB))
    session.live = True
    session.fails[GlanceAtJob] = UsageError("no node answers")
    async with console(session, size=(120, 30)) as running:
        await until(running, lambda: running.text().count("? no node answers") == 2)
        session.fails.clear()
        session.answers[GlanceAtJob] = lambda query: JobLine(
            query.job, 2, 16, LAST_NS, "", f"✖ {query.job} hangs", "critical", 15
        )
        running.clock.now_s += 61.0  # they run: each is judged again
        await until(running, lambda: f"✖ {JOB} hangs" in running.text())
        assert "15 of 16" in running.text() and "running" in running.text()
        await running.press("enter")
        number = len(session.asked_for(GlanceAtJob))
        running.clock.now_s += 61.0
        await running.settle()
        await running.press("0")
        running.clock.now_s += 61.0
        await running.settle()
        assert len(session.asked_for(GlanceAtJob)) == number  # only the nodes of the open one are


@piloted
async def test_a_job_whose_look_was_given_up_is_judged_once_the_list_is_back() -> None:
    session = FakeSession(jobs=("gpt-9", JOB))
    session.answers[GlanceAtJob] = lambda query: JobLine(
        query.job, 2, 16, LAST_NS, "", f"✖ {query.job} hangs", "critical", 15
    )
    async with console(session, size=(120, 30)) as running:
        session.gates[GlanceAtJob] = threading.Event()
        running.app.glance_at_next()
        await running.press("enter")
        session.gates[GlanceAtJob].set()
        assert running.app.current_mode == "incident"
        await running.press("escape")
        await until_seen(running, "✖ gpt-9 hangs")
        await until_seen(running, "✖ Not entered: rank 5")  # as its own screens say
