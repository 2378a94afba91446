"""How the start screen, the help and the lines around every screen look."""

from __future__ import annotations

from oncall.console.queries import GetSnapshot
from oncall.core.errors import UsageError

from .console import console, piloted
from .fake_session import FakeSession
from .pictures import check_picture, in_both_looks
from .snapshots import JOB


@in_both_looks
@piloted
async def test_start(size: tuple[int, int], theme: str) -> None:
    session = FakeSession(jobs=("gpt-9", JOB), title="12 nodes")
    async with console(session, size, theme=theme) as running:
        check_picture(running.app, f"start-{size[0]}x{size[1]}-{theme}")


@in_both_looks
@piloted
async def test_help(size: tuple[int, int], theme: str) -> None:
    session = FakeSession(jobs=("gpt-9", JOB), title="12 nodes")
    async with console(session, size, theme=theme) as running:
        await running.press("question_mark")
        check_picture(running.app, f"help-{size[0]}x{size[1]}-{theme}")


@piloted
async def test_no_way_to_the_nodes() -> None:
    session = FakeSession(jobs=(), title="gpu[001-002]")
    session.live = True
    session.fails[GetSnapshot] = UsageError(
        "no host has evidence of any job: gpu001 cannot be reached (Connection refused); "
        "gpu002 does not let us log in (Permission denied (publickey))"
    )
    async with console(session, (100, 24)) as running:
        check_picture(running.app, "start-without-jobs")


@piloted
async def test_without_utf8() -> None:
    async with console(FakeSession(jobs=("gpt-9", JOB)), (80, 24), ascii_only=True) as running:
        await running.press("question_mark")
        check_picture(running.app, "help-ascii")
