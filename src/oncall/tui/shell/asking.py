"""What the application asks its session, and what the answers change: the job, its snapshot, the
hosts' troubles."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from textual.message_pump import MessagePump

from oncall.console.queries import GetSnapshot, ListJobs, ListTroubles, OpenJob
from oncall.core.errors import MissingEvidence, NotRecorded
from oncall.core.units import NS_PER_S
from oncall.tui.shell.keeping import Keeping
from oncall.tui.shell.log import changes
from oncall.tui.shell.messages import PROBE, RUN, Answered, Busy, Question, Refused, SessionThread
from oncall.tui.shell.registry import SCREENS
from oncall.tui.shell.timekeeping import Timekeeping

if TYPE_CHECKING:
    from oncall.console.cancellation import Lane
    from oncall.console.session import Session
    from oncall.views.snapshot import HostTrouble, JobLine, Snapshot

_PROBLEMS = {"open", "jobs", "snapshot"}  # what is shown instead of evidence
UNSAVED = "The evidence of what was found is not saved"


class Asking(Timekeeping, Keeping):
    """Opens the session with `opener`, finds the jobs, and takes snapshots in as they come."""

    opener: Callable[[], Session]
    evidence_at_s = 0.0  # when the newest evidence shown is of, by the application's clock
    _logged: Snapshot | None = None  # the last one whose changes are in the log
    _busy: Lane = "snapshots"  # whose label is in the status line

    # ------------------------------------------------------------------ asking

    def open_session(self) -> None:
        """Open the session anew, or for the first time."""
        opening: Question[Session] = Question(
            "open", lambda session: session, self, "opening", self._opened, self._show_problem
        )
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

    def retry(self) -> None:
        self.session.stop()
        self.open_session()

    def open_job(self, job: str) -> None:
        self.known_moments.clear()
        self._logged = None
        self.give_up_judging()
        self.change(job=job, snapshot=None, cursor=self.state.cursor.following(), problem="")
        self.ask_snapshot(OpenJob(job, first=True), f"reading {job}")

    def _ask_troubles(self) -> None:
        """What the hosts said that were asked."""
        if self.state.live:
            self.ask(Question("troubles", ListTroubles(), self, take=self._take_troubles))

    def _take_troubles(self, troubles: tuple[HostTrouble, ...]) -> None:
        self.change(troubles=troubles)

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
        self.ask(
            Question(
                "jobs", ListJobs(), self, "looking for jobs", self._take_jobs, self._show_problem
            )
        )

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
            main = _main_screen()
            if main and self.current_mode == "jobs":
                self.show_screen(main)
        self.rest()


def _main_screen() -> str | None:
    return next((one.id for one in SCREENS if one.id not in {"jobs", "log"}), None)
