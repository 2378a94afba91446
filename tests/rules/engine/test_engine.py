"""The engine: facts once for all cases, lazily; missing evidence and failures stay local."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from oncall.evidence.incident import Incident
from oncall.evidence.registry import all_relations
from oncall.rules.engine.engine import run
from oncall.rules.engine.evaluate import Evaluation
from oncall.rules.language.rulebook import Rulebook

Make = Callable[..., Rulebook]
NS = 1_000_000_000


def test_params_are_bound_and_shown(hang: Incident, book: Make) -> None:
    seen: dict[str, dict[str, str]] = {}
    run(hang, [book()], observe=lambda one: seen.update(stuck=one.params("stuck")))
    assert seen == {"stuck": {"hang_after": "5 min"}}
    assert run(hang, [book()], {"tiny.hang_after": "10 min"}).findings == ()


@pytest.mark.parametrize("rank", ["'nan'::DOUBLE", "'inf'::DOUBLE", "1.5", "'three'", "[3]"])
def test_a_rank_that_is_no_rank_is_not_blamed(hang: Incident, book: Make, rank: str) -> None:
    odd = book(
        (
            "SELECT o.job, o.comm, o.rank,",
            f"SELECT o.job, o.comm, {rank} AS rank, {rank} AS at_ns,",
        ),
        ("GROUP BY ALL HAVING", "GROUP BY o.job, o.comm, o.rank HAVING"),
        ("{{ absent | ranks }} stopped", "{{ absent.rank }} stopped"),
        ("stack of {{ absent | ranks }}", "stack"),
    )
    (finding,) = run(hang, [odd]).findings
    assert [(blame.kind, "rank" in blame.where) for blame in finding.blame] == [("group", False)]
    assert finding.at_ns == (1 if rank == "1.5" else NS)


def test_more_cases_than_anyone_reads_are_a_failure_not_a_wait(hang: Incident, book: Make) -> None:
    fine = book(
        (
            "  stuck: |\n",
            "  stuck: |\n    SELECT * REPLACE (range AS comm) FROM range(100_001), (\n",
        ),
        ("> $hang_after\n", "> $hang_after)\n"),
    )
    outcome = run(hang, [fine])
    assert outcome.findings == ()
    assert "it starts 100,001 cases" in outcome.skipped[0].why


def test_all_cases_share_one_query_a_fact(book: Make) -> None:
    with Incident.empty() as incident:
        for comm in range(40):
            incident.append(
                "ops",
                {
                    "job": "j",
                    "comm": comm,
                    "seq": [8, 8 - comm % 2],
                    "rank": [0, 1],
                    "started_ns": 0,
                    "observed_ns": 400 * NS,
                },
            )
        statements: list[str] = []

        def count(evaluation: Evaluation) -> None:
            statements.extend(evaluation.computed)

        outcome = run(incident, [book()], observe=count)
    assert sorted(statements) == ["absent", "newest", "stuck"]
    assert len(outcome.findings) == 20 and len(outcome.traces) == 40


def test_no_evidence_is_skipped_not_healthy(book: Make) -> None:
    with Incident.empty() as incident:
        (skipped,) = run(incident, [book()]).skipped
    assert (skipped.rule, skipped.missing) == ("tiny", ("ops",))


UNSEEN = (
    ("start_when", "  paused: SELECT job, comm, node FROM ops, nics\nstart_when"),
    ("test: none(absent)", "test: none(paused)"),
)


def test_a_branch_without_evidence_is_skipped(hang: Incident, book: Make) -> None:
    outcome = run(hang, [book(*UNSEEN, ("    blame: absent\n", "    blame: paused\n"))])
    assert outcome.findings == ()
    (skipped,) = outcome.skipped
    assert (skipped.rule, skipped.missing) == ("tiny.paused", ("nics",))
    assert outcome.traces[0].verdict is None


@contextmanager
def failing(name: str) -> Iterator[None]:
    """Within, a relation cannot be computed."""

    def compute(*_: object, **__: object) -> dict[str, object]:
        raise OverflowError("a clock in 2126")

    whole = all_relations()[name]
    all_relations()[name] = replace(whole, sql=None, compute=compute, view=False)
    try:
        yield
    finally:
        all_relations()[name] = whole


OF_A_RELATION = (
    ("start_when", "  paused: SELECT job, comm, rank FROM heads\nstart_when"),
    ("test: none(absent)", "test: none(paused)"),
)


def test_a_rulebook_without_its_relation_is_skipped_and_the_others_run(
    hang: Incident, book: Make
) -> None:
    started = book(
        (
            "FROM ops WHERE ended_ns IS NULL",
            "FROM ops JOIN heads USING (job, comm, rank) WHERE ended_ns IS NULL",
        )
    )
    with failing("heads"):
        outcome = run(hang, [started, book(("rulebook: tiny", "rulebook: other"))])
    assert [finding.rulebook for finding in outcome.findings] == ["other"]
    (skipped,) = outcome.skipped
    assert (skipped.rule, skipped.uncomputed, skipped.failed) == ("tiny", "heads", True)
    assert skipped.why == "could not be computed: heads (OverflowError: a clock in 2126)"


def test_a_branch_without_its_relation_is_undecided(hang: Incident, book: Make) -> None:
    with failing("heads"):
        outcome = run(hang, [book(*OF_A_RELATION)])
    (skipped,) = outcome.skipped
    assert (skipped.rule, skipped.uncomputed) == ("tiny.paused", "heads")
    assert skipped.undecided and skipped.why.endswith("; 1 case(s) end there")


def test_if_unknown_goes_on_without_a_relation_and_says_so(hang: Incident, book: Make) -> None:
    unknown = "  if_unknown: {verdict: H1, say: Nobody knows., blame: absent}\n"
    unknown += "  if_yes:\n    verdict: none"
    with failing("heads"):
        outcome = run(hang, [book(*OF_A_RELATION, ("  if_yes:\n    verdict: none", unknown))])
    assert [finding.verdict for finding in outcome.findings] == ["H1"]
    assert [skipped.uncomputed for skipped in outcome.skipped] == ["heads"]


def test_a_sites_rulebook_is_not_set_aside_for_what_the_evidence_lacks(
    hang: Incident, book: Make
) -> None:
    of_site = replace(book(*OF_A_RELATION), site_file="tiny.yaml")
    assert of_site.written_here
    with failing("heads"):
        outcome = run(hang, [replace(of_site, instead_of=book())])
    assert outcome.findings == ()
    assert [(one.uncomputed, one.set_aside) for one in outcome.skipped] == [("heads", False)]


def test_ruled_out_with_the_sentence_that_turned_away(hang: Incident, book: Make) -> None:
    more = book(
        (
            "  if_no:\n    verdict: H1",
            "  if_no:\n    ask: Is it odd?\n    test: none(stuck)\n"
            "    say: '{{ absent | ranks }} is missing.'\n"
            "    if_yes: {verdict: H3, say: odd}\n    if_no:\n     verdict: H1",
        ),
        ('    say: "{{ absent', '     say: "{{ absent'),
        ("    blame: absent", "     blame: absent"),
        ("    next: Take", "     next: Take"),
        ("    verdict: none", "    verdict: H2"),
        (
            "verdicts:",
            "verdicts:\n  H2: {title: b, class: hang, severity: info}\n"
            "  H3: {title: c, class: hang, severity: info}",
        ),
    )
    (finding,) = run(hang, [more]).findings
    assert [(one.verdict, one.because) for one in finding.ruled_out] == [
        ("H2", "Rank 3 is missing."),
        ("H3", "Is it odd? No."),
    ]
    assert finding.story[0].say == "Rank 3 is missing."


def test_confidence_is_the_product_of_its_reasons(hang: Incident, book: Make) -> None:
    sure = book(
        (
            "start_when",
            "  sure: |\n    SELECT job, comm, 0.5 AS value, 'half seen' AS why,\n"
            "      'coverage' AS name FROM absent\n"
            "    UNION ALL SELECT job, comm, 0.8, 'a tie', 'margin' FROM absent\nstart_when",
        ),
        ("blame: absent", "blame: absent\n    confidence: sure"),
    )
    (finding,) = run(hang, [sure]).findings
    assert finding.confidence == pytest.approx(0.4)
    assert {(one.name, one.value) for one in finding.reasons} == {
        ("coverage", 0.5),
        ("margin", 0.8),
    }


def blamed(hang: Incident, book: Make, columns: str) -> list[tuple[str, dict[str, object]]]:
    change = ("max(o.seq) AS last_seq", f"max(o.seq) AS last_seq, {columns}")
    (finding,) = run(hang, [book(change)]).findings
    return [(one.kind, dict(one.where)) for one in finding.blame]


def test_a_disabled_rulebook_says_who_disabled_it(hang: Incident, book: Make) -> None:
    off = replace(book().with_params({}, "site/tiny.yaml"), enabled=False)
    (skipped,) = run(hang, [off]).skipped
    assert skipped.why == "disabled by site/tiny.yaml"


def test_null_case_columns_are_a_case(book: Make) -> None:
    with Incident.empty() as incident:
        incident.append(
            "ops", {"seq": [8, 7], "rank": [0, 1], "started_ns": 0, "observed_ns": 400 * NS}
        )
        outcome = run(incident, [book()])
    assert [trace.case for trace in outcome.traces] == [(None, None)]


def test_the_first_row_is_the_one_that_order_by_puts_first(book: Make) -> None:
    with Incident.empty() as incident:
        incident.append(
            "ops",
            {
                "job": "j",
                "comm": 1,
                "rank": list(range(5000)),
                "seq": [9] + [8] * 4999,
                "started_ns": 0,
                "observed_ns": 400 * NS,
            },
        )
        ordered = book(
            ("GROUP BY ALL HAVING max(o.seq) <", "GROUP BY ALL HAVING max(o.seq) <"),
            ("any_value(f.seq)\n", "any_value(f.seq) ORDER BY rank DESC\n"),
            ("say: \"{{ absent | ranks }} stopped", "say: \"{{ absent.rank }} stopped"),
        )  # fmt: skip
        (finding,) = run(incident, [ordered]).findings
    assert finding.story[-1].say.startswith("4999 stopped")
    assert len(finding.blame) == 1000  # said to be cut: counts stay exact
    assert finding.story[-1].rows == 4999


@pytest.mark.parametrize(
    "columns",
    [
        "'x' AS value, 'y' AS why",
        "'nan'::DOUBLE AS value, [1] AS why",
        "NULL AS value, NULL AS why",
        "0.25 AS value, 'a decimal' AS why, ['a'] AS kind, [1, 2] AS node",
    ],
)
def test_an_unchecked_rulebook_still_tells_what_it_can(
    hang: Incident, book: Make, columns: str
) -> None:
    silly = book(
        ("max(o.seq) AS last_seq", f"max(o.seq) AS last_seq, {columns}"),
        ("blame: absent", "blame: absent\n    confidence: absent\n    explains: absent"),
        (
            "stopped at {{ absent.last_seq }}",
            "{{ absent.why | duration }} {{ absent.why | ranks }}",
        ),
    )
    (finding,) = run(hang, [silly]).findings
    assert 0 < finding.confidence < 1
    assert finding.blame[0].where["rank"] == 3


def test_a_case_of_lists_fails_plainly(hang: Incident, book: Make) -> None:
    lists = book(("SELECT job, comm, seq, rank,", "SELECT job, [comm] AS comm, seq, rank,"))
    (skipped,) = run(hang, [lists]).skipped
    assert "a column of the case is a list" in skipped.why
