"""`oncall rules`: what each command prints and returns."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from typer.testing import CliRunner, Result

from oncall.cli.commands import app
from oncall.rules.language.load import shipped_folder
from oncall.rules.language.schema import rulebook_schema

# Both are the same parameter of a relation.
CHANGED = "hang:\n  $hang_after: 5 min -> 2 min\nwaits:\n  $stuck_after: 5 min -> 2 min\n"


def listed(*words: str) -> list[list[str]]:
    """The lines of `oncall rules list`, by word."""
    return [line.split() for line in oncall("list", *words).stdout.splitlines()]


def oncall(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["rules", *map(str, words)])


def test_new_check_test_and_show(tmp_path: Path) -> None:
    written = oncall("new", "heat", "-o", tmp_path)
    assert written.stdout.split() == [
        str(tmp_path / "heat.yaml"),
        str(tmp_path / "heat.test.yaml"),
    ]
    checked = oncall("check", tmp_path)
    assert (checked.exit_code, checked.stdout) == (0, "1 rulebook checked, no errors\n")
    tested = oncall("test", tmp_path / "heat.yaml")
    assert tested.exit_code == 0 and tested.stdout.endswith("3 tests, 0 failed\n")
    drawn = oncall("show", "heat", "--rules", tmp_path).stdout
    assert "├─ yes ▶ HOT GPU slowed by heat (blames too_hot)" in drawn
    assert max(map(len, drawn.splitlines())) <= 80


def test_new_refuses_a_bad_name_and_what_exists(tmp_path: Path) -> None:
    assert oncall("new", "Hot GPU", "-o", tmp_path).exit_code == 2
    oncall("new", "heat", "-o", tmp_path)
    again = oncall("new", "heat", "-o", tmp_path)
    assert again.exit_code == 2 and "exists already" in again.stderr


def test_new_from_a_shipped_rulebook_passes_its_check(tmp_path: Path) -> None:
    assert oncall("new", "ours", "--from", "hang", "-o", tmp_path).exit_code == 0
    assert oncall("check", tmp_path).exit_code == 0
    refused = oncall("new", "more", "--from", "hagn", "-o", tmp_path)
    assert refused.exit_code == 2 and "did you mean `hang`" in refused.stderr


def test_another_rulebook_has_no_former_names_and_a_site_that_has_one_is_named(
    tmp_path: Path,
) -> None:
    oncall("new", "ours", "--from", "slow", "-o", tmp_path)
    oncall("new", "rounds", "--from", "slow", "-o", tmp_path)
    own = tmp_path / "rounds.yaml"
    hidden = f"`rounds` is the rulebook in {own}, no former name of `slow`, which runs beside it\n"
    checked = oncall("check", tmp_path)
    assert (checked.exit_code, checked.stdout) == (0, f"{hidden}2 rulebooks checked, no errors\n")
    assert oncall("show", "rounds", "--rules", tmp_path).stdout.startswith(hidden)
    assert "former name" not in oncall("show", "slow", "--rules", tmp_path).stdout
    own.write_text(own.read_text().replace("\nformat:", "\nwas: [bandwidth]\nformat:"))
    refused = oncall("check", tmp_path)
    assert refused.exit_code == 2
    assert f"{own}:3:1: error: `bandwidth` is already what `slow` was called" in refused.stderr


def test_check_prints_every_problem_and_exits_2(tmp_path: Path) -> None:
    oncall("new", "heat", "-o", tmp_path)
    file = tmp_path / "heat.yaml"
    file.write_text(file.read_text().replace("temp_c >", "temp >").replace("too_hot }", "to_hot }"))
    file.write_text(file.read_text().replace("blame: too_hot", "blame: to_hot"))
    result = oncall("check", tmp_path)
    assert result.exit_code == 2 and result.stdout == ""
    assert "unknown column `temp` (did you mean `temp_c`?)" in result.stderr
    assert "unknown fact `to_hot` (did you mean `too_hot`?)" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_failing_test_exits_2_with_its_rows(tmp_path: Path) -> None:
    oncall("new", "heat", "-o", tmp_path)
    file = tmp_path / "heat.test.yaml"
    file.write_text(file.read_text().replace("blame: [gpu017/3]", "blame: [gpu017/2]"))
    result = oncall("test", tmp_path)
    assert result.exit_code == 2
    assert f"FAIL  {file}:6: one GPU is hot and slow" in result.stdout
    assert "got       HOT blaming ['gpu017/3']" in result.stdout


def test_show_lists_draws_and_finds_verdicts() -> None:
    assert "H1         Not-entered hang" in oncall("show").stdout
    assert "hang H1: Not-entered hang" in oncall("show", "H1").stdout
    assert oncall("show", "hang.H1").stdout == oncall("show", "H1").stdout
    ways = oncall("show", "H1").stdout
    assert ways.count("  1. Is the job hung") > 1  # several ways, and behind them each fact once
    assert ways.count("\n  suspects:\n") == 1
    assert "$hang_after = 5 min (halted.hang_after): longer" in ways
    missing = oncall("show", "hagn")
    assert missing.exit_code == 2 and "did you mean `hang`" in missing.stderr


def test_diff_shows_what_may_change_a_verdict(tmp_path: Path) -> None:
    change = "rulebook: hang\noverride: {params: {hang_after: 2 min}}"
    (tmp_path / "site.yaml").write_text(change)
    assert oncall("diff", tmp_path).stdout == CHANGED
    text = (shipped_folder() / "slow.yaml").read_text()
    assert "start_when: any(" in text
    (tmp_path / "slow.yaml").write_text(f"# only a comment\n{text}")
    assert "slow" not in oncall("diff", tmp_path).stdout


def test_the_schema_is_the_committed_one_and_accepts_what_is_shipped(tmp_path: Path) -> None:
    from ruamel.yaml import YAML

    assert oncall("schema", "-o", tmp_path / "schema.json").exit_code == 0
    written = (tmp_path / "schema.json").read_text()
    assert json.loads(oncall("schema").stdout) == json.loads(written) == rulebook_schema()
    committed = Path(__file__).parents[2] / "docs" / "reference" / "rulebook.schema.json"
    assert committed.read_text() == written, "run `make docs`"
    validator = jsonschema.Draft202012Validator(rulebook_schema())
    for path in shipped_folder().glob("*.yaml"):
        if ".test." not in path.name:
            assert validator.is_valid(YAML(typ="safe").load(path)), path
    broken = YAML(typ="safe").load(shipped_folder() / "hang.yaml")
    assert not validator.is_valid(broken | {"fcats": {}})


@pytest.mark.parametrize("command", ["check", "test", "diff"])
def test_a_path_that_is_not_there(command: str, tmp_path: Path) -> None:
    result = oncall(command, tmp_path / "nowhere")
    assert result.exit_code == 2
    assert "nowhere" in result.stderr and "Traceback" not in result.stderr


def site_with(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> Path:
    """A site whose rulebooks are one file, hang.yaml."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder))
    file = folder / "oncall" / "rules" / "hang.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    return file


def test_list_tells_where_each_is_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ["hang", "stable", "shipped"] in listed()
    file = site_with(tmp_path, monkeypatch, (shipped_folder() / "hang.yaml").read_text())
    assert ["hang", "stable", "site", str(file)] in listed()
    assert ["hang", "stable", "shipped"] in listed("--no-site-rules")
    file.write_text("rulebook: hang\noverride: {params: {hang_after: 2 min}}")
    assert f"shipped, changed by {file}\n" in oncall("list").stdout
    assert "hang_after = 2 min" in oncall("show", "hang").stdout
    assert oncall("diff").stdout == CHANGED


def test_a_broken_file_of_the_site_is_reported_and_harms_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = site_with(tmp_path, monkeypatch, "rulebook: hang\nfacts: [\x1b[31m")
    output = oncall("list")
    assert output.exit_code == 0 and "\x1b" not in output.stdout + output.stderr
    assert any(row[:4] == ["hang", "left", "out", f"{file}:1:1:"] for row in listed())
    assert f"site rulebook {file} skipped; the shipped hang runs instead" in output.stderr
    assert oncall("show", "hang").stdout == oncall("show", "hang", "--no-site-rules").stdout
    # Whoever checks asks for what is wrong.
    checked = oncall("check")
    assert checked.exit_code == 2 and f"{file}:" in checked.stderr
    assert oncall("check", "--no-site-rules").exit_code == 0
