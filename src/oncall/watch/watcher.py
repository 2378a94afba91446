"""The watch itself: look, decide, gather, save, notify; again and again."""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from oncall.core.diagnosis import Diagnosis, SkippedRule
from oncall.core.errors import OncallError
from oncall.core.nodeset import fold_hosts, fold_ranks
from oncall.core.printable import clean, file_name
from oncall.core.units import NS_PER_S
from oncall.evidence.incident import Incident
from oncall.evidence.parameters import all_parameters
from oncall.fleet.outcome import lost_gateways_phrases
from oncall.fleet.stacks import TakenStacks
from oncall.rules.language.load import apply_overrides
from oncall.rules.language.rulebook import Rulebook
from oncall.use_case.diagnose import diagnose, diagnose_stops
from oncall.views import coverage_words, words
from oncall.views.lost_gpu_time import losing
from oncall.watch.announcement import of_end, of_trouble
from oncall.watch.course import Kind, after, announced, confirms_a_stop, may_confirm
from oncall.watch.keeping import Kept, WatchFolder
from oncall.watch.listening import Pulses
from oncall.watch.look import Look, mark_of, normal_rest_ns, troubles_of
from oncall.watch.metrics import Seen, exposition, write_textfile
from oncall.watch.outbox import Outbox
from oncall.watch.settings import WatchSettings
from oncall.watch.silence import how_it_ended, silent_trouble
from oncall.watch.sources import Source, add_stacks, stack_rows

_MOST_SAVED = 50  # incident files of one watch
_ALIVE_LOOKS = 5  # periods without a look before /healthz fails
Stacks = Mapping[str, list[Any]]  # columns of `thread_stacks`
_DIGITS = re.compile(r"\d+(\.\d+)?")


@dataclass(frozen=True)
class Judging:
    """What diagnoses: rulebooks, those set aside, and overrides of their parameters."""

    rulebooks: Sequence[Rulebook]
    set_aside: Sequence[SkippedRule] = ()
    min_coverage: float = 0.9

    def __call__(
        self, incident: Incident, job: str, rest_ns: int = 0, *, quick: bool = False
    ) -> Diagnosis:
        """`rest_ns`: how long the job's processes were ever seen to rest; `quick`: only whether the
        job is stopped."""
        books, rest = self.rulebooks, "hang_proofs.rest"
        stated = [book.of_relations[rest] for book in books if rest in book.of_relations]
        if all(rest_ns > float(one.value) for one in (all_parameters()[rest].quantity, *stated)):
            books = apply_overrides(books, {rest: f"{rest_ns / NS_PER_S:.3f} s"})
        if quick:
            return diagnose_stops(incident, books, job)
        return diagnose(
            incident, books, job, min_coverage=self.min_coverage, set_aside=self.set_aside
        )


class Watcher:
    """One watch of one job. `look` does everything once; `run` until it is stopped."""

    def __init__(
        self,
        source: Source,
        folder: WatchFolder,
        settings: WatchSettings,
        judging: Judging,
        *,
        stacks: Callable[[str], TakenStacks] | None = None,
        clock: Callable[[], int] = time.time_ns,
        say: Callable[[str], object] | None = None,
    ) -> None:
        """`stacks` looks at the processes of a job that is stopped, and raises OncallError; `say`
        receives a line for everything that changes."""
        self._source = source
        self._folder = folder
        self._settings = settings
        self._judging = judging
        self._stacks = stacks
        self._clock = clock
        self._say = say or print_line
        self._kept = folder.load(source.job)
        targets = {name: one.target for name, one in settings.notify.items()}
        self._outbox = Outbox(targets, self._save)
        self._seen = Seen(source.job)
        self._shown = ""
        self._unkept = ""
        self._look_at_ns = self._looked_ns = 0
        self._pulses = Pulses()
        # Of an incident of which all evidence is yet to be saved: when it was, and its stacks.
        self._owed: tuple[int, Stacks] | None = None

    def run(self, wait: Callable[[float], bool]) -> None:
        """Look until `wait`, which waits for so many seconds, returns that it is to stop."""
        while True:
            now_ns = self._clock()
            if now_ns >= self._look_at_ns:
                self.look()
            else:
                self._listen(now_ns)
                self._deliver()
            dues = [
                self._look_at_ns,
                self._outbox.due_ns(self._kept) or self._look_at_ns,
                self._clock() + self._settings.listen_ns,
            ]
            if wait(max(0.05, (min(dues) - self._clock()) / NS_PER_S)):
                return

    def look(self) -> None:
        """Look once, and do what follows from it. What confirms that a job is stopped includes
        what only its living processes give."""
        began_ns = self._clock()
        before = self._kept.state
        stacks = self._taken() if confirms_a_stop(before) else {}
        look, diagnosis, file = self._looked(self._clock(), stacks)
        following = after(before, look, self._settings.patience)
        lost = self._kept.lost.then(losing(diagnosis) if diagnosis else (), look.at_ns)
        self._kept = replace(self._kept, state=following.state, lost=lost)
        if following.gather is not None:
            self._announce(following.gather, look, diagnosis, file)
            self._owed = (look.at_ns, stacks) if file else None
        elif file:
            Path(file).unlink(missing_ok=True)
        if following.closed is not None:
            end = of_end(self._source.job, following.closed, look.at_ns, look.ended)
            self._kept = self._kept.announce(end, self._wanted(end.severity))
            self._say(f"closed {end.incident}: {end.headline}")
        self._looked_ns = self._clock()
        # A look that takes long leaves as much rest, unless the next one may confirm a stop.
        rest_ns = 0 if confirms_a_stop(self._kept.state) else self._looked_ns - began_ns
        self._look_at_ns = max(following.look_at_ns, self._looked_ns + rest_ns)
        if self._owed is not None:
            self._look_at_ns = self._looked_ns
        self._save(self._kept)
        self._publish(look, diagnosis, (self._looked_ns - began_ns) / NS_PER_S)
        self._deliver()

    def _listen(self, now_ns: int) -> None:
        """Ask whether the job moves, and look soon where it does not, until it does again."""
        try:
            self._pulses = self._pulses.then(self._source.pulse(), now_ns)
        except (OncallError, OSError):
            return  # the next look says why
        if self._pulses.are_silent and self._kept.state.incident is None:
            soon_ns = self._looked_ns + self._settings.confirm_ns
            self._look_at_ns = min(self._look_at_ns, soon_ns)

    @property
    def _asks_of_stops(self) -> bool:
        """Whether all that matters is whether the job is stopped."""
        state = self._kept.state
        hangs = all(one.fault_class == "hang" for one in state.suspected if one.stops)
        silent = self._pulses.are_silent or (confirms_a_stop(state) and bool(self._pulses.pulse))
        return state.incident is None and hangs and silent

    @property
    def seen(self) -> Seen:
        """What is published. From any thread."""
        return self._seen

    def alive(self) -> bool:
        """Whether looks go on. From any thread."""
        longest_ns = _ALIVE_LOOKS * max(self._settings.every_ns, 60 * NS_PER_S)
        return self._clock() - (self._seen.at_ns or self._clock()) < longest_ns

    # ------------------------------------------------------------------ looking

    def _looked(self, now_ns: int, stacks: Stacks) -> tuple[Look, Diagnosis | None, str]:
        """A look, its diagnosis, and the file that its evidence was saved as, where it may confirm
        a suspicion; empty where the disk took none."""
        file = ""
        try:
            confirms = may_confirm(self._kept.state)
            quick = self._asks_of_stops
            with self._source.look(now_ns, quick=quick) as incident:
                add_stacks(incident, stacks)
                # It is read-only once rules have run.
                if confirms:
                    file = self._saved(incident, now_ns)
                elif self._owed is not None and not quick:
                    at_ns, taken = self._owed
                    add_stacks(incident, taken)
                    self._saved(incident, at_ns)
                    self._owed = None
                return *self._judged(incident, now_ns, quick), file
        except (OncallError, OSError) as error:
            why = clean(str(error))
            self._show(f"sees nothing: {why}")
            return Look(now_ns, blind=why), None, file
        finally:
            self._show_gateways(self._source.lost_gateways())

    def _saved(self, seen: Incident, at_ns: int) -> str:
        if not self._settings.saves:
            return ""
        place = self._folder.path / f"{file_name(self._source.job)}-{_stamp(at_ns)}.oncall"
        try:
            seen.save(place)
        except OncallError as error:
            self._say(clean(str(error)))
            return ""
        return str(place)

    def _judged(self, incident: Incident, now_ns: int, quick: bool) -> tuple[Look, Diagnosis]:
        mark = mark_of(incident)
        diagnosis = self._judging(incident, self._source.job, self._kept.rest_ns, quick=quick)
        rest_ns = max(self._kept.rest_ns, normal_rest_ns(incident))
        self._kept = replace(self._kept, rest_ns=rest_ns)
        troubles = troubles_of(diagnosis)
        headline, seen = (
            words.headline(diagnosis)[2],
            coverage_words.seen_phrase(diagnosis.coverage),
        )
        # What is inconclusive names how far the job came: at every look another step.
        silence = self._source.silence(now_ns)
        ended = how_it_ended(incident, silence) if silence else ""
        if ended:
            headline += f"; the job has ended: {ended}"
        news = headline if troubles else _DIGITS.sub("", headline)
        if troubles or not quick:
            self._show(f"{headline} ({seen})", f"{news} ({seen})")
        stopped = any(one.stops for one in troubles)
        if silence and not (ended or stopped or diagnosis.healthy):
            troubles = (silent_trouble(incident, silence), *troubles)
        sound, lasting = diagnosis.healthy, self._source.lasting
        return Look(now_ns, troubles, mark, sound, lasting, ended=ended), diagnosis

    # ---------------------------------------------------------------- announcing

    def _announce(self, kind: Kind, look: Look, diagnosis: Diagnosis | None, file: str) -> None:
        """Have what the look shows sent; `file` is where its evidence was saved."""
        assert kind != "closed"
        look = replace(look, troubles=look.troubles or self._kept.state.suspected)
        state = announced(self._kept.state, kind, look)
        assert state.incident is not None
        news = of_trouble(
            kind,
            self._source.job,
            state.incident,
            look.at_ns,
            look.troubles,
            diagnosis,
            file,
            self._settings.price,
            self._settings.links,
        )
        kept = replace(self._kept, state=state)
        self._kept = kept.announce(news, self._wanted(news.severity))
        self._say(f"{kind} {news.incident}: {news.headline}")
        self._prune()

    def _taken(self) -> Stacks:
        """Stacks of a stopped job, and Flight Recorder dumps, which a look then finds among its
        recordings. py-spy stops a process for a moment: only where the job is stopped anyway."""
        if self._stacks is None:
            return {}
        try:
            taken = self._stacks(self._source.job)
        except OncallError as error:
            self._say(f"no stacks: {clean(str(error))}")
            return {}
        for what, ranks in taken.dumps.items():
            self._say(f"{clean(what)} ({fold_ranks(ranks)})")
        return stack_rows(taken)

    def _wanted(self, severity: str) -> tuple[str, ...]:
        return tuple(name for name, one in self._settings.notify.items() if one.wants(severity))

    def _deliver(self) -> None:
        self._kept = self._outbox.deliver(self._kept, self._clock())
        waiting = Counter(one.target for one in self._kept.pending)
        self._seen = replace(
            self._seen,
            sent=dict(self._outbox.sent),
            failed=dict(self._outbox.failed),
            pending={name: waiting[name] for name in self._settings.notify},
        )
        self._write_textfile()

    def _save(self, kept: Kept) -> None:
        """Keep the state for a restart. A full disk never silences the watch: it goes on from
        memory, and says so once."""
        unkept = ""
        try:
            self._folder.save(kept)
        except OSError as error:
            unkept = f"cannot keep its state in {self._folder.path}: {error.strerror}"
        if unkept != self._unkept:
            self._unkept = unkept
            self._say(
                f"{unkept}; goes on from memory: a restart would announce again what is open"
                if unkept
                else "keeps its state on disk again"
            )

    def _prune(self) -> None:
        """Keep the newest incident files."""
        files = sorted(self._folder.path.glob("*.oncall"), key=lambda path: path.stat().st_mtime_ns)
        for path in files[:-_MOST_SAVED]:
            with suppress(OSError):
                path.unlink()

    # ---------------------------------------------------------------- publishing

    def _publish(self, look: Look, diagnosis: Diagnosis | None, took_s: float) -> None:
        self._seen = replace(
            self._seen,
            job=self._source.job,
            at_ns=look.at_ns,
            look_ns=self._seen.look_ns if look.blind else look.at_ns,
            took_s=took_s,
            blind=bool(look.blind),
            diagnosis=diagnosis or self._seen.diagnosis,
            incident=self._kept.state.incident,
            lost_gpu_s=self._kept.lost.seconds,
        )

    def _write_textfile(self) -> None:
        if self._settings.textfile is None:
            return
        try:
            write_textfile(self._settings.textfile, exposition(self._seen))
        except OSError as error:
            self._show(f"cannot write {self._settings.textfile}: {error.strerror}")

    def _show_gateways(self, lost: Mapping[str, str]) -> None:
        """A line on gateways that were lost or are back since the last look."""
        before, self._seen = self._seen.lost_gateways, replace(self._seen, lost_gateways=lost)
        for phrase in lost_gateways_phrases({g: why for g, why in lost.items() if g not in before}):
            self._say(phrase)
        if back := before.keys() - lost.keys():
            self._say(f"gateway {fold_hosts(back)} is back")

    def _show(self, text: str, news: str = "") -> None:
        """A line on what looks show, if it, or `news` of it, is another than before."""
        with suppress(OSError):
            if (news or text) != self._shown:
                self._shown = news or text
                self._say(text)


def print_line(text: str) -> None:
    """A line on stderr, with the time."""
    print(f"{datetime.now(UTC):%H:%M:%S} UTC  {text}", file=sys.stderr, flush=True)


def _stamp(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns // NS_PER_S, UTC).strftime("%Y%m%dT%H%M%SZ")
