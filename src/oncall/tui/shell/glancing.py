"""The list of several jobs while one looks at it: each is judged in its turn."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from oncall.console.queries import GlanceAtJob
from oncall.core.printable import short
from oncall.tui.shell.keeping import Keeping
from oncall.tui.shell.messages import GLANCE, Question, Refused

if TYPE_CHECKING:
    from oncall.views.snapshot import JobLine

_GLANCE_EVERY_S = 60.0  # at each of several running jobs


class Glancing(Keeping):
    """Asks for a line with the verdict of one job after another."""

    _glanced_s: dict[str, float]  # job -> when it was judged for the list

    def forget_glances(self) -> None:
        """A session is opened anew."""
        self._glanced_s = {}

    def list_again(self, jobs: tuple[JobLine, ...]) -> None:
        """The list of now, with what a look at each said."""
        known = {line.job: line for line in self.state.jobs or ()}
        self.change(jobs=tuple(line.judged_as(known.get(line.job)) for line in jobs))

    def glance_at_next(self) -> None:
        """Have the next of several jobs judged, as long as one looks at the list; running ones once
        a while, until one of them is open: only its nodes are asked then."""
        lines, is_open = self.state.jobs or (), self.state.live and self.state.job is not None
        if len(lines) < 2 or is_open or self.current_mode != "jobs" or self.session.busy:
            return
        for line in lines:
            before_s = self._glanced_s.get(line.job)
            again = self.state.live and line.state == "running"
            if before_s is None or (again and self.clock() - before_s >= _GLANCE_EVERY_S):
                query, label = GlanceAtJob(line.job), f"judging {short(line.job)}"
                take, refused = partial(self._take_glance, line), partial(self._not_judged, line)
                self.ask(Question(GLANCE, query, self, label, take, refused))
                return

    def _take_glance(self, asked: JobLine, found: JobLine) -> None:
        """What was found of a job takes its place in the list, which knows better if it runs. A
        look that was given up, because a job was opened, does not count."""
        self._glanced_s[asked.job] = self.clock()
        jobs = self.state.jobs or ()
        self.change(
            jobs=tuple(
                replace(found, state=one.state) if one.job == found.job else one for one in jobs
            )
        )

    def _not_judged(self, line: JobLine, message: Refused) -> None:
        self._take_glance(line, replace(line, verdict=f"? {message.error}"))
