"""Reading rulebooks: every problem at once, each at its place; sites override values."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncall.core.errors import RulebookError, UsageError
from oncall.rules.language.load import apply_overrides, load_rulebooks, parse, shipped_folder
from oncall.rules.language.positions import Fault, Source


def messages(text: str) -> list[str]:
    rulebook, problems = parse(text, "x.yaml")
    assert rulebook is None
    assert problems, "a text without a rulebook must say why"
    return [f"{one.line}:{one.column} {one.message}" for one in problems]


def test_a_verdict_says_what_kind_of_statement_it_is(tiny: str) -> None:
    symptom = tiny.replace("severity: critical", "severity: critical, kind: symptom")
    rulebook, problems = parse(
        symptom.replace("kind: symptom", "kind: symptom, explains: [all], on: gpu"), "t"
    )
    assert rulebook is not None, problems
    claim = rulebook.book.verdicts["H1"].claim
    assert (claim.kind, claim.on, claim.declared) == ("symptom", "gpu", True)
    assert claim.effects == {"stop", "compute", "transfer"}


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("kind: effect", "an effect says what the job lost"),
        ("kind: symptom, effect: stop", "only `kind: effect` has an `effect`"),
        ("kind: effect, effect: stop, explains: [stop]", "needs `kind: symptom` or `kind: event`"),
        ("explains: [stop]", "needs `kind: symptom` or `kind: event`"),
        ("kind: cause", "`kind` must be effect, symptom or event"),
    ],
)
def test_kinds_that_contradict_themselves_are_faults(tiny: str, written: str, message: str) -> None:
    said = messages(tiny.replace("severity: critical", f"severity: critical, {written}"))
    assert any(message in line for line in said), said


def test_everything_wrong_is_said_at_once(tiny: str) -> None:
    text = (
        tiny.replace("status: test", "status: stabel")
        .replace("5 min", "5 mins")
        .replace("start_when", "start_wen")
        .replace("test: none(absent)", "test: none(abscent)")
        .replace("| ranks }} stopped", "| rnks }} stopped")
        .replace("verdict: H1", "verdict: H2")
    )
    found = messages(text)
    wanted = [
        ("4:9", "must be experimental, test, stable or deprecated (did you mean `stable`?)"),
        ("7:23", "unknown unit `mins`"),
        ("18:1", "unknown key `start_wen` (did you mean `start_when`?)"),
        ("21:14", "unknown fact `abscent` (did you mean `absent`?)"),
        ("23:14", "`H2` is not declared"),
        ("24:23", "unknown filter `rnks` (did you mean `ranks`?)"),
        ("31:3", "no leaf of the tree has the verdict `H1`"),
    ]
    for place, message in wanted:
        assert any(one.startswith(f"{place} ") and message in one for one in found), message
    assert any("`start_when` is missing" in one for one in found)


def test_the_caret_stands_under_the_fault(tiny: str) -> None:
    _, problems = parse(tiny.replace("blame: absent", "blame: abscent"), "tiny.yaml")
    head, line, caret = str(problems[0]).split("\n")
    assert head.startswith("tiny.yaml:25:12: error: unknown fact `abscent`")
    start = caret.index("^")
    assert line[start : start + caret.count("^")] == "abscent"


@pytest.mark.parametrize(
    ("old", "new", "place", "message"),
    [
        ("case: [job", "case:\n\t[job", "9:1", "a tab"),
        ("status: test", "status: test\nstatus: stable", "5:1", "`status` is given twice"),
        ("format: 1", "format: 2", "2:9", "newer than this oncall reads"),
        ("status: test", "status: !x test", "4:9", "a tag"),
        ("[job, comm]", "[job, comm", "9:6", "begins on line 8"),
        (
            "  if_yes:\n    verdict: none\n    say: All entered.",
            "  if_yes: *x",
            "27:11",
            "not YAML",
        ),
        ("  stuck: |", "  ops: |", "10:3", "already an evidence table"),
        ("  stuck: |", "  started: |", "10:3", "already the cases that started"),
        ("test: none(absent)", "test: count(absent) > 3", "21:9", "any(fact) or none(fact)"),
        (", why: longer than a checkpoint", "", "7:3", "`why` is missing"),
        ("{value: 5 min, ", "{value: 5 min, unit: s, ", "7:30", "unknown key `unit`"),
        ("longer than a", "longer, than a", "7:43", "text with a comma inside { } must be in"),
        ('["CCL-D 4.2.1"]', "[]", "5:10", "`sources` must not be empty"),
        ("{{ absent.last_seq }}", "{{ hang_after.x }}", "24:46", "has no columns"),
        ("{{ absent.last_seq }}", "{{ absent }}", "24:46", "is a fact: name a column"),
        ("say: All entered.", "say: {{ absent | ranks }} left", "29:31", "must be in quotes"),
        ("say: All entered.", "say: {{ comm }}", "29:11", "must be in quotes"),
        ("say: All entered.", "say: All but {{ absent.rank }}", "29:21", "may have no rows here"),
        ("operation {{ newest.seq", "operation {{ absent.rank", "20:44", "may have no rows"),
        ("title: Which rank stays behind", "title: 3", "3:8", "must be text"),
    ],
)
def test_faults_and_places(tiny: str, old: str, new: str, place: str, message: str) -> None:
    assert old in tiny
    found = messages(tiny.replace(old, new))
    assert any(one.startswith(f"{place} ") and message in one for one in found), found


@pytest.mark.parametrize(
    "text",
    ["", "[]", "3", "a: [", "{" * 200_000, "- " * 100_000, "\x00", "%", "tree: &t {if_yes: *t}"],
    ids=["empty", "list", "number", "open", "braces", "dashes", "nul", "directive", "circle"],
)
def test_junk_is_refused_in_one_line(text: str) -> None:
    for message in messages(text):
        assert "\n" not in message


def test_a_doubling_of_aliases_is_refused_not_expanded(tiny: str) -> None:
    bomb = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 60))
    assert any("alias" in one for one in messages(tiny + bomb))


def test_a_question_asked_before_leaves_a_dead_branch(tiny: str) -> None:
    again = "if_yes: {ask: Again, test: any(absent), if_yes: {verdict: none, say: a}, "
    again += "if_no: {verdict: none, say: b}}"
    text = tiny.replace("if_yes:\n    verdict: none\n    say: All entered.", again)
    assert any("already tested `absent`" in one for one in messages(text))


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=300))
def test_any_text_gives_a_rulebook_or_problems_inside_it(text: str) -> None:
    rulebook, problems = parse(text, "x.yaml")
    assert (rulebook is None) == bool(problems)
    for problem in problems:
        assert 1 <= problem.line <= max(1, len(text.splitlines()))
        assert problem.column >= 1


@given(
    st.lists(st.text(alphabet="abc(),=' ", min_size=1, max_size=20), min_size=1, max_size=4),
    st.sampled_from(["|", ">", "plain", '"']),
    st.data(),
)
def test_an_offset_in_a_value_is_found_in_every_style(
    words: list[str], style: str, data: st.DataObject
) -> None:
    lines = ["x" + word.replace("'", "q").strip() + "y" for word in words]
    if style in ("|", ">"):
        text = f"a: 1\nsql: {style}\n" + "".join(f"    {line}\n" for line in lines)
    elif style == '"':
        text = 'a: 1\nsql: "' + "\n  ".join(lines) + '"\n'
    else:
        text = "a: 1\nsql: " + "\n  ".join(lines) + "\n"
    source = Source("x.yaml", text)
    value = source.root.value[1][1].value
    places = [i for i, character in enumerate(value) if not character.isspace()]
    offset = data.draw(st.sampled_from(places))
    problem = source.place(Fault(("sql",), "here", offset=offset))
    assert text.splitlines()[problem.line - 1][problem.column - 1] == value[offset]


# ----------------------------------------------------------------------- sites


def write(folder: Path, **files: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)
    return folder


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("rulebook: tny\noverride: {enabled: false}", "no rulebook `tny` (did you mean `tiny`?)"),
        ("rulebook: tiny\noverride: {params: {hang_aftr: 1 s}}", "did you mean `hang_after`?"),
        ("rulebook: tiny\noverride: {params: {hang_after: 1 GB}}", "is a duration"),
        ("rulebook: tiny\noverride: {params: {hang_after: 300}}", "is a duration"),
        ("rulebook: tiny\noverride: {facts: {stuck: SELECT 1}}", "unknown key `facts`"),
    ],
)
def test_a_wrong_override_says_so(tmp_path: Path, tiny: str, change: str, message: str) -> None:
    shipped, site = write(tmp_path / "a", tiny=tiny), write(tmp_path / "b", change=change)
    with pytest.raises(RulebookError) as caught:
        load_rulebooks([shipped, site])
    assert message in str(caught.value) and "change.yaml" in str(caught.value)


def test_problems_of_all_files_come_together(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", one="a: [", two="b")
    (folder / "three.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(RulebookError) as caught:
        load_rulebooks([folder])
    assert {Path(problem.path).stem for problem in caught.value.problems} == {"one", "two", "three"}


@pytest.mark.parametrize(
    ("target", "value", "message"),
    [
        ("tiny.hang_aftr", "30 s", "did you mean `tiny.hang_after`"),
        ("hang_after", "30 s", "did you mean `tiny.hang_after`"),
        ("tiny.hang_after", "30 GB", "is a duration"),
        ("tiny.hang_after", "30 parsecs", "unknown unit"),
    ],
)
def test_a_wrong_param_option(tiny: str, target: str, value: str, message: str) -> None:
    rulebook, _ = parse(tiny, "tiny.yaml")
    assert rulebook is not None
    with pytest.raises(UsageError, match=message):
        apply_overrides([rulebook], {target: value})


def test_the_shipped_rulebooks_load() -> None:
    assert "hang" in {book.name for book in load_rulebooks([shipped_folder()])}
