"""What the application asks its session, when, and what the answers change: the job, its snapshot,
the hosts' troubles; and what moves by itself, the time cursor while it plays and a running job's
evidence."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from textual.message_pump import MessagePump

from oncall.console.queries import (
    GatherSnapshot,
    GetPulse,
    GetSnapshot,
    JudgeSnapshot,
    ListJobs,
    ListTroubles,
    OpenJob,
)
from oncall.core.errors import MissingEvidence, NotRecorded
from oncall.core.units import NS_PER_S
from oncall.tui.shell.glancing import Glancing
from oncall.tui.shell.log import changes
from oncall.tui.shell.messages import (
    GLANCE,
    JUDGEMENT,
    PROBE,
    PULSE,
    RUN,
    Answered,
    Busy,
    Question,
    Refused,
    SessionThread,
)
from oncall.tui.shell.registry import SCREENS
from oncall.tui.shell.state import Pulse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oncall.console.cancellation import Lane
    from oncall.console.session import Query, Session
    from oncall.tui.shell.state import TimeCursor
    from oncall.views.snapshot import JobLine, Snapshot

_PROBLEMS = {"open", "jobs", "snapshot"}  # what is shown instead of evidence
UNSAVED = "The evidence of what was found is not saved"
_STILL_S = 0.7  # a cursor that has not moved for so long stays where it is
_MOST_JUDGING_S = 30.0  # a running job is not looked at meanwhile
_PULSES_A_SECOND = 64  # nodes
_ANSWERED_S = 0.3  # how often it is looked whether a question has been answered


class Asking(Glancing):
    """Opens the session with `opener`, finds the jobs, takes snapshots in as they come, and moves
    the time cursor. A new snapshot is asked for only after the last came.

    Where rulebooks take long, a snapshot first says only why the job stopped, if it did; the others
    run once the cursor rests, and are given up when it moves on.
    """

    opener: Callable[[], Session]
    evidence_at_s = 0.0  # when the newest evidence shown is of, by the application's clock
    _logged: Snapshot | None = None  # the last one whose changes are in the log
    _busy: Lane = "snapshots"  # whose label is in the status line
    refresh_every_s: float
    _rested_at_s: float | None = None
    _moved_at_s = 0.0
    _judge_at_s: float | None = None  # when the rulebooks still pending are due
    _judging_since_s = 0.0

    # ------------------------------------------------------------------ asking

    def open_session(self) -> None:
        """Open the session anew, or for the first time."""
        opening: Question[Session] = Question(
            "open", lambda session: session, self, "opening", self._opened, self._show_problem
        )
        self.forget_glances()
        self.session = SessionThread(self.opener, opening, self.post_message)
        self.session.start()

    def close_session(self) -> bool:
        """End the session's threads, children and all; whether that came off in time."""
        thread = getattr(self, "session", None)
        return thread is None or thread.stop()

    def session_progress(self) -> str:
        """How far what the status line names is, in a few words."""
        thread: SessionThread | None = getattr(self, "session", None)
        return thread.progress(self._busy) if thread is not None else ""

    def on_busy(self, message: Busy) -> None:
        """One of the threads does something else now."""
        self._busy = message.lane
        self.change(busy=message.label, progress="")

    def open_job(self, job: str) -> None:
        self.session.drop(GLANCE)
        self.known_moments.clear()
        self._logged = None
        self.give_up_judging()
        cursor = self.state.cursor.following()
        self.change(job=job, snapshot=None, cursor=cursor, pulse=Pulse(), problem="")
        self.ask_snapshot(OpenJob(job, first=True), f"reading {job}")

    def _ask_troubles(self) -> None:
        """What the hosts said that were asked."""
        if self.state.live:
            take = lambda troubles: self.change(troubles=troubles)  # noqa: E731
            self.ask(Question("troubles", ListTroubles(), self, take=take))

    # ----------------------------------------------------------------- answers

    def on_answered(self, message: Answered) -> None:
        """An answer for the application itself, or for the widget that asked."""
        question = message.question
        self._deliver(question.to, question.take, message.value)

    def on_refused(self, message: Refused) -> None:
        """A question failed: show and log the error, and keep what is shown."""
        question = message.question
        ours = question.to is self
        # What was not recorded a screen says in its own place: nothing failed.
        if ours or not isinstance(message.error, (NotRecorded, MissingEvidence)):
            self.write_log(f"{question.label or question.group}: {message.text}", "warning")
            if not ours or question.group not in _PROBLEMS:
                self.tell(message.text.splitlines()[0])
        self._deliver(question.to, question.refused, message)

    def _deliver(self, to: MessagePump, does: Callable[[Any], object], value: Any) -> None:
        """Where it was asked, in its turn."""
        if to is self:
            does(value)
        else:
            to.call_later(does, value)

    def _opened(self, session: Session) -> None:
        self.change(title=session.title, live=session.live, problem="")
        label = "looking for jobs" if session.live else "reading"
        self.ask(Question("jobs", ListJobs(), self, label, self._take_jobs, self._show_problem))

    def _show_problem(self, message: Refused) -> None:
        self.change(problem=message.text)

    def _unread(self, message: Refused) -> None:
        self._show_problem(message)
        self.rest()
        self._ask_troubles()

    def age_s(self) -> float:
        """How old the newest evidence shown is, to the second."""
        return float(int(self.clock() - self.evidence_at_s))

    def lost_by_leaving(self) -> str:
        """What would be lost if the console ended now, as a sentence; empty if nothing is."""
        doing = {PROBE: "a probe", RUN: "a command", "save": "saving", "export": "the export"}
        still = [what for group, what in doing.items() if self.session.asks(group)]
        if still:
            return f"{still[0].capitalize()} has not ended"
        state = self.state
        found = state.snapshot is not None and state.snapshot.diagnosis.findings
        return UNSAVED if state.live and found and state.job not in self.saved_jobs else ""

    def _take_jobs(self, jobs: tuple[JobLine, ...]) -> None:
        self.change(jobs=jobs)
        self._ask_troubles()
        wanted = self.state.job or (jobs[0].job if len(jobs) == 1 else None)
        if wanted is not None:
            self.open_job(wanted)
        elif not jobs:
            # Reading one raises the error that says why there is none.
            self.ask_snapshot(GetSnapshot(first=True), "reading")

    def take_snapshot(self, snapshot: Snapshot) -> None:
        first = self.state.snapshot is None
        if self.state.problem:
            self.write_log("the evidence can be read again")
        at_ns = snapshot.moment.at_ns
        late_ns = self.wall_ns() - at_ns if snapshot.moment.live and at_ns is not None else 0
        self.evidence_at_s = self.clock() - max(late_ns, 0) / NS_PER_S
        began = (one.at_ns for one in snapshot.diagnosis.findings)
        self.known_moments.update(at_ns for at_ns in began if at_ns is not None)
        cursor = self.state.cursor.spanning(snapshot.moment.first_ns, snapshot.moment.last_ns)
        self.change(
            snapshot=snapshot,
            job=snapshot.job,
            cursor=cursor,
            snapshot_age_s=self.age_s(),
            problem="",
        )
        if first:
            self.write_log(f"{snapshot.job}: {snapshot.origin}")
            self.recall()
            self.once_read()
        judged = not snapshot.diagnosis.pending
        if snapshot.due or not judged:
            self.judge_when_still()
        # Not what the time cursor passes by.
        if judged and (snapshot.moment.live or self._logged is None):
            for said, severity in changes(self._logged, snapshot):
                self.write_log(said, severity)
            self._logged = snapshot
        if first:
            self._leave_jobs()
        self.rest()

    def _leave_jobs(self) -> None:
        """From the list of jobs to what the one that was read shows, once no question is open."""
        main = next((one.id for one in SCREENS if one.id not in {"jobs", "log"}), None)
        if main and self.current_mode == "jobs":
            if self.screen.is_modal:
                self.set_timer(_ANSWERED_S, self._leave_jobs)
            else:
                self.show_screen(main)

    # --------------------------------------------------------- what moves by itself

    def beat(self) -> None:
        """Twice a second: move a playing cursor, gather again if it is time."""
        if not self.is_running:
            return  # leaving: screens are half gone
        self.show_passing()
        self.glance_at_next()
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
        elif self.state.live and self.state.cursor.follows:
            self._ask_pulse()

    def _ask_pulse(self) -> None:
        """Between gathers: how much the job records; of many nodes less often."""
        snapshot, pulse = self.state.snapshot, self.state.pulse
        if snapshot is None or self.current_mode == "jobs" or self.state.busy:
            return
        every_s = max(1.0, len(snapshot.hosts) / _PULSES_A_SECOND)
        if self.clock() - pulse.at_s < every_s or self.session.asks(PULSE):
            return

        def take(counts: Mapping[str, int]) -> None:
            self.change(pulse=self.state.pulse.then(counts, self.clock()))
            if self.state.pulse.stopped:
                self._gather()  # at once: the next one would show it only in a while

        self.ask(Question(PULSE, GetPulse(), self, "", take))

    def _jobs_again(self, jobs: tuple[JobLine, ...]) -> None:
        self.list_again(jobs)
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

    def action_step(self, steps: int) -> None:
        self._move(self.state.cursor.stepped(steps))

    def action_speed(self, notches: int) -> None:
        self.change(cursor=self.state.cursor.faster(notches))
        self.tell(f"playing at {self.state.cursor.speed:g}x speed")

    def action_gather(self) -> None:
        if not self.state.jobs:
            self.change(problem="")
            self.session.stop()
            self.open_session()
        else:
            self._gather()

    def action_finding(self, way: int) -> None:
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
