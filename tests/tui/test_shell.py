"""The console as a whole, key by key, on a session made by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from textual import events

from oncall.console.queries import GatherSnapshot, GetSnapshot, ListJobs, OpenJob
from oncall.console.snapshot import HostTrouble, Snapshot
from oncall.core.errors import UsageError
from oncall.tui.shell.lines import status
from oncall.tui.shell.registry import SCREENS

from .console import console, piloted
from .fake_session import FakeSession
from .snapshots import FAULT_NS, FIRST_NS, JOB, LAST_NS, hang_snapshot, silent_snapshot


def instants(session: FakeSession) -> list[int | None]:
    """What snapshots were asked for."""
    return [query.at_ns for query in session.asked_for(GetSnapshot)]


@piloted
async def test_one_job_goes_straight_in() -> None:
    async with console() as running:
        assert running.app.current_mode == "incident"
        assert running.session.asked[:3] == [ListJobs(), OpenJob(JOB, first=True), GetSnapshot()]
        assert JOB in running.line(0)
        assert "16/16 ranks" in running.line(0)


@piloted
async def test_several_jobs_are_to_choose_from() -> None:
    async with console(FakeSession(jobs=("gpt-9", JOB))) as running:
        assert running.app.current_mode == "jobs"
        assert "gpt-9" in running.text()
        await running.press("j", "enter")
        assert running.app.state.job == JOB
        assert running.app.current_mode == "incident"


@piloted
async def test_how_far_a_gather_is_is_reported_while_it_goes_on() -> None:
    async with console() as running:
        running.session.gate.clear()
        running.session.so_far = "17 of 512 hosts answered"
        await running.pilot.press("left_square_bracket")
        await running.pilot.pause()
        running.app.timekeeping.beat()
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
async def test_without_any_job_it_is_reported_why_no_node_knows_of_one() -> None:
    session = FakeSession(jobs=())
    session.live = True
    said = "no host has evidence of any job: gpu1 cannot be reached; gpu2 does not let us log in"
    session.fails[GetSnapshot] = UsageError(said)
    async with console(session) as running:
        assert running.app.current_mode == "jobs"
        for line in ("gpu1 cannot be reached", "gpu2 does not let us log in", "oncall doctor"):
            assert line in running.text()


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
async def test_help_tells_every_key_of_the_screen_and_why_some_do_nothing() -> None:
    async with console(size=(100, 120)) as running:
        await running.press("question_mark")
        seen = running.text()
        for entry in running.app.actions_of(running.app.console_screen):
            assert entry.description.split()[0] in seen, entry.id
        assert "Not now: this is a recording" in seen
        await running.press("escape")
        assert "Not now" not in running.text()


@piloted
async def test_time_is_stepped_back_and_followed_again() -> None:
    async with console() as running:
        await running.press("left_square_bracket")
        # 750 s in about sixty steps: 15 s each
        assert instants(running.session)[-1] == LAST_NS - 15 * 10**9
        assert "15 s before the end" in running.text()
        await running.press("left_curly_bracket", "right_square_bracket")
        assert instants(running.session)[-1] == LAST_NS - 150 * 10**9
        await running.press("full_stop")
        assert instants(running.session)[-1] is None


@piloted
async def test_findings_are_jumped_to_in_time() -> None:
    async with console() as running:
        await running.press("N")
        assert running.app.state.cursor.at_ns == FAULT_NS
        await running.press("N")
        assert "no earlier finding" in running.text()
        await running.press("left_square_bracket")
        assert not running.app.state.snapshot.diagnosis.findings
        await running.press("n")
        assert running.app.state.cursor.at_ns == FAULT_NS


@piloted
async def test_play_moves_with_the_clock_and_ends_at_the_end() -> None:
    async with console() as running:
        await running.press("space")
        assert running.app.state.cursor.at_ns == FIRST_NS
        await running.press("greater_than_sign")
        await running.pass_s(2)
        assert running.app.state.cursor.at_ns == FIRST_NS + 60 * 10**9
        await running.press("space")
        await running.pass_s(5)
        assert running.app.state.cursor.at_ns == FIRST_NS + 60 * 10**9
        await running.press("space")
        await running.pass_s(60)
        assert running.app.state.cursor.follows
        assert not running.app.state.cursor.playing


def live_session() -> FakeSession:
    return FakeSession(replace(silent_snapshot(), origin="2 nodes over SSH"))


def gathers(session: FakeSession) -> int:
    return len(session.asked_for(GatherSnapshot))


@piloted
async def test_a_running_job_is_gathered_again_but_never_twice_at_once() -> None:
    async with console(live_session(), refresh_every_s=5) as running:
        await running.pass_s(3)
        assert gathers(running.session) == 0
        await running.pass_s(3)
        assert gathers(running.session) == 1
        running.session.gate.clear()
        running.clock.now_s += 6
        for _ in range(5):
            running.app.timekeeping.beat()
            running.clock.now_s += 6
            await running.pilot.pause()
        assert gathers(running.session) == 2
        running.session.gate.set()


@piloted
async def test_a_paused_live_view_stays_still() -> None:
    async with console(live_session()) as running:
        await running.press("space")
        assert running.app.state.cursor.at_ns == LAST_NS
        await running.pass_s(60)
        assert gathers(running.session) == 0


@piloted
async def test_trouble_while_gathering_is_reported_and_the_last_snapshot_stays_with_its_age() -> (
    None
):
    async with console(live_session()) as running:
        running.session.fails[GatherSnapshot] = UsageError("gpu018: connection lost")
        await running.press("R")
        assert "gpu018: connection lost" in running.text()
        await running.pass_s(2)
        await running.pass_s(2)
        assert "(shown: 4 s old)" in running.text()
        assert running.app.state.snapshot is not None
        del running.session.fails[GatherSnapshot]
        await running.press("R")
        assert "connection lost" not in running.text()
        await running.press("9")
        assert "gathering: gpu018: connection lost" in running.text()


@piloted
async def test_a_bug_in_a_session_is_reported_and_the_console_stays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    class Broken(FakeSession):
        def snapshot(self, at_ns: int | None = None) -> Snapshot:  # noqa: ARG002
            raise KeyError("what")

    async with console(Broken()) as running:
        assert "a defect of oncall: KeyError" in running.text()
        await running.press("9")
        assert "traceback in" in running.text()
        assert "in snapshot" in (tmp_path / "oncall" / "defects.log").read_text()


@piloted
async def test_a_title_with_more_screens_than_fit_shows_those_beside_this_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    more = [replace(SCREENS[-1], id=f"more{n}", title=f"Screen {n}", key="xyz"[n]) for n in (0, 1)]
    monkeypatch.setattr(status, "SCREENS", (*SCREENS, *more))
    async with console(FakeSession(), (80, 24)) as running:
        for entry in SCREENS:
            await running.press(entry.key)
            title = running.text().splitlines()[0]
            assert f" {entry.key} {entry.title} " in title
            assert len(title) <= 80


@piloted
async def test_filter_narrows_while_typing_and_esc_gives_it_up() -> None:
    async with console(FakeSession(jobs=("gpt-9", JOB))) as running:
        await running.press("slash", *"llama")
        assert running.app.state.filter == "llama"
        assert "gpt-9" not in running.text()
        await running.press("escape")
        assert running.app.state.filter == ""
        assert "gpt-9" in running.text()
        await running.press("slash")
        await running.type("gpt")
        assert "/gpt" in running.text()
        await running.press("escape")
        assert running.app.state.filter == ""


@piloted
async def test_faults_only_is_a_switch() -> None:
    async with console() as running:
        await running.press("f")
        assert running.app.state.faults_only
        await running.press("f")
        assert not running.app.state.faults_only


@piloted
async def test_go_to_a_time_and_what_is_wrong_with_a_line() -> None:
    async with console() as running:
        await running.press("colon")
        await running.type("tiem 09:00")
        assert "did you mean time?" in running.text()
        await running.press(*["backspace"] * 10)
        await running.type("time 09:00:00")
        assert running.app.state.cursor.at_ns == FIRST_NS + 400 * 10**9
        await running.press("colon", *"rank x", "enter")
        assert "a rank is a number" in running.text()


@piloted
async def test_esc_goes_back_the_way_one_came() -> None:
    async with console() as running:
        await running.press("9", "0", "escape")
        assert running.app.current_mode == "log"
        await running.press("escape")
        assert running.app.current_mode == "incident"


@piloted
async def test_the_palette_does_actions_by_name() -> None:
    async with console() as running:
        await running.press("ctrl+p")
        await running.type("faults")
        assert running.app.state.faults_only


@piloted
async def test_another_theme_is_a_key_away() -> None:
    async with console() as running:
        for name in (*running.app.theme_names()[1:], "oncall-dark"):
            await running.press("T")
            assert running.app.theme == name


@piloted
async def test_keys_are_remapped_by_id() -> None:
    async with console(keymap={"faults": "f6", "jobs.open": "o"}) as running:
        await running.press("f")
        assert not running.app.state.faults_only
        await running.press("f6")
        assert running.app.state.faults_only
        await running.press("question_mark")
        assert "f6" in running.text()


@piloted
async def test_a_small_terminal_says_so_and_works_again_when_enlarged() -> None:
    async with console(size=(80, 24)) as running:
        await running.pilot.resize_terminal(40, 10)
        await running.settle()
        assert "This terminal is 40 by 10" in running.text()
        await running.pilot.resize_terminal(80, 24)
        await running.settle()
        assert "This terminal" not in running.text()
        assert JOB in running.line(0)


@piloted
async def test_a_storm_of_resizes_leaves_the_screen_whole() -> None:
    async with console(size=(80, 24)) as running:
        for width in range(30, 120, 7):
            await running.pilot.resize_terminal(width, width // 3)
        await running.pilot.resize_terminal(100, 30)
        await running.settle()
        assert JOB in running.line(0)
        assert "Quit" in running.line(-1)


@piloted
async def test_without_utf8_all_is_ascii() -> None:
    async with console(ascii_only=True) as running:
        await running.press("question_mark")
        svg = running.app.export_screenshot()
        shown = svg.replace("\N{NO-BREAK SPACE}", " ").replace("&#160;", " ")
        assert "Explain this screen" in shown
        assert shown.isascii()


@pytest.mark.parametrize("busy", [False, True])
@piloted
async def test_quit_leaves_nothing_behind_even_while_something_is_asked(busy: bool) -> None:
    session = FakeSession()
    async with console(session) as running:
        if busy:
            session.gate.clear()
            await running.pilot.press("left_square_bracket")
            await running.pilot.pause()
        await running.pilot.press("ctrl+q")
        assert running.app.close_session()
        assert session.closed


@piloted
async def test_a_hang_is_not_lost_by_what_arrives_late() -> None:
    """The newest question wins: stepping quickly shows only where one stopped."""
    async with console(FakeSession(hang_snapshot())) as running:
        running.session.gate.clear()
        await running.pilot.press(*["left_square_bracket"] * 5)
        running.session.gate.set()
        await running.settle()
        assert running.app.state.snapshot.moment.at_ns == LAST_NS - 75 * 10**9


@piloted
async def test_what_is_typed_ahead_of_a_prompt_belongs_to_it_and_enter_counts_once() -> None:
    async with console() as running:
        for key in ("colon", *"rank 3", "enter", "enter"):
            character = {"colon": ":", "enter": None}.get(key, key)
            running.app.post_message(events.Key("space" if key == " " else key, character))
        await running.settle()
        assert running.app.current_mode == "fleet"
        assert running.app.state.cursor.follows


@piloted
async def test_the_mouse_may_be_used_on_screens_and_keys() -> None:
    async with console(size=(160, 30)) as running:
        await running.pilot.click("#title", offset=(running.line(0).index("9 Log") + 1, 0))
        await running.settle()
        assert running.app.current_mode == "log"
        await running.pilot.click("#keys", offset=(running.line(-1).index("Faults"), 0))
        await running.settle()
        assert running.app.state.faults_only


@piloted
async def test_gathering_again_while_paused_stays_at_that_moment() -> None:
    async with console(live_session()) as running:
        await running.press("space", "left_square_bracket", "R")
        assert gathers(running.session) == 1
        assert instants(running.session)[-1] == LAST_NS - 15 * 10**9


@piloted
async def test_a_theme_is_in_force_on_every_screen() -> None:
    async with console(FakeSession(jobs=("gpt-9", JOB))) as running:
        await running.press("9", "T", "0")
        strip = running.app.screen._compositor.render_strips()[0]
        colours = {segment.style.color.name for segment in strip if segment.style.color}
        theme = running.app.current_theme
        assert running.app.theme == "oncall-light"
        assert theme.primary in colours


@piloted
async def test_a_narrow_title_keeps_every_screen_and_the_silence() -> None:
    async with console(FakeSession(silent_snapshot()), size=(80, 24)) as running:
        others = "  ".join(entry.key for entry in SCREENS[2:])
        assert f"1 Incident  {others}" in running.line(0)
        assert "8 ranks without data · gpu018 silent" in running.line(0)


@piloted
async def test_help_is_read_to_its_end_by_key() -> None:
    async with console(size=(80, 24)) as running:
        await running.press("question_mark", "G")
        assert "config.toml" in running.text()
        await running.press("g")
        assert "The top line names the culprit" in running.text()
        await running.press("space")
        assert "The top line names the culprit" not in running.text()
        await running.press("escape")
        assert "CRITICAL" in running.line(1)


@piloted
async def test_more_screens_than_the_title_has_room_for_are_behind_arrows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    more = [replace(SCREENS[-1], id=f"more{key}", key=key, title="More") for key in "ABCDEFGHIJKL"]
    monkeypatch.setattr("oncall.tui.shell.lines.status.SCREENS", (*SCREENS, *more))
    async with console(FakeSession(silent_snapshot()), size=(80, 24)) as running:
        first = running.line(0)
        assert len(first.rstrip()) <= 80
        assert " 1 Incident " in first and "›" in first and "‹" not in first
        assert "8 ranks without data" in first
        await running.press("9")
        last = running.line(0)
        assert " 9 Log " in last and "‹" in last and "›" in last


@piloted
async def test_what_to_type_where_a_recording_cannot_be_read_names_no_nodes() -> None:
    session = FakeSession(jobs=())
    session.fails[GetSnapshot] = UsageError("night.oncall: not an incident file")
    async with console(session) as running:
        assert "opens another recording" in running.text()
        assert "oncall doctor" not in running.text()
