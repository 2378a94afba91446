"""Every report, picture and error of evidence whose every string was chosen to do harm: nothing
that steers a terminal, and nothing that a format would obey, on stdout, stderr or in a file."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner, Result

from oncall.cli.commands import app
from oncall.core.diagnosis import Diagnosis
from oncall.core.printable import LONGEST_LINE
from oncall.evidence.incident import Incident
from oncall.render.contract import to_json
from oncall.render.html import to_html
from oncall.render.markdown import to_markdown
from oncall.render.text.report import to_text
from oncall.rules.language.load import load_rulebooks, shipped_folder
from oncall.rules.language.rulebook import Rulebook
from oncall.use_case.diagnose import diagnose
from oncall.views.words import next_parts

from ..command import oncall
from ..hostile import ALL_BUT_LONG, LONG, PIECES, jobs_of, save_hostile, unsafe_in

_SOURCE = Path(__file__).parents[2] / "src"
_DOCUMENTED = {0, 1, 2, 3}
_STYLES = re.compile(r"\x1b\[[0-9;]*m")
_PICTURES = {
    "pipe": (
        ("stages", ".svg"),
        ("stages", ".dot"),
        ("stages", ".json"),
        ("perfetto", ".json"),
    ),
    "netw": (("waiting", ".svg"), ("network", ".svg"), ("provenance", ".svg")),
    "rate": (("traffic", ".svg"),),
}


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything is still found in it."""
    return save_hostile(tmp_path_factory.mktemp("names") / "names.oncall", PIECES)


@pytest.fixture(scope="module")
def all_columns(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kinds, states and operations are hostile as well."""
    path = tmp_path_factory.mktemp("all") / "all.oncall"
    return save_hostile(path, [ALL_BUT_LONG, LONG], every_column=True)


def run(*arguments: str | Path) -> Result:
    """A command of oncall, which ends as is documented and says nothing harmful."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code in _DOCUMENTED, (arguments, done.output, done.exception)
    for text in (done.stdout, done.stderr):
        assert not unsafe_in(_STYLES.sub("", text)), arguments
    return done


def check_reports(path: Path, job: str, books: Sequence[Rulebook] | None = None) -> Diagnosis:
    """Text, Markdown and JSON of a job; what is not found is not less harmless."""
    with Incident.open(path) as incident:
        found = diagnose(
            incident, load_rulebooks([shipped_folder()]) if books is None else books, job
        )
    for explain in (False, True):
        for text in (to_text(found, explain=explain), to_markdown(found, explain=explain)):
            assert not unsafe_in(text)
            assert max(map(len, text.splitlines())) <= 2 * LONGEST_LINE
    assert not unsafe_in(_STYLES.sub("", to_text(found, colour=True)))
    check_markdown(to_markdown(found))
    assert not unsafe_in(to_html(found, drawings={}))
    document = to_json(found)
    assert document.isascii() and json.loads(document)["job"] == job
    for finding in found.findings:
        check_commands(finding.next)
    return found


def check_markdown(text: str) -> None:
    """Outside of code nothing is HTML, an image, a link, a table or a call of somebody."""
    fences = re.split(r"(?ms)^ *(`{3,}).*?\n.*?^ *\1$", text)
    prose = "".join(part for part in fences if not re.fullmatch("`{3,}", part or ""))
    prose = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", re.sub(r"\\[!-/:-@\[-`{-~]", "", prose))
    for found in (r"<(?!!-- -->)", r"!\[", r"\]\(", r"(?<![\w])@[A-Za-z0-9]", r"https?:", r"\|"):
        assert not re.search(found, prose), (found, re.findall(f".{{30}}{found}.{{30}}", prose))


def check_commands(advice: Sequence[str]) -> None:
    """No word of a command came to be more than one argument."""
    for one in advice:
        for is_command, text in next_parts(one):
            if is_command and not re.search(r"[|;&]", re.sub(r"'[^']*'", "", text)):
                assert shlex.split(text)
            assert "reboot`" not in text or not is_command


def check_pictures(path: Path, folder: Path) -> dict[str, int]:
    """Exit codes of pictures: each that is drawn is a whole document of its format."""
    codes = {}
    for job in jobs_of(path):
        for kind, suffix in _PICTURES.get(job[-4:], ()):
            output = folder / f"{kind}{suffix}"
            command = "export" if kind == "perfetto" else "draw"
            done = run(command, kind, path, "--job", job, "-o", output)
            code = codes[output.name] = done.exit_code
            if code == 0:
                content = output.read_text()
                assert not unsafe_in(content)
                _OF_FORMAT[output.suffix](content)
    return codes


def _dot(content: str) -> None:
    """Quotes are in pairs, and nothing stands outside of them that is not the format's own."""
    outside = re.sub(r'"(?:\\.|[^"\\])*"', "", content)
    assert '"' not in outside and re.fullmatch(r"[\w\s{}\[\];=,.>-]*", outside)


_OF_FORMAT: dict[str, Callable[[str], object]] = {
    ".svg": ElementTree.fromstring,
    ".json": json.loads,
    ".dot": _dot,
}


def test_reports_of_evidence_with_hostile_names(names: Path) -> None:
    found = check_reports(names, jobs_of(names)[0])
    assert [one.verdict for one in found.findings][:1] == ["H1"]


def test_pictures_of_evidence_with_hostile_names(names: Path, tmp_path: Path) -> None:
    codes = check_pictures(names, tmp_path)
    assert set(codes.values()) == {0} and len(codes) == 8


def test_reports_of_evidence_hostile_in_every_column(all_columns: Path) -> None:
    check_reports(all_columns, jobs_of(all_columns)[0])


@pytest.mark.slow
@pytest.mark.parametrize("piece", PIECES, ids=ascii)
def test_reports_and_pictures_with_that_text_in_every_column(tmp_path: Path, piece: str) -> None:
    for every_column in (False, True):
        path = save_hostile(tmp_path / "all.oncall", [piece], every_column=every_column)
        for job in jobs_of(path):
            check_reports(path, job)
            run("diagnose", path, "--job", job, "--explain")
        check_pictures(path, tmp_path)


def test_saved_evidence_is_as_it_was_recorded(names: Path, tmp_path: Path) -> None:
    with Incident.open(names) as incident:
        incident.save(tmp_path / "copy.oncall")
    rows = "SELECT DISTINCT node FROM ranks ORDER BY node"
    with Incident.open(names) as before, Incident.open(tmp_path / "copy.oncall") as after:
        nodes = before.con.execute(rows).fetchall()
        assert after.con.execute(rows).fetchall() == nodes
        assert any(node.startswith("$(reboot)") for (node,) in nodes if node)


def test_an_unknown_job_is_answered_on_bounded_lines(names: Path) -> None:
    done = run("diagnose", names, "--job", ALL_BUT_LONG + LONG)
    assert done.exit_code == 2 and len(done.stderr) < 6_000


@pytest.mark.parametrize(
    "arguments",
    [
        ["x\x1b]0;owned\x07"],
        ["rules", "show", "\u202e[/]\x1b[2J"],
    ],
)
def test_a_command_line_cannot_steer_the_terminal(arguments: list[str]) -> None:
    done = oncall(*arguments)
    assert done.returncode == 2 and done.stderr
    assert not unsafe_in(_STYLES.sub("", done.stdout + done.stderr))


def test_a_bug_whose_message_steers_is_reported_without_it() -> None:
    code = (
        "import sys; from oncall.cli import commands, main\n"
        "def fail(**_): raise ValueError('[/] \\x1b]0;owned\\x07')\n"
        "commands.app = fail; main.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(_SOURCE)},
    )  # fmt: skip
    assert done.returncode == 70 and "ValueError: [/]" in done.stderr
    assert not unsafe_in(done.stderr)


_RULEBOOK = """\
rulebook: site
format: 1
title: "A title [/] \\e]0;owned\\a \\u202e <b> @everyone"
status: test
sources: ["\\u2028 {{ x }}"]
case: [job]
facts:
  stuck: SELECT DISTINCT job, rank, node FROM ranks ORDER BY rank
start_when: any(stuck)
tree:
  verdict: OPEN
  say: "{{ stuck | ranks }} [bold \\e[2J on {{ stuck | hosts }}."
  blame: stuck
  next: ["Look: `ssh {{ stuck.node }} true`"]
verdicts:
  OPEN: {title: "Open [/] \\x9b31m", class: hang, severity: critical}
"""


def test_a_site_s_rulebook_steers_nothing(names: Path, tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(_RULEBOOK)
    books = load_rulebooks([tmp_path])
    found = check_reports(names, jobs_of(names)[0], books)
    assert [one.verdict for one in found.findings] == ["OPEN"]
    for arguments in (["show"], ["show", "site"], ["show", "OPEN"], ["list"]):
        assert "site" in run("rules", *arguments, "--rules", tmp_path).stdout
    run("rules", "check", tmp_path)
