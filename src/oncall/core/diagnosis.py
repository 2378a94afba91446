"""What a diagnosis is: the frozen data that rules produce and reports show (DESIGN section 8)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

Severity = Literal["critical", "warning", "info"]
FaultClass = Literal["hang", "slow", "network", "host", "application"]
BlameKind = Literal["rank", "node", "gpu", "nic", "link", "port", "flow", "stage", "group"]
Answer = Literal["yes", "no", "unknown"]
Result = Literal["fault", "none", "inconclusive"]
Picture = Literal["timeline", "network", "traffic", "rates"]
Kind = Literal["effect", "symptom", "event"]
Effect = Literal["stop", "compute", "transfer", "all"]
Component = Literal["rank", "gpu", "nic", "node", "link", "stage", "group", "job"]


@dataclass(frozen=True)
class Blame:
    """The culprit. `where` holds the identifying columns: rank, node, gpu, comm ..."""

    kind: BlameKind
    where: Mapping[str, Any]


@dataclass(frozen=True)
class RowsOf:
    """Which rows of its fact a step tells of: those of a rulebook's case that have one of some
    values in each of these columns."""

    rulebook: str
    case: tuple[Any, ...]
    having: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True)
class Step:
    """One step of the story: a question, its answer, the sentence, and the rows behind it.
    `name`: what tests of the rulebook call the question. `rows_of`: None where no fact is behind
    it."""

    ask: str
    answer: Answer
    say: str
    fact: str
    rows: int
    sql: str = ""
    params: Mapping[str, str] = field(default_factory=dict)
    name: str = ""
    rows_of: RowsOf | None = None


@dataclass(frozen=True)
class RuledOut:
    """A verdict the tree turned away from, and the sentence that says why."""

    verdict: str
    because: str


@dataclass(frozen=True)
class Reason:
    """One stated factor of `confidence` (0..1): coverage, margin, agreement, clock error."""

    name: str
    value: float
    why: str


@dataclass(frozen=True)
class Stack:
    """Where a blamed rank's program stood, newest frame first, if a recording has it."""

    rank: int
    at: str
    frames: tuple[str, ...]


@dataclass(frozen=True)
class Claim:
    """What kind of statement a verdict is.

    An effect says what the job lost: `effects` are one of stop, compute and transfer. A symptom or
    an event says what a component shows or reported; `effects` are those that it can explain.
    `on`: the component that it is about; None: what is blamed. `declared`: the rulebook says so.
    """

    kind: Kind = "effect"
    effects: frozenset[Effect] = frozenset()
    on: Component | None = None
    declared: bool = False


@dataclass(frozen=True)
class Lost:
    """What an effect costs: the share of time lost, and where known what it is at least and at most
    beyond noise, and the time in all, ns; `gpu_seconds`: of all ranks. Without `low` the noise is
    not known."""

    share: float
    low: float | None = None
    high: float | None = None
    gain_ns: int | None = None
    gpu_seconds: float | None = None


@dataclass(frozen=True)
class Cause:
    """The symptom or event that explains an effect, as shown with the effect's finding."""

    rulebook: str
    verdict: str
    title: str
    blame: tuple[Blame, ...]
    story: tuple[Step, ...]


@dataclass(frozen=True)
class Finding:
    """One verdict with its blame and its story. `explained_by` names the root finding's id,
    `picture` what may be drawn with it, `seen_before` is a sentence about former incidents.
    `cause`: what explains an effect; `effect`: the title of what a cause does to the job.
    `part`: the kind of device that failed; `parts`: the kinds that can have brought an error about;
    None: that is not known. `former_names`: what `rulebook.VERDICT` was called before.
    `witness`: the evidence that says it, where a rulebook reads several kinds."""

    id: str
    rulebook: str
    verdict: str
    title: str
    fault_class: FaultClass
    severity: Severity
    confidence: float
    at_ns: int | None
    blame: tuple[Blame, ...]
    case: Mapping[str, Any]
    story: tuple[Step, ...]
    ruled_out: tuple[RuledOut, ...] = ()
    explained_by: str | None = None
    next: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    reasons: tuple[Reason, ...] = ()
    stacks: tuple[Stack, ...] = ()
    picture: Picture | None = None
    seen_before: str = ""
    claim: Claim = Claim()
    lost: Lost | None = None
    until_ns: int | None = None
    domain: str = ""
    fatal: bool | None = None
    part: str = ""
    parts: frozenset[str] | None = None
    cause: Cause | None = None
    effect: str = ""
    former_names: tuple[str, ...] = ()
    witness: str = ""

    @property
    def shown_by(self) -> str:
        """What shows it: what two different ones show, they know independently."""
        return self.witness or f"rulebook {self.rulebook}"


@dataclass(frozen=True)
class Suspect:
    """Whom an inconclusive answer names: `why` is what speaks against them, without their names.

    `blame` is empty where it is known that the job loses time, and not by whom. `share`: of the
    time, what may be lost by them, at least `low` and at most `high`, as far as each is known.
    """

    blame: tuple[Blame, ...]
    why: str
    share: float | None = None
    low: float | None = None
    high: float | None = None


_SEVERITIES: tuple[Severity, ...] = get_args(Severity)


def strength(finding: Finding) -> tuple[Any, ...]:
    """Severest first, then surest, then earliest; the rest only makes the order total."""
    at_ns = finding.at_ns
    blame = sorted(str(sorted(map(str, one.where.items()))) for one in finding.blame)
    return (
        _SEVERITIES.index(finding.severity),
        -finding.confidence,
        at_ns is None,
        at_ns or 0,
        finding.rulebook,
        finding.verdict,
        [str(value) for value in finding.case.values()],
        blame,
    )


@dataclass(frozen=True)
class Gap:
    """Something that could not be seen, and why. Empty tuples mean the gap has no such names.
    `details` is for whoever mends it: the traceback of what could not be computed. `files` are the
    names of files that were not read, or not to their end. `silent`: these ranks left nothing."""

    reason: str
    nodes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    details: str = ""
    files: tuple[str, ...] = ()
    silent: bool = False


@dataclass(frozen=True)
class Contradiction:
    """Evidence that contradicts itself, or that cannot be: what, how often, with an example.

    `tables` hold it: what was concluded from them cannot be trusted to be complete.
    """

    what: str
    count: int
    example: str
    tables: tuple[str, ...]
    ranks: tuple[int, ...] = ()
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class SkippedRule:
    """A rulebook (or one branch of it) that could not run, and the evidence it lacked.

    `set_aside`: the site's file is wrong; it was left out, and the shipped rulebook of that name
    ran if there is one. `uncomputed`: the relation that it needs and that could not be computed.
    """

    rule: str
    missing: tuple[str, ...]
    why: str = ""
    set_aside: bool = False
    uncomputed: str = ""

    @property
    def undecided(self) -> bool:
        """A branch, `rulebook.fact`: a case had started, and ended there without a verdict."""
        return "." in self.rule

    @property
    def failed(self) -> bool:
        """It broke; it did not merely lack evidence."""
        return not self.missing and not self.set_aside


@dataclass(frozen=True)
class Coverage:
    """How much of the job was seen: ranks that left evidence, of those it has.

    `at_least`: texts name ranks, and nothing states how many there are: `ranks` is a lower bound.
    `placed`: the host of every rank is known, so that `nodes` are all there are.
    `by_logs`, where logs are all that there is: why they show no healthy job; empty if they do.
    """

    nodes: int
    answered: int
    ranks: int
    ranks_seen: int
    gaps: tuple[Gap, ...] = ()
    skipped_rules: tuple[SkippedRule, ...] = ()
    contradictions: tuple[Contradiction, ...] = ()
    by_logs: str | None = None
    at_least: bool = False
    placed: bool = True

    @property
    def of_ranks(self) -> str:
        """`7 of 8 ranks`, `1 of at least 64 ranks`, `4 of 4 known ranks`."""
        few = self.at_least and self.ranks_seen < self.ranks
        known = "known " if self.at_least and not few else ""
        ranks = "rank" if self.ranks == 1 else "ranks"
        return f"{self.ranks_seen} of {'at least ' if few else ''}{self.ranks} {known}{ranks}"

    @property
    def share(self) -> float:
        """Seen ranks over expected ranks, 0..1; 1.0 when nothing says how many there are."""
        return self.ranks_seen / self.ranks if self.ranks else 1.0


@dataclass(frozen=True)
class Diagnosis:
    """The whole answer for one job. `checked` are the rulebooks that could run; with less than
    `min_coverage` of the ranks seen, finding nothing means nothing. `site_rulebooks`: of those
    that ran, the ones that the site wrote or changed, with the file. `rests_on`: the tables that
    the rulebooks read. `undecided`: why it is not known whether the job moves. If it is
    inconclusive, `suspects` are named, the likeliest first, and `would_decide` is the command that
    would decide it while the job is alive. `pending`: the rulebooks that have yet to run."""

    job: str
    since_ns: int | None
    until_ns: int | None
    coverage: Coverage
    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()
    checked: tuple[str, ...] = ()
    min_coverage: float = 0.9
    site_rulebooks: Mapping[str, str] = field(default_factory=dict)
    rests_on: frozenset[str] = frozenset()
    undecided: str = ""
    suspects: tuple[Suspect, ...] = ()
    would_decide: str = ""
    pending: tuple[str, ...] = ()

    @property
    def faults(self) -> tuple[Finding, ...]:
        """The findings that are faults: all but those of severity info."""
        return tuple(finding for finding in self.findings if finding.severity != "info")

    @property
    def result(self) -> Result:
        """Fault, none found, or inconclusive: the evidence could not have shown one."""
        if self.faults:
            return "fault"
        return "inconclusive" if self.doubt else "none"

    @property
    def healthy(self) -> bool:
        """No fault, and enough evidence to conclude that."""
        return self.result == "none"

    @property
    def doubt(self) -> str:
        """Why no finding would not mean a healthy job; empty if it would."""
        if self.pending:
            return f"{len(self.pending)} rulebooks have yet to run"
        if not self.checked:
            return "no rulebook had the evidence it needs"
        for rule in self.coverage.skipped_rules:
            if rule.undecided:
                return f"a suspicion could not be decided ({rule.rule})"
            if rule.failed:
                return f"rulebook {rule.rule} failed"
        for one in self.coverage.contradictions:
            if not self.rests_on.isdisjoint(one.tables):
                return f"the evidence cannot be trusted: {one.what}"
        if self.coverage.by_logs is not None:
            return self.coverage.by_logs or self.undecided
        if not self.coverage.ranks_seen and not self.coverage.answered:
            return "no data from any rank or node"
        if self.coverage.share < self.min_coverage:
            few = f"only {self.coverage.of_ranks} were seen"
            if self.undecided:
                return f"{few}; {self.undecided}"
            return f"{few}, less than {self.min_coverage * 100:.0f} %"
        if self.coverage.answered < self.min_coverage * self.coverage.nodes:
            return f"only {self.coverage.answered} of {self.coverage.nodes} nodes answered"
        return self.undecided
