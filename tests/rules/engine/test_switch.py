"""A table by a code: a case takes the first row that it has, and that row alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from oncall.evidence.incident import Incident
from oncall.rules.authoring.outline import drawing
from oncall.rules.engine.check import Checker
from oncall.rules.engine.engine import run
from oncall.rules.language.load import apply_overrides, parse
from oncall.rules.language.rulebook import Rulebook, called, names_today

TABLE = """\
rulebook: codes
was: [xids, kernel]
format: 1
title: What hosts report
status: test
sources: ["NVIDIA's Xid catalogue"]
params:
  sure: {value: 90 %, why: the line says so}
case: [job, node]
facts:
  said: SELECT 'j' AS job, * FROM host_events ORDER BY line
weights:
  stated: {value: sure, because: "{{ said.code }} says so"}
start_when: any(said)
tree:
  switch: said.code
  confidence: stated
  next: "Look at {{ said | hosts }}: {{ said.text }}."
  rows:
    xid_79: {verdict: LOST, say: "{{ said | count }} GPU lost: {{ said.text }}."}
    "xid_31, xid_13":
      {verdict: PROGRAM, say: "{{ said.text }}.", blame: none, next: "Read the program."}
    quiet: {verdict: none, say: "Nothing."}
verdicts:
  LOST: {title: GPU lost, class: host, severity: critical, was: [FELL]}
  PROGRAM: {title: The program, class: application, severity: warning}
"""


@pytest.fixture
def book() -> Callable[..., Rulebook]:
    def make(text: str = TABLE) -> Rulebook:
        rulebook, problems = parse(text, "codes.yaml")
        assert rulebook is not None, [str(problem) for problem in problems]
        return rulebook

    return make


@pytest.fixture
def hosts() -> Iterator[Incident]:
    with Incident.empty() as incident:
        said = [("a", "xid_31"), ("a", "xid_79"), ("b", "xid_13"), ("c", "quiet"), ("d", "odd")]
        columns = {
            "node": [node for node, _ in said],
            "code": [code for _, code in said],
            "text": [f"the text of {code}" for _, code in said],
            "line": list(range(1, 6)),
        }
        incident.append("host_events", columns | {"source": "kernel", "path": "dmesg"})
        yield incident


def test_a_case_takes_the_first_row_of_the_table_that_it_has(
    hosts: Incident, book: Callable[..., Rulebook]
) -> None:
    found = {one.case["node"]: one for one in run(hosts, [book()]).findings}
    assert {node: one.verdict for node, one in found.items()} == {"a": "LOST", "b": "PROGRAM"}
    lost = found["a"]
    assert [step.say for step in lost.story] == ["1 GPU lost: the text of xid_79."]
    assert lost.story[0].rows == 1
    assert lost.next == ("Look at a: the text of xid_79.",)
    assert [reason.why for reason in lost.reasons] == ["xid_79 says so"]
    assert [blame.where["node"] for blame in lost.blame] == ["a"]
    assert (found["b"].blame, found["b"].next) == ((), ("Read the program.",))


def test_what_is_left_quotes_no_fact_that_it_may_have_no_rows_of() -> None:
    text = TABLE.replace("start_when:", "  more: FROM said WHERE code <> 'odd'\nstart_when:", 1)
    text = text.replace("switch: said", "switch: more")
    other = '  otherwise: {verdict: PROGRAM, say: "{{ more.text }}."}\n'
    _, problems = parse(text.replace("verdicts:\n", other + "verdicts:\n"), "codes.yaml")
    assert "may have no rows here to quote" in str(problems)


def test_former_names_mean_the_rulebook_that_took_their_place(
    hosts: Incident, book: Callable[..., Rulebook]
) -> None:
    codes = book()
    assert called("kernel", {"codes": codes}) is codes
    (changed,) = apply_overrides([codes], {"xids.sure": "50 %"})
    lost = next(one for one in run(hosts, [changed]).findings if one.verdict == "LOST")
    assert lost.confidence == 0.5
    names = ("codes.FELL", "xids.LOST", "xids.FELL", "kernel.LOST", "kernel.FELL")
    assert lost.former_names == names
    kept = TABLE.replace("codes", "xids", 1).replace("[xids, kernel]", "older")
    today = names_today([codes, book(kept)])
    assert (today["kernel.FELL"], today["older.LOST"]) == ("codes.LOST", "xids.LOST")
    assert "xids.LOST" not in today  # in force, it means itself


def test_a_table_is_drawn_with_its_codes(book: Callable[..., Rulebook]) -> None:
    shown = "\n".join(drawing(book()))
    assert "The first of these that said.code has:" in shown
    assert "├─ xid_31, xid_13 ▶ PROGRAM" in shown


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("said.code\n", "said.cod\n", "no column `cod` (did you mean `code`?)"),
        ("said.code\n", "said.line\n", "a code is text"),
        ("switch: said.", "switch: asked.", "unknown fact `asked`"),
        ("xid_31, xid_13", "xid_31, xid_79", "the row `xid_79` is already for `xid_79`"),
        ("blame: none", "blame: nobody", "unknown fact `nobody`"),
        ("  confidence: stated\n", "  confidence: guessed\n", "unknown weight `guessed`"),
        ("severity: warning}", "severity: warning, was: FELL}", "already what `LOST` was called"),
        ("was: [FELL]", "was: [PROGRAM]", "`PROGRAM` is a verdict still"),
        ("Look at {{ said | hosts }}", "Look at {{ said.nodes }}", "no column `nodes`"),
    ],
)
def test_what_is_wrong_in_a_table_is_named(old: str, new: str, message: str) -> None:
    assert old in TABLE
    with Checker() as checker:
        problems = checker.check(TABLE.replace(old, new), "codes.yaml")
    assert any(message in problem.message for problem in problems), problems


NESTED = """\
  switch: said.text
  say: "{{ said.code }}: {{ said.text }}."
  confidence: stated
  rows:
    log:
      switch: said.code
      rows:
        b: {verdict: PROGRAM}
        a: {verdict: LOST}
  otherwise: {verdict: PROGRAM}
"""


def test_a_table_within_a_table_sees_the_rows_of_the_outer_one_alone(
    book: Callable[..., Rulebook],
) -> None:
    tree = TABLE[TABLE.index("  switch:") : TABLE.index("verdicts:")]
    with Incident.empty() as incident:
        columns = {
            "node": ["n", "n", "m"],
            "text": ["log", "host", "host"],
            "code": ["a", "b", "b"],
            "line": [1, 2, 3],
        }
        incident.append("host_events", columns | {"source": "kernel", "path": "dmesg"})
        found = {
            one.case["node"]: one
            for one in run(incident, [book(TABLE.replace(tree, NESTED))]).findings
        }
    assert (found["n"].verdict, found["n"].story[-1].say) == ("LOST", "a: log.")
    other = found["m"]
    assert (other.verdict, other.story[-1].say) == ("PROGRAM", "b: host.")
    assert [blame.where["node"] for blame in other.blame] == ["m"]
    assert [reason.value for reason in other.reasons] == [0.9]
