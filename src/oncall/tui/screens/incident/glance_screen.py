"""What the job at a glance shows beside findings and story: rates, lines of the log, and a picture
where there is room, each asked for by itself and shown when it is there.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import partial

from textual import events

from oncall.console.evidence_queries import GetLogLines, GetPicture, GetRates
from oncall.core.diagnosis import Finding
from oncall.tui.screens.incident import overview
from oncall.tui.screens.incident.overview import Glance
from oncall.tui.screens.incident.picture import Picture
from oncall.tui.screens.incident.verdict import BESIDE, GlancePane
from oncall.tui.shell.messages import Refused
from oncall.tui.shell.screen import ConsoleScreen
from oncall.views.night import LoggedLine
from oncall.views.rates.buckets import Series
from oncall.views.snapshot import Snapshot
from oncall.views.words import leading

_MOST_LOG = 60  # lines around the moment


def _began_ns(snapshot: Snapshot) -> int | None:
    """When what the headline is about began, Unix ns."""
    lead = leading(snapshot.diagnosis)
    return lead.at_ns if lead else None


_PICTURE_FROM = 44  # lines of a screen


class GlanceScreen(ConsoleScreen):
    """A screen with a GlancePane."""

    def __init__(self) -> None:
        super().__init__()
        self._series: tuple[Series, ...] | str | None = None
        self._series_of: object = None
        self._picture: Picture = ()
        self._pictured: object = None  # which finding of which snapshot that is of
        self._log: tuple[LoggedLine, ...] = ()

    @abstractmethod
    def finding(self) -> Finding | None:
        """The one under the cursor, which the picture is of."""

    def ask_glance(self, snapshot: Snapshot) -> None:
        """What the glance shows beside the snapshot; what was read of the last one stays so long,
        unless that is of another job."""
        self._show_glance()
        take = partial(self._take_series, overview.about(snapshot))
        self.ask("job", GetRates("job"), take, refused=self._without_series)
        self.ask("log", GetLogLines(_began_ns(snapshot), _MOST_LOG), self._take_log)

    def want_picture(self) -> None:
        """That of the finding under the cursor, where there is room; another's does not stay."""
        finding, snapshot = self.finding(), self.state.snapshot
        roomy = self.size.width >= BESIDE and self.size.height >= _PICTURE_FROM
        known = snapshot.diagnosis.findings if snapshot is not None else ()
        wanted = finding if roomy and finding in known else None
        pictured = (wanted.id, snapshot.version) if wanted is not None and snapshot else None
        if pictured == self._pictured:
            return
        self._pictured = pictured
        if wanted is None:
            self._take_picture(())
        else:
            self.ask(
                "picture",
                GetPicture(wanted.id),
                self._take_picture,
                refused=lambda _: self._take_picture(()),
            )

    def _take_picture(self, picture: Picture) -> None:
        self._picture = picture
        self._show_glance()

    def on_resize(self, event: events.Resize) -> None:
        super().on_resize(event)
        self.call_after_refresh(self.want_picture)

    def _show_glance(self) -> None:
        if (snapshot := self.state.snapshot) is not None:
            began_ns = _began_ns(snapshot)
            read = (self._series, self._log, began_ns, self._series_of)
            glance = Glance(snapshot, *read, self._picture)
            self.query_one(GlancePane).show(glance)

    def _take_series(self, of: object, series: tuple[Series, ...]) -> None:
        self._series, self._series_of = series, of
        self._show_glance()

    def _without_series(self, message: Refused) -> None:
        self._series = str(message.error)
        self._show_glance()

    def _take_log(self, lines: tuple[LoggedLine, ...]) -> None:
        self._log = lines
        self._show_glance()
