"""The lines around every screen; each repaints only when what it says has changed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, cast

from rich.style import Style
from rich.text import Text

from oncall.core.printable import clean, short
from oncall.core.units import NS_PER_S, format_duration, format_number
from oncall.render.text.lines import cell_len
from oncall.tui.drawing.abstract import AbstractMeta
from oncall.tui.drawing.literal import LiteralText
from oncall.tui.shell.keys import ActionEntry, key_phrase, keys_by_id
from oncall.tui.shell.registry import SCREENS, ScreenEntry, screen_entry
from oncall.tui.shell.state import Pulse, State, TimeCursor
from oncall.views.coverage_words import seen_phrase
from oncall.views.words import instant, leading

if TYPE_CHECKING:
    from oncall.tui.shell.console import Console

_LEAST_TITLE = 10  # columns
_WITH_PULSE = 100  # columns of a terminal with room for it
_BLOCKS = "▁▂▃▄▅▆▇█"
_ALWAYS = frozenset({"help", "quit"})  # in the line of keys, however narrow


class _Line(LiteralText, metaclass=AbstractMeta):
    """One line, drawn from the state."""

    def __init__(self, id: str) -> None:  # noqa: A002
        super().__init__(id=id)
        self.auto_links = False
        self._said: Text | None = None

    def show(self, state: State) -> None:
        self.say(self.line(state))

    def say(self, text: Text) -> None:
        if self._said is None or text != self._said or text.spans != self._said.spans:
            self._said = text
            self.update(text, layout=False)  # a layout draws the whole screen again

    @abstractmethod
    def line(self, state: State) -> Text:
        """What it says of a state."""

    def on_resize(self) -> None:
        self.show(self.app.state)

    @property
    def app(self) -> Console:  # type: ignore[override]
        return cast("Console", super().app)

    def _style(self, variable: str, *, bold: bool = False) -> str:
        from oncall.tui.drawing.states import theme_style

        return str(theme_style(self.app, variable, bold=bold))


def spread(left: Text, right: Text, width: int) -> Text:
    """Both at the ends of a line; where there is no room for both the right one goes, unless it
    stands alone."""
    room = width - right.cell_len - 1
    if room < 12 and not left.plain.strip():
        right.truncate(width, overflow="ellipsis")
        return right
    if room < 12:
        left.truncate(width, overflow="ellipsis")
        return left
    left.truncate(room, overflow="ellipsis", pad=True)
    return Text.assemble(left, " ", right)


def _clicked(style: str, action: str) -> Style:
    """A style that does something where it is clicked."""
    return Style.parse(style) + Style.from_meta({"@click": f"app.perform('{action}')"})


class _Names(Enum):
    """How screens are named in the title line."""

    FULL = "full"
    SHORT = "short"
    NONE = "none"


class TitleLine(_Line):
    """What is looked at, the screens there are, and how much of the job is seen.

    `here`: the id of the screen that it is the title of.
    """

    def __init__(self, here: str, id: str) -> None:  # noqa: A002
        super().__init__(id)
        self._here = here

    def line(self, state: State) -> Text:
        """Where there is little room, in this order: the program loses its name, the title its
        beginning, what is seen its place, other screens all but three letters of their names, and
        then these."""
        muted = self._style("muted")
        program = Text.assemble((" oncall ", self._style("primary", bold=True)))
        title = Text(f" {title_phrase(state)}  ")
        seen = Text(f"{coverage_phrase(state)} ", muted)
        full, few = (self._tabs(muted, names) for names in (_Names.FULL, _Names.SHORT))
        width = self.size.width
        for tabs, right in ((full, seen), (full, Text()), (few, seen), (few, Text())):
            room = width - right.cell_len - 1
            for left in (program + title + tabs, title + tabs):
                if left.cell_len <= room:
                    return spread(left, right, width)
            if room - tabs.cell_len >= _LEAST_TITLE:  # names are worth more than the whole title
                short = short_title(state, room - tabs.cell_len - 3)
                return spread(Text(f" {short}  ") + tabs, right, width)
        keys = self._tabs(muted, _Names.NONE)
        if keys.cell_len + 3 > width:  # the list of screens has the others
            keys = self._tabs(muted, _Names.NONE, [screen_entry(self._here)])
            keys.append(" z … ", _clicked(muted, "screens"))
        short = short_title(state, max(width - keys.cell_len - 4, 0))
        return spread(Text(f" {short}  ") + keys, Text(), width)

    def _tabs(self, muted: str, names: _Names, entries: Sequence[ScreenEntry] = ()) -> Text:
        """The screens by key and name; this one always has its name."""
        text = Text()
        for entry in entries or SCREENS:
            name = {_Names.SHORT: entry.short, _Names.NONE: ""}.get(names, entry.title)
            name = entry.title if entry.id == self._here else name
            said = " ".join(filter(None, (entry.key, name)))
            if not said:
                continue
            label = f" {said} " if names is _Names.FULL or entry.id == self._here else f" {said}"
            style = "bold reverse" if entry.id == self._here else muted
            text.append(label, _clicked(style, f"show_{entry.id}"))
        return text


class LossLine(_Line):
    """The second line, where anything is lost: who gives no news, and ranks without data."""

    def show(self, state: State) -> None:
        said = self.line(state)
        self.display = bool(said)
        self.say(said)

    def line(self, state: State) -> Text:
        lost = " · ".join(filter(None, (nodes_phrase(state), silence_phrase(state))))
        return Text(f" ▲ {lost}" if lost else "", self._style("error", bold=True))


class StatusLine(_Line):
    """The moment shown, what is left out, what is being done, and what went wrong."""

    def line(self, state: State) -> Text:
        left = Text(" ")
        if state.demonstration:
            left.append(f"{state.demonstration}  ", self._style("warning", bold=True))
        if self.app.said:
            left.append(self.app.said, self._style("accent"))
        elif trouble := trouble_phrase(state):
            left.append(f"✖ {trouble}", self._style("error"))
        else:
            left.append(narrowing_phrase(state), self._style("accent"))
        old = (old_phrase(state), self._age_style(state.snapshot_age_s))
        time = time_phrase(state.cursor, state.live)
        right = Text.assemble(self._pulse(state.pulse), (time, self._style("muted")), old, " ")
        # What went wrong and how old this is are read first; half a phrase says nothing.
        room = self.size.width - left.cell_len - right.cell_len - 6
        fitting = (one for one in activity_phrases(state) if cell_len(one) <= room)
        if doing := next(fitting, ""):
            right = Text.assemble((f"{doing}   " if time else doing, self._style("muted")), right)
        return spread(left, right, self.size.width)

    def _pulse(self, pulse: Pulse) -> Text:
        """How fast the job records, the last moments and now; red while it records nothing."""
        if not pulse.rates or self.size.width < _WITH_PULSE:
            return Text()
        beats, most = pulse.rates[-(self.size.width // 10) :], max(pulse.rates)
        highest = len(_BLOCKS) - 1
        line = "".join(_BLOCKS[round(rate / most * highest) if most else 0] for rate in beats)
        style = self._style("success") if beats[-1] else self._style("error", bold=True)
        return Text(f"{line} {format_number(beats[-1])} records/s  ", style)

    def _age_style(self, age_s: float) -> str:
        if age_s >= VERY_OLD_S:
            return self._style("error", bold=True)
        return self._style("warning" if age_s >= OLD_S else "muted")


class KeyBar(_Line):
    """The keys that matter here; those that do nothing now are dim, or left out where there is no
    room for all. Help and quit are always there."""

    def line(self, state: State) -> Text:  # noqa: ARG002
        screen = self.screen
        keys = keys_by_id(screen)
        shown = [one for one in self.app.actions_of(screen) if one.bar and one.id in keys]
        right = Text.assemble(*(self._key(one, keys) for one in shown if one.id in _ALWAYS))
        others = [
            (self._key(one, keys, off := one.why_not(screen) is not None), off)
            for one in shown
            if one.id not in _ALWAYS
        ]
        room = self.size.width - right.cell_len - 1
        if sum(key.cell_len for key, _ in others) > room:
            others = [(key, off) for key, off in others if not off]
        text = Text(" ")
        for key, _ in others:
            if text.cell_len + key.cell_len > room + 1:
                break
            text.append_text(key)
        return spread(text, right, self.size.width)

    def _key(
        self, entry: ActionEntry[Any], keys: Mapping[str, list[str]], off: bool = False
    ) -> Text:
        key = key_phrase(keys[entry.id][0])
        strong = "dim" if off else self._style("primary", bold=True)
        weak = self._style("muted") + (" dim" if off else "")
        return Text.assemble(
            (key, _clicked(strong, entry.id)), (f" {entry.title}  ", _clicked(weak, entry.id))
        )


# Evidence of a running job: what is older is amber, then red. A gather is due every 5 s.
OLD_S, VERY_OLD_S = 15.0, 60.0


def title_phrase(state: State) -> str:
    """What is looked at: `incident.oncall · llama-70b`."""
    parts = [state.title, state.job or (state.snapshot.job if state.snapshot else "")]
    return " · ".join(short(part) for part in dict.fromkeys(parts) if part) or "opening"


def short_title(state: State, columns: int) -> str:
    """The title in so many columns; its beginning goes first, as jobs differ at the end."""
    title = title_phrase(state)
    while cell_len(title) > columns:
        title = title[2:] if title.startswith("…") else title[1:]
        title = f"…{title}" if title else ""
    return title


def coverage_phrase(state: State) -> str:
    """`498/512 ranks · 60/64 nodes`; empty without a snapshot."""
    return seen_phrase(state.snapshot.diagnosis.coverage) if state.snapshot else ""


def silence_phrase(state: State) -> str:
    """`14 ranks without data`, if any are."""
    last = coverage_phrase(state).split(" · ")[-1]
    return last if last.endswith("without data") else ""


def nodes_phrase(state: State) -> str:
    """`2 nodes silent · collector dead on gpu003 · gpu004 needs 12 s to answer`: who gives no news
    of a running job, or late."""
    hosts = state.snapshot.hosts if state.snapshot else ()
    silent = [one.host for one in hosts if one.silent]
    dead = [one.host for one in hosts if one.collector and not one.collector_slow]
    slow = [one.host for one in hosts if one.collector_slow]
    parts = []
    if silent:
        who = silent[0] if len(silent) == 1 else f"{len(silent)} nodes"
        parts.append(f"{clean(who)} silent")
    for how, nodes in (("dead", dead), ("silent", slow)):
        if nodes:
            where = nodes[0] if len(nodes) == 1 else f"{len(nodes)} nodes"
            parts.append(f"collector {how} on {clean(where)}")
    if late := [one for one in hosts if one.slowness]:
        one = f"{clean(late[0].host)} {late[0].slowness}"
        parts.append(one if len(late) == 1 else f"{len(late)} nodes answer slowly")
    if lost := list(state.snapshot.lost_gateways if state.snapshot else ()):
        which = f"gateway {lost[0]}" if len(lost) == 1 else f"{len(lost)} gateways"
        parts.append(f"{which} lost")
    return " · ".join(parts)


def old_phrase(state: State) -> str:
    """`, 4 s old`: of what is shown of a running job, by the evidence's own time."""
    if not (state.live and state.snapshot and state.cursor.follows):
        return ""
    return f", {age_phrase(state.snapshot_age_s)} old"


def time_phrase(cursor: TimeCursor, live: bool) -> str:
    """Where the time cursor stands, and whether it moves."""
    if (at_ns := cursor.shown_ns) is None:
        return "now" if live else ""
    clock = instant(at_ns, date=False)
    if cursor.follows:
        return f"● live {clock}" if live else f"end {clock}"
    behind_ns = (cursor.last_ns or at_ns) - at_ns
    how = f"▶ {cursor.speed:g}x" if cursor.playing else "❚❚"
    return f"{how} {clock}, {format_duration(behind_ns)} before the {'present' if live else 'end'}"


def narrowing_phrase(state: State) -> str:
    """What is left out of what is shown, and what was noted about it."""
    parts = [f"/{state.filter}"] if state.filter else []
    if state.faults_only:
        parts.append("faults only")
    if solved := solved_phrase(state):
        parts.append(solved)
    if state.notes:
        parts.append("1 note" if state.notes == 1 else f"{state.notes} notes")
    return " · ".join(parts)


def solved_phrase(state: State) -> str:
    """What fixed it; of a running job that is at fault again, what did so before."""
    if state.solved is None:
        return ""
    lead = leading(state.snapshot.diagnosis) if state.snapshot else None
    began_ns = lead.at_ns if lead and state.live else None
    again = began_ns is not None and state.solved.written_ns < began_ns
    return f"{'fixed before by' if again else 'solved'}: {clean(state.solved.text)}"


def trouble_phrase(state: State) -> str:
    """What failed, with the age of what is shown instead."""
    if not state.problem:
        return ""
    age = (
        f" (shown: {age_phrase(state.snapshot_age_s)} old)" if state.snapshot and state.live else ""
    )
    return clean(state.problem.splitlines()[0]) + age


def busy_phrase(state: State) -> str:
    """What is being done, and how far that is."""
    return f"{state.busy}: {state.progress}" if state.progress else state.busy


def activity_phrases(state: State) -> tuple[str, ...]:
    """What is being done, the longest first: with and without how far that is."""
    return tuple(f"{said} …" for said in dict.fromkeys((busy_phrase(state), state.busy)) if said)


def age_phrase(age_s: float) -> str:
    return format_duration(int(age_s) * NS_PER_S)
