"""The site's rulebooks: where they lie, how they rank, and that a broken one costs nothing."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from oncall.core.errors import RulebookError, UsageError
from oncall.evidence.incident import Incident
from oncall.rules.authoring.testing import run_tests
from oncall.rules.engine.check import Checker
from oncall.rules.engine.engine import run
from oncall.rules.language.load import parse, shipped_folder
from oncall.rules.language.rulebook import Rulebook
from oncall.rules.site import Rulebooks, read_rulebooks
from oncall.rules.site_folder import site_folder

HANG = (shipped_folder() / "hang.yaml").read_text()


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "rules"
    folder.mkdir()
    return folder


def named(rulebooks: Rulebooks, name: str) -> Rulebook:
    return {book.name: book for book in rulebooks.in_force}[name]


def write(folder: Path, text: str, name: str = "hang.yaml") -> Path:
    (folder / name).write_text(text)
    return folder / name


# ----------------------------------------------------------------------- where


def test_the_folder_is_beside_the_users_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert site_folder() == (tmp_path / "oncall" / "rules", [])


def test_the_configuration_names_another_and_the_users_own_wins(tmp_path: Path) -> None:
    machine, user = tmp_path / "machine.toml", tmp_path / "user.toml"
    machine.write_text('[rules]\nfolder = "/srv/oncall/rules"\n')
    assert site_folder([machine, user])[0] == Path("/srv/oncall/rules")
    user.write_text('[rules]\nfolder = "ours"\n')
    assert site_folder([machine, user])[0] == tmp_path / "ours"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[rules\n", "not TOML"),
        ("rules = 3\n", r"\[rules\] must be a table"),
        ('[rules]\nfoldr = "x"\n', r"unknown option `foldr` in \[rules\] \(did you mean folder"),
        ("[rules]\nfolder = 3\n", "folder is text"),
    ],
)
def test_a_wrong_configuration_is_reported_and_the_default_folder_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    file = tmp_path / "config.toml"
    file.write_text(text)
    folder, problems = site_folder([file])
    assert folder == tmp_path / "oncall" / "rules"
    (problem,) = problems
    with pytest.raises(type(problem), match=message):
        raise problem
    assert str(file) in str(problem)


# ------------------------------------------------------------------ precedence


def test_shipped_then_the_sites_then_those_of_the_command_line(tmp_path: Path, site: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    write(site, HANG.replace("{of: halted.hang_after}", "{value: 7 min, why: ours}"))
    hang = named(read_rulebooks(site), "hang")
    assert str(hang.params["hang_after"]) == "7 min"
    assert hang.site_file == str(site / "hang.yaml") and hang.written_here
    assert hang.instead_of is not None and str(hang.instead_of.params["hang_after"]) == "5 min"

    write(mine, "rulebook: hang\noverride: {params: {hang_after: 9 min}}")
    changed = named(read_rulebooks(site, [mine]), "hang")
    assert str(changed.params["hang_after"]) == "9 min" and changed.site_file
    assert str(named(read_rulebooks(None, [mine]), "hang").params["hang_after"]) == "9 min"
    assert str(named(read_rulebooks(None), "hang").params["hang_after"]) == "5 min"


# ---------------------------------------------------------------------- broken


BROKEN = {
    "not YAML": ("rulebook: hang\nfacts: [", "not YAML"),
    "unknown key": (HANG.replace("facts:", "fatcs:", 1), "unknown key `fatcs`"),
    "unknown column": (HANG.replace("SELECT", "SELECT nonsense,", 1), "unknown column `nonsense`"),
    "reads files": (
        HANG.replace("FROM ", "FROM read_text('/etc/passwd'), ", 1),
        "read_text",
    ),
    "writes": (HANG.replace("SELECT", "DROP TABLE ops; SELECT", 1), "PIVOT"),
    "newer": (HANG.replace("format: 1", "format: 99"), "upgrade oncall"),
    "empty": ("", "not a rulebook"),
    "unknown parameter": ("rulebook: hang\noverride: {params: {x: 3}}", "no parameter `x`"),
    "wrong unit": ("rulebook: hang\noverride: {params: {hang_after: 3 GB}}", "is a duration"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_reported_and_the_shipped_rulebook_stays(site: Path, name: str) -> None:
    text, message = BROKEN[name]
    file = write(site, text)
    good = write(site, HANG.replace("rulebook: hang", "rulebook: ours"), "ours.yaml")
    rulebooks = read_rulebooks(site)
    (one,) = rulebooks.set_aside
    assert (one.name, one.path, one.instead) == ("hang", str(file), True)
    assert any(message in problem.message for problem in one.problems), one.problems
    assert Path(named(rulebooks, "hang").path).is_relative_to(shipped_folder())
    assert not named(rulebooks, "hang").site_file
    assert named(rulebooks, "ours").path == str(good)
    (skipped,) = rulebooks.skipped
    assert skipped.set_aside and not skipped.failed and f"{file}:" in skipped.why


@pytest.mark.parametrize("kind", ["bytes", "pipe", "dangling", "folder"])
def test_what_cannot_be_read_is_reported(site: Path, kind: str) -> None:
    file = site / "hang.yaml"
    match kind:
        case "bytes":
            file.write_bytes(b"\xff\xfe")
        case "pipe":
            os.mkfifo(file)
        case "dangling":
            file.symlink_to(site / "gone.yaml")
        case "folder":
            file.mkdir()
    (one,) = read_rulebooks(site).set_aside
    assert one.name == "hang" and "cannot be read" in one.description


def test_a_folder_that_is_none_is_reported(tmp_path: Path) -> None:
    loop = tmp_path / "rules"
    loop.symlink_to(loop)
    (one,) = read_rulebooks(loop).set_aside
    assert str(loop) in one.description
    assert named(read_rulebooks(loop), "hang")


def test_two_files_of_one_rulebook_leave_the_first(site: Path) -> None:
    write(site, HANG.replace("{of: halted.hang_after}", "{value: 7 min, why: ours}"), "a.yaml")
    write(site, HANG, "b.yaml")
    rulebooks = read_rulebooks(site)
    assert [one.path for one in rulebooks.set_aside] == [str(site / "b.yaml")]
    assert str(named(rulebooks, "hang").params["hang_after"]) == "7 min"


def test_what_the_command_line_gives_must_be_right(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such"):
        read_rulebooks(None, [tmp_path / "nowhere"])
    with pytest.raises(UsageError, match="no rulebook or relation has the parameter"):
        read_rulebooks(None, [], {"hang.nonsense": "3 s"})


# ------------------------------------------------------- broken only when it runs


# Binds, and cannot be computed on evidence of any size.
ENDLESS = "SELECT job, comm, count(*) AS n FROM ops, range(1000000000000) GROUP BY ALL"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("FROM ops WHERE", "FROM opps WHERE"),
        ("max(seq) AS seq", "max(sequence) AS seq"),
        ("max(seq) AS seq", "max(now()) AS seq"),
        ("newest: SELECT", "newest: WITH x AS (DELETE FROM ops RETURNING 1) SELECT"),
        ("say: All entered.", "say: " + "All entered. " * 12),
    ],
)  # fmt: skip
def test_the_command_line_is_refused_what_the_check_refuses(
    tmp_path: Path, tiny: str, old: str, new: str
) -> None:
    assert old in tiny
    file = tmp_path / "tiny.yaml"
    file.write_text(tiny.replace(old, new))
    with Checker() as checker:
        reported = checker.check_file(file)
    assert reported
    with pytest.raises(RulebookError) as refused:
        read_rulebooks(None, [tmp_path])
    assert list(refused.value.problems) == reported
    (tmp_path / "tiny.test.yaml").write_text("rulebook: tiny\ntests: [{name: x, expect: []}]\n")
    with pytest.raises(RulebookError) as refused:
        list(run_tests(tmp_path / "tiny.test.yaml"))
    assert list(refused.value.problems) == reported


def test_a_rulebook_that_breaks_on_the_evidence_yields_to_the_shipped_one(
    tiny: str, hang: Incident
) -> None:
    shipped, _ = parse(tiny, "shipped/tiny.yaml")
    broken, _ = parse(
        tiny.replace("start_when: any(stuck)", f"  late: {ENDLESS}\nstart_when: any(late)"),
        "site/tiny.yaml",
    )
    assert shipped is not None and broken is not None
    mine = replace(broken, site_file=broken.path, instead_of=shipped)
    outcome = run(hang, [mine], fact_time_limit_s=0.2)
    assert [finding.verdict for finding in outcome.findings] == ["H1"]
    (skipped,) = outcome.skipped
    assert skipped.set_aside and skipped.rule == "tiny"
    assert "site/tiny.yaml" in skipped.why and "the shipped one ran instead" in skipped.why

    # A value from the command line is the shipped one's too.
    impatient = mine.with_params({"hang_after": shipped.params["hang_after"]}, "--param")
    assert impatient.instead_of is not None and impatient.instead_of.overridden_by == ("--param",)

    alone = replace(mine, instead_of=None)
    outcome = run(hang, [alone], fact_time_limit_s=0.2)
    assert not outcome.findings and [one.set_aside for one in outcome.skipped] == [True]
