"""What the application asks its session, and what the answers change: the job, its snapshot, the
hosts' troubles."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from oncall.console.queries import GetSnapshot, ListJobs, ListTroubles, OpenJob
from oncall.core.defects import described
from oncall.core.errors import MissingEvidence, NotRecorded
from oncall.core.units import NS_PER_S
from oncall.tui.shell.lines.night import changes
from oncall.tui.shell.messages import PROBE, RUN, Answered, Busy, Question, Refused
from oncall.tui.shell.registry import SCREENS
from oncall.tui.shell.workers import SessionThread

if TYPE_CHECKING:
    from oncall.console.cancellation import Lane
    from oncall.console.session import Session
    from oncall.tui.shell.console import Console
    from oncall.tui.shell.keeping import Keeping
    from oncall.tui.shell.timekeeping import Timekeeping
    from oncall.views.snapshot import JobLine, Snapshot

UNSAVED = "The evidence of what was found is not saved"


class Asking:
    """Opens the session, finds the jobs, and takes snapshots in as they come."""

    session: SessionThread

    def __init__(
        self,
        app: Console,
        opener: Callable[[], Session],
        timekeeping: Timekeeping,
        keeping: Keeping,
    ) -> None:
        self._app = app
        self._opener = opener
        self._timekeeping = timekeeping
        self._keeping = keeping
        self._logged: Snapshot | None = None  # the last one whose changes are in the log
        self.evidence_at_s = 0.0  # when the newest evidence shown is of, by the application's clock
        self._busy: Lane = "snapshots"  # whose label is in the status line

    # ------------------------------------------------------------------ asking

    def open(self) -> None:
        """Open the session anew, or for the first time."""
        opening = Question("open", lambda session: session, self._app, "opening")
        self.session = SessionThread(self._opener, opening, self._app.post_message)
        self.session.start()

    def close(self) -> bool:
        """End the session's threads, children and all; whether that came off in time."""
        thread = getattr(self, "session", None)
        return thread is None or thread.stop()

    def progress(self) -> str:
        """How far what the status line names is, in a few words."""
        thread: SessionThread | None = getattr(self, "session", None)
        return thread.progress(self._busy) if thread is not None else ""

    def busy(self, message: Busy) -> None:
        """One of the threads does something else now."""
        self._busy = message.lane
        self._app.change(busy=message.label, progress="")

    def retry(self) -> None:
        """Try again what kept the jobs from being found."""
        self.session.stop()
        self.open()

    def ask(self, question: Question) -> None:
        """Ask the session, as soon as it is free."""
        self.session.ask(question)

    def open_job(self, job: str) -> None:
        """Choose a job, and ask for its snapshot."""
        app = self._app
        app.known_moments.clear()
        self._logged = None
        self._timekeeping.give_up_judging()
        app.change(job=job, snapshot=None, cursor=app.state.cursor.following(), problem="")
        self.ask(Question("snapshot", OpenJob(job, first=True), app, f"reading {job}"))

    def _ask_troubles(self) -> None:
        """What the hosts said that were asked."""
        if self._app.state.live:
            self.ask(Question("troubles", ListTroubles(), self._app))

    # ----------------------------------------------------------------- answers

    def answered(self, message: Answered) -> None:
        """An answer to the application."""
        match message.question.group:
            case "open":
                session: Session = message.value
                self._app.change(title=session.title, live=session.live, problem="")
                self.ask(Question("jobs", ListJobs(), self._app, "looking for jobs"))
            case "jobs":
                self._jobs_arrived(message.value)
            case "jobs again":
                self._app.change(jobs=message.value)
                self._timekeeping.rest()
            case "snapshot" | "judgement":
                self._snapshot_arrived(message.value)
            case "troubles":
                self._app.change(troubles=message.value)
            case "save" | "export":
                self._app.write_log(str(message.value))
                self._app.tell(str(message.value))
            case "archive":
                self._archived(message.value)
            case _:
                self._app.tell(str(message.value))

    def _archived(self, name: str | None) -> None:
        """What was marked as solved is in the archive by that name; None: there is no archive."""
        if name is None:
            return
        said = f"in the archive as incident {name}" if name else "not archived: nothing is at fault"
        self._app.write_log(f"marked as solved: {said}")
        self._app.tell(f"marked as solved, {said}")

    def refused(self, message: Refused) -> None:
        """A query failed, whichever part of the console asked it."""
        app, question = self._app, message.question
        if question.to is not app and isinstance(message.error, (NotRecorded, MissingEvidence)):
            return  # the screen says so in its own place; nothing failed
        text = described(message.error) if message.bug else str(message.error)
        app.write_log(f"{question.label or question.group}: {text}", "warning")
        if question.group == "jobs again":
            self._timekeeping.rest()
        if question.to is not app or question.group not in {"open", "jobs", "snapshot"}:
            app.tell(text.splitlines()[0])
            return
        app.change(problem=text)
        if question.group == "snapshot":
            self._timekeeping.rest()
            self._ask_troubles()

    def age_s(self) -> float:
        """How old the newest evidence shown is, to the second."""
        return float(int(self._app.clock() - self.evidence_at_s))

    def lost_by_leaving(self) -> str:
        """What would be lost if the console ended now, as a sentence; empty if nothing is."""
        doing = {PROBE: "a probe", RUN: "a command", "save": "saving", "export": "the export"}
        still = [what for group, what in doing.items() if self.session.asks(group)]
        if still:
            return f"{still[0].capitalize()} has not ended"
        state = self._app.state
        found = state.snapshot is not None and state.snapshot.diagnosis.findings
        return UNSAVED if state.live and found and not self._keeping.saved(state.job) else ""

    def _jobs_arrived(self, jobs: tuple[JobLine, ...]) -> None:
        app = self._app
        app.change(jobs=jobs)
        self._ask_troubles()
        wanted = app.state.job or (jobs[0].job if len(jobs) == 1 else None)
        if wanted is not None:
            self.open_job(wanted)
        elif not jobs:
            # Reading one raises the error that says why there is none.
            self.ask(Question("snapshot", GetSnapshot(first=True), app, "reading"))

    def _snapshot_arrived(self, snapshot: Snapshot) -> None:
        app = self._app
        first = app.state.snapshot is None
        if app.state.problem:
            app.write_log("the evidence can be read again")
        at_ns = snapshot.moment.at_ns
        late_ns = app.wall_ns() - at_ns if snapshot.moment.live and at_ns is not None else 0
        self.evidence_at_s = app.clock() - max(late_ns, 0) / NS_PER_S
        began = (one.at_ns for one in snapshot.diagnosis.findings)
        app.known_moments.update(at_ns for at_ns in began if at_ns is not None)
        cursor = app.state.cursor.spanning(snapshot.moment.first_ns, snapshot.moment.last_ns)
        app.change(
            snapshot=snapshot,
            job=snapshot.job,
            cursor=cursor,
            snapshot_age_s=self.age_s(),
            problem="",
        )
        if first:
            app.write_log(f"{snapshot.job}: {snapshot.origin}")
            self._keeping.recall()
            app.once_read()
        judged = not snapshot.diagnosis.pending
        if snapshot.due or not judged:
            self._timekeeping.judge_when_still()
        # Not what the time cursor passes by.
        if judged and (snapshot.moment.live or self._logged is None):
            for said, severity in changes(self._logged, snapshot):
                app.write_log(said, severity)
            self._logged = snapshot
        if first:
            main = _main_screen()
            if main and app.current_mode == "jobs":
                app.show_screen(main)
        self._timekeeping.rest()


def _main_screen() -> str | None:
    return next((one.id for one in SCREENS if one.id not in {"jobs", "log"}), None)
