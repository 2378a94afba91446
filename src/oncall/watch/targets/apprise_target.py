"""Slack, Teams, PagerDuty, Opsgenie, mail and a hundred others by apprise, an optional extra."""

from __future__ import annotations

import importlib.util
import logging
from dataclasses import dataclass, field
from string import Template

from oncall.core.errors import UsageError
from oncall.watch.announcement import BODY, TITLE, Announcement
from oncall.watch.targets.target import NotSent, without

_TYPES = {"critical": "failure", "warning": "warning", "info": "info"}
_ABSENT = "apprise is not installed: pip install 'oncall-console[notify]'"


@dataclass(frozen=True)
class Apprise:
    """Sends title and body to one apprise URL, which is a secret."""

    name: str
    url: str = field(repr=False)
    title: Template = field(default_factory=lambda: Template(TITLE))
    body: Template = field(default_factory=lambda: Template(BODY))
    repeats: bool = False

    def check(self) -> None:
        """Raises UsageError where apprise is absent or does not know the URL."""
        if importlib.util.find_spec("apprise") is None:
            raise UsageError(_ABSENT)
        import apprise

        logging.getLogger("apprise").setLevel(logging.CRITICAL)  # it quotes the URL
        if apprise.Apprise.instantiate(self.url) is None:
            raise UsageError("apprise does not accept its URL")

    def send(self, announcement: Announcement) -> None:
        import apprise

        sender = apprise.Apprise()
        sender.add(self.url)
        title, body = self._message(announcement)
        kind = "success" if announcement.kind == "closed" else _TYPES[announcement.severity]
        logging.getLogger("apprise").setLevel(logging.WARNING)
        capture = apprise.LogCapture(level=logging.WARNING, fmt="%(message)s")  # type: ignore[no-untyped-call]
        with capture as log:
            accepted = sender.notify(
                body=body, title=title, notify_type=kind, body_format=apprise.NotifyFormat.TEXT
            )
            said = log.getvalue().strip().splitlines() if log is not None else []
        if not accepted:
            reason = " ".join(said) or "not accepted"
            raise NotSent(without([self.url], reason))

    def shown(self, announcement: Announcement) -> str:
        return "\n".join(self._message(announcement))

    def _message(self, announcement: Announcement) -> tuple[str, str]:
        fields = announcement.fields()
        # Nobody is to be called by what a log or a host's name holds.
        plain = {name: value.replace("@", "(at)") for name, value in fields.items()}
        return self.title.substitute(plain), self.body.substitute(plain)
