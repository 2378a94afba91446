"""The guide's worked example does what the guide says, word for word."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest
from typer.testing import CliRunner

from oncall.cli.commands import app

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "rules.md"


def yaml_blocks() -> list[str]:
    return re.findall(r"```yaml\n(.*?)```", GUIDE.read_text(), re.DOTALL)


def sessions() -> list[tuple[str, str]]:
    """Each command of the guide with the output that follows it."""
    text = re.sub(r"```yaml\n.*?```", "", GUIDE.read_text(), flags=re.DOTALL)
    blocks = re.findall(r"(?:^    .*\n|^\n(?=    ))+", text, re.MULTILINE)
    shown = "\n".join(map(textwrap.dedent, blocks))
    parts = re.split(r"^\$ oncall ", shown, flags=re.M)[1:]
    return [(part.split("\n", 1)[0], part.split("\n", 1)[1].strip()) for part in parts]


def test_following_the_guide_gives_its_outputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    Path("fixtures").symlink_to(GUIDE.parents[2] / "fixtures")
    wrong, tests, override = (text for text in yaml_blocks() if text.startswith("rulebook:"))
    rulebook, test_file = (Path("site") / f"small_messages{end}.yaml" for end in ("", ".test"))
    right = re.sub(r"why: (a few .*?)}", r'why: "\1"}', wrong)
    right = right.replace("byts", "bytes").replace("blame: gradient\n", "blame: gradients\n")
    reported = [step for step in sessions() if step[0].startswith(("rules", "diagnose"))]
    assert [command.split()[1] for command, _ in reported if command.startswith("rules")] == [
        "new", "test", "check", "test", "check", "test", "diff",
    ]  # fmt: skip

    said = []
    for number, (command, _) in enumerate(reported):
        if number == 2:
            rulebook.write_text(wrong)
        elif number == 3:
            rulebook.write_text(right)
            test_file.write_text(tests)
        elif number == 4:
            test_file.write_text(
                tests.replace("none, path: {gradients: yes}", "none, path: {gradients: no}")
            )
        elif command.startswith("rules diff"):
            Path("site/ours.yaml").write_text(override)
        result = CliRunner().invoke(app, command.split())
        errors = result.stderr.removeprefix("oncall: ") if command.startswith("rules") else ""
        said.append((command, (result.stdout + errors).strip()))
    assert said == reported
