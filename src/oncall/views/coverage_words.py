"""The wording of what was seen and what was not, that reports and screens share.

Plain text on one line, harmless, as in `words`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from oncall.core.diagnosis import Contradiction, Coverage, Diagnosis, Gap, SkippedRule
from oncall.core.printable import clean
from oncall.views.words import hosts_phrase, names_phrase, ranks_phrase

_MOST_NAMES = 4
_MOST_FILES = 3
_CITED = re.compile(r" \([^()]*\)")  # a paper and its section


def seen_phrase(coverage: Coverage) -> str:
    """`498/512 ranks · 60/64 nodes · 14 ranks without data`, of texts `7 of at least 8 ranks`. If
    some rank's host is unknown, there may be more than the `known nodes`."""
    if not coverage.ranks:
        return "rank count unknown"
    bound = coverage.at_least
    parts = [coverage.of_ranks if bound else f"{coverage.ranks_seen}/{coverage.ranks} ranks"]
    if coverage.nodes:
        known = " known" if bound or not coverage.placed else ""
        parts.append(f"{coverage.answered}/{coverage.nodes}{known} nodes")
    if silent := coverage.ranks - coverage.ranks_seen:
        parts.append(f"{silent} {'rank' if silent == 1 else 'ranks'} without data")
    return " · ".join(parts)


def gap_phrase(gap: Gap) -> str:
    """`ranks 3,9 on gpu017: left no recording`, `2 files: not a recording (a.txt, b.txt)`."""
    named = [ranks_phrase(gap.ranks)] if gap.ranks else []
    if gap.nodes:
        named.append(("on " if named else "") + hosts_phrase(gap.nodes))
    of = f" ({names_phrase(gap.files, _MOST_FILES)})" if len(gap.files) > 1 else ""
    return (f"{' '.join(named)}: " if named else "") + clean(gap.reason + of)


def contradiction_phrase(one: Contradiction) -> str:
    """`2 operations ended before they began, on rank 3: AllReduce 17, 5 s before`."""
    named = [ranks_phrase(one.ranks)] if one.ranks else []
    named += [hosts_phrase(one.nodes)] if one.nodes else []
    where = f", on {' on '.join(named)}" if named else ""
    return clean(f"{one.what}{where}: {one.example}")


def skipped_phrase(rule: SkippedRule) -> str:
    """`network: not recorded: NIC counters, pings`, or the reason that the engine gave."""
    lacks = f"not recorded: {_data_phrase(rule.missing)}" if rule.missing else "it could not run"
    return clean(f"{rule.rule}: {rule.why or lacks}")


def skipped_phrases(rules: Sequence[SkippedRule]) -> list[str]:
    """One line for all rulebooks that lack evidence, with what would let them run, and one for
    each that could not go on for another reason."""
    lacking = _lacking(rules)
    if len(lacking) < 2:
        return failed_phrases(rules)
    names = ", ".join(sorted(rule.rule for rule in lacking))
    missing = [table for rule in lacking for table in rule.missing]
    others = [rule for rule in rules if rule not in lacking]
    return [clean(f"{names}: not recorded: {_data_phrase(missing)}"), *failed_phrases(others)]


def unseen_phrase(rules: Sequence[SkippedRule]) -> str | None:
    """One sentence on evidence that nobody recorded, and why that matters; None if all is there."""
    lacking = _lacking(rules)
    if not lacking:
        return None
    data = _data_phrase([table for rule in lacking for table in rule.missing], _MOST_NAMES)
    return f"{data}; faults that show up only there were not checked"


def failed_phrases(rules: Sequence[SkippedRule]) -> list[str]:
    """One line each, but one for all whose reason is the same failure."""
    alike: dict[tuple[str, str], list[str]] = {}
    for rule in rules:
        key = (rule.uncomputed, rule.why) if rule.uncomputed else ("", skipped_phrase(rule))
        alike.setdefault(key, []).append(rule.rule)
    return [
        clean(f"{', '.join(sorted(names))}: {why}") if uncomputed else why
        for (uncomputed, why), names in alike.items()
    ]


def without_lacking(rules: Sequence[SkippedRule]) -> list[SkippedRule]:
    """Those that had their evidence and could not go on for another reason."""
    lacking = _lacking(rules)
    return [rule for rule in rules if rule not in lacking]


def lacking_phrases(rules: Sequence[SkippedRule]) -> list[str]:
    """Each kind of evidence that rulebooks lacked, and who records it: one line a kind."""
    from oncall.evidence.schema import BY_NAME  # brings DuckDB, which words do without

    names = {table for rule in rules for each in rule.missing for table in each.split(" or ")}
    tables = [BY_NAME[name] for name in sorted(names) if name in BY_NAME]
    return [f"{table.data}: recorded by {_CITED.sub('', table.source)}" for table in tables]


def _lacking(rules: Sequence[SkippedRule]) -> list[SkippedRule]:
    return [rule for rule in rules if rule.missing and not rule.undecided]


def _data_phrase(missing: Iterable[str], most: int | None = None) -> str:
    """`GPU readings, NIC counters and 3 more`: tables by what they hold."""
    from oncall.evidence.schema import BY_NAME  # brings DuckDB, which words do without

    tables = dict.fromkeys(table for each in missing for table in each.split(" or "))
    data = sorted(
        {BY_NAME[name].data if name in BY_NAME else name for name in tables}, key=str.lower
    )
    return names_phrase(data, most or len(data))


def checked_phrase(diagnosis: Diagnosis) -> str:
    """The rulebooks that ran, those that the site wrote or changed marked as such."""
    of_site = diagnosis.site_rulebooks
    names = [f"{name} (site)" if name in of_site else name for name in diagnosis.checked]
    return clean(", ".join(names)) or "no rulebook could run"
