"""What moves by itself: the time cursor while it plays, and a running job's evidence."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from oncall.console.queries import GatherSnapshot, GetSnapshot, JudgeSnapshot, ListJobs
from oncall.tui.shell.console import Console
from oncall.tui.shell.messages import JUDGEMENT, Question, Refused

if TYPE_CHECKING:
    from oncall.console.session import Query
    from oncall.tui.shell.state import TimeCursor
    from oncall.views.snapshot import JobLine, Snapshot


_STILL_S = 0.7  # a cursor that has not moved for so long stays where it is
_MOST_JUDGING_S = 30.0  # a running job is not looked at meanwhile


class Timekeeping(Console):
    """Moves the application's time cursor. A new snapshot is asked for only after the last came.

    Where rulebooks take long, a snapshot first says only why the job stopped, if it did; the others
    run once the cursor rests, and are given up when it moves on.
    """

    refresh_every_s: float
    _rested_at_s: float | None = None
    _moved_at_s = 0.0
    _judge_at_s: float | None = None  # when the rulebooks still pending are due
    _judging_since_s = 0.0

    @abstractmethod
    def take_snapshot(self, snapshot: Snapshot) -> None:
        """A snapshot has come."""

    @abstractmethod
    def _unread(self, message: Refused) -> None:
        """A snapshot could not be read."""

    def beat(self) -> None:
        """Twice a second: move a playing cursor, gather again if it is time."""
        if not self.is_running:
            return  # leaving: screens are half gone
        self.show_passing()
        if self._judge_at_s is not None and self.clock() >= self._judge_at_s:
            self._judge()
        if self.state.cursor.playing:
            self._play()
        elif self.state.live and self.state.cursor.follows and self._rested():
            unread = self.state.job is not None and self.state.snapshot is None  # of the job chosen
            if self.current_mode == "jobs" and self.state.jobs and not unread:
                self._rested_at_s = None
                self.ask(
                    Question(
                        "jobs again",
                        ListJobs(),
                        self,
                        "looking for jobs",
                        self._jobs_again,
                        lambda _: self.rest(),
                    )
                )
            else:
                self._gather()

    def _jobs_again(self, jobs: tuple[JobLine, ...]) -> None:
        self.change(jobs=jobs)
        self.rest()

    def rest(self) -> None:
        """A snapshot has come, or could not: the next one is due after a rest."""
        self._rested_at_s = self.clock()

    def _rested(self) -> bool:
        now_s, rested_at_s = self.clock(), self._rested_at_s
        if self.session.asks(JUDGEMENT) and now_s - self._judging_since_s < _MOST_JUDGING_S:
            return False
        return rested_at_s is not None and now_s - rested_at_s >= self.refresh_every_s

    def judge_when_still(self) -> None:
        """Rulebooks are pending: at the end at once, else when the cursor has not moved for a
        moment."""
        cursor = self.state.cursor
        self._judge_at_s = None if cursor.playing else self.clock() + _STILL_S
        if cursor.follows:
            self._judge()

    def _judge(self) -> None:
        self._judge_at_s = None
        if not self.session.asks(JUDGEMENT):
            self._judging_since_s = self.clock()
            query = JudgeSnapshot(self.state.cursor.at_ns)
            self.ask(Question(JUDGEMENT, query, self, "judging", self.take_snapshot))

    def _play(self) -> None:
        now_s = self.clock()
        if self.session.asks("snapshot"):
            return  # the evidence is slower than the clock: what was played meanwhile is skipped
        cursor = self.state.cursor.moved(now_s - self._moved_at_s)
        self._moved_at_s = now_s
        self._move(cursor)

    def _gather(self) -> None:
        self._rested_at_s = None
        self.ask_snapshot(GatherSnapshot(self.state.cursor.at_ns, first=True), "gathering")

    def ask_snapshot(self, query: Query[Snapshot], label: str) -> None:
        self.ask(Question("snapshot", query, self, label, self.take_snapshot, self._unread))

    def judge_again(self) -> None:
        """The same evidence once more, as its rulebooks have changed."""
        if self.state.snapshot is not None:
            self.ask_snapshot(GetSnapshot(self.state.cursor.at_ns, first=True), "judging")

    def _move(self, cursor: TimeCursor) -> None:
        """Go there, and ask for the snapshot of then."""
        before = self.state.cursor
        self.change(cursor=cursor)
        if cursor.at_ns != before.at_ns and self.state.job is not None:
            self.give_up_judging()
            self.ask_snapshot(GetSnapshot(cursor.at_ns, first=True), "reading")

    def give_up_judging(self) -> None:
        """Another moment or another job is wanted."""
        self._judge_at_s = None
        self.session.drop(JUDGEMENT)

    def jump(self, at_ns: int) -> None:
        """Go to an instant."""
        self._move(self.state.cursor.jumped(at_ns))

    # ------------------------------------------------------------------ actions

    def action_pause(self) -> None:
        cursor = self.state.cursor
        if cursor.playing or (cursor.follows and self.state.live):
            self._move(cursor.paused())
            snapshot = self.state.snapshot
            if snapshot is not None and snapshot.diagnosis.pending:
                self.judge_when_still()
        else:
            self._moved_at_s = self.clock()
            self._judge_at_s = None  # it is still no longer
            self._move(cursor.played())

    def action_follow(self) -> None:
        self._move(self.state.cursor.following())

    def action_step_back(self) -> None:
        self._move(self.state.cursor.stepped(-1))

    def action_step_on(self) -> None:
        self._move(self.state.cursor.stepped(1))

    def action_stride_back(self) -> None:
        self._move(self.state.cursor.stepped(-10))

    def action_stride_on(self) -> None:
        self._move(self.state.cursor.stepped(10))

    def action_slower(self) -> None:
        self.change(cursor=self.state.cursor.faster(-1))
        self._tell_speed()

    def action_faster(self) -> None:
        self.change(cursor=self.state.cursor.faster(1))
        self._tell_speed()

    def action_next_finding(self) -> None:
        self._to_finding(1)

    def action_previous_finding(self) -> None:
        self._to_finding(-1)

    def action_gather(self) -> None:
        if not self.state.jobs:
            self.change(problem="")
            self.retry()
        else:
            self._gather()

    def _tell_speed(self) -> None:
        self.tell(f"playing at {self.state.cursor.speed:g}x speed")

    def _to_finding(self, way: int) -> None:
        """To the next or the previous moment at which a finding began."""
        cursor = self.state.cursor
        here_ns = cursor.shown_ns
        moments = sorted(self.known_moments)
        there = [at_ns for at_ns in moments if here_ns is None or (at_ns - here_ns) * way > 0]
        if not there:
            self.tell("no later finding" if way > 0 else "no earlier finding")
            return
        self.jump(there[0] if way > 0 else there[-1])
        self.tell("a finding began here; ] goes forward to when it was detectable")
