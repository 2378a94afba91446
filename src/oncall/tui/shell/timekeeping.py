"""What moves by itself: the time cursor while it plays, and a running job's evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncall.console.queries import GatherSnapshot, GetSnapshot, JudgeSnapshot, ListJobs
from oncall.tui.shell.messages import JUDGEMENT, Question

if TYPE_CHECKING:
    from oncall.console.session import Query
    from oncall.tui.shell.console import Console
    from oncall.tui.shell.cursor import TimeCursor
    from oncall.views.snapshot import Snapshot


_STILL_S = 0.7  # a cursor that has not moved for so long stays where it is
_MOST_JUDGING_S = 30.0  # a running job is not looked at meanwhile


class Timekeeping:
    """Moves the application's time cursor. A new snapshot is asked for only after the last came.

    Where rulebooks take long, a snapshot first says only why the job stopped, if it did; the others
    run once the cursor rests, and are given up when it moves on.
    """

    def __init__(self, app: Console, refresh_every_s: float) -> None:
        self._app = app
        self._refresh_every_s = refresh_every_s
        self._rested_at_s: float | None = None
        self._moved_at_s = 0.0
        self._judge_at_s: float | None = None  # when the rulebooks still pending are due
        self._judging_since_s = 0.0

    def beat(self) -> None:
        """Twice a second: move a playing cursor, gather again if it is time."""
        app = self._app
        if not app.is_running:
            return  # leaving: screens are half gone
        app.beat()
        if self._judge_at_s is not None and app.clock() >= self._judge_at_s:
            self._judge()
        if app.state.cursor.playing:
            self._play()
        elif app.state.live and app.state.cursor.follows and self._rested():
            unread = app.state.job is not None and app.state.snapshot is None  # of the job chosen
            if app.current_mode == "jobs" and app.state.jobs and not unread:
                self._rested_at_s = None
                app.ask(Question("jobs again", ListJobs(), app, "looking for jobs"))
            else:
                self._gather()

    def rest(self) -> None:
        """A snapshot has come, or could not: the next one is due after a rest."""
        self._rested_at_s = self._app.clock()

    def _rested(self) -> bool:
        now_s, rested_at_s = self._app.clock(), self._rested_at_s
        if self._app.session.asks(JUDGEMENT) and now_s - self._judging_since_s < _MOST_JUDGING_S:
            return False
        return rested_at_s is not None and now_s - rested_at_s >= self._refresh_every_s

    def judge_when_still(self) -> None:
        """Rulebooks are pending: at the end at once, else when the cursor has not moved for a
        moment."""
        cursor = self._app.state.cursor
        self._judge_at_s = None if cursor.playing else self._app.clock() + _STILL_S
        if cursor.follows:
            self._judge()

    def _judge(self) -> None:
        self._judge_at_s = None
        if not self._app.session.asks(JUDGEMENT):
            self._judging_since_s = self._app.clock()
            query = JudgeSnapshot(self._app.state.cursor.at_ns)
            self._app.ask(Question(JUDGEMENT, query, self._app, "judging"))

    def _play(self) -> None:
        now_s = self._app.clock()
        if self._app.session.asks("snapshot"):
            return  # the evidence is slower than the clock: what was played meanwhile is skipped
        cursor = self._app.state.cursor.moved(now_s - self._moved_at_s)
        self._moved_at_s = now_s
        self._move(cursor)

    def _gather(self) -> None:
        self._rested_at_s = None
        self._ask(GatherSnapshot(self._app.state.cursor.at_ns, first=True), "gathering")

    def _ask(self, query: Query[Snapshot], label: str) -> None:
        self._app.ask(Question("snapshot", query, self._app, label))

    def judge_again(self) -> None:
        """The same evidence once more, as its rulebooks have changed."""
        if self._app.state.snapshot is not None:
            self._ask(GetSnapshot(self._app.state.cursor.at_ns, first=True), "judging")

    def _move(self, cursor: TimeCursor) -> None:
        """Go there, and ask for the snapshot of then."""
        before = self._app.state.cursor
        self._app.change(cursor=cursor)
        if cursor.at_ns != before.at_ns and self._app.state.job is not None:
            self.give_up_judging()
            self._ask(GetSnapshot(cursor.at_ns, first=True), "reading")

    def give_up_judging(self) -> None:
        """Another moment or another job is wanted."""
        self._judge_at_s = None
        self._app.session.drop(JUDGEMENT)

    def jump(self, at_ns: int) -> None:
        """Go to an instant."""
        self._move(self._app.state.cursor.jumped(at_ns))

    # ------------------------------------------------------------------ actions

    def action_pause(self) -> None:
        cursor = self._app.state.cursor
        if cursor.playing or (cursor.follows and self._app.state.live):
            self._move(cursor.paused())
            snapshot = self._app.state.snapshot
            if snapshot is not None and snapshot.diagnosis.pending:
                self.judge_when_still()
        else:
            self._moved_at_s = self._app.clock()
            self._judge_at_s = None  # it is still no longer
            self._move(cursor.played())

    def action_follow(self) -> None:
        self._move(self._app.state.cursor.following())

    def action_step_back(self) -> None:
        self._move(self._app.state.cursor.stepped(-1))

    def action_step_on(self) -> None:
        self._move(self._app.state.cursor.stepped(1))

    def action_stride_back(self) -> None:
        self._move(self._app.state.cursor.stepped(-10))

    def action_stride_on(self) -> None:
        self._move(self._app.state.cursor.stepped(10))

    def action_slower(self) -> None:
        self._app.change(cursor=self._app.state.cursor.faster(-1))
        self._tell_speed()

    def action_faster(self) -> None:
        self._app.change(cursor=self._app.state.cursor.faster(1))
        self._tell_speed()

    def action_next_finding(self) -> None:
        self._to_finding(1)

    def action_previous_finding(self) -> None:
        self._to_finding(-1)

    def action_gather(self) -> None:
        if not self._app.state.jobs:
            self._app.change(problem="")
            self._app.retry()
        else:
            self._gather()

    def _tell_speed(self) -> None:
        self._app.tell(f"playing at {self._app.state.cursor.speed:g}x speed")

    def _to_finding(self, way: int) -> None:
        """To the next or the previous moment at which a finding began."""
        cursor = self._app.state.cursor
        here_ns = cursor.shown_ns
        moments = sorted(self._app.known_moments)
        there = [at_ns for at_ns in moments if here_ns is None or (at_ns - here_ns) * way > 0]
        if not there:
            self._app.tell("no later finding" if way > 0 else "no earlier finding")
            return
        self.jump(there[0] if way > 0 else there[-1])
        self._app.tell("a finding began here; ] goes forward to when it was detectable")
