"""A shell, the kernel's log and the site's commands on the node under the cursor."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from oncall.console.queries import GetWordsByHand
from oncall.tui.shell.there import OWN, read_commands

from .console import console, piloted
from .fake_session import FakeSession
from .snapshots import hang_snapshot


def live() -> FakeSession:
    """A running job; what is run on its nodes writes its name into a file here."""
    snapshot = hang_snapshot()
    session = FakeSession(replace(snapshot, moment=replace(snapshot.moment, live=True)))
    write = "import sys; open('ran', 'w').write(' '.join(sys.argv[1:]))"
    session.answers[GetWordsByHand] = lambda query: (
        sys.executable, "-c", write, query.node, query.command,
    )  # fmt: skip
    return session


@contextmanager
def suspended() -> Iterator[None]:
    yield


@piloted
async def test_a_shell_and_the_log_of_the_node_under_the_cursor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    session = live()
    async with console(session) as running:
        monkeypatch.setattr(running.app, "suspend", suspended)
        await running.press("2", "dollar_sign")
        assert Path("ran").read_text() == "gpu017 "  # noqa: ASYNC240
        await running.press("L")
        assert Path("ran").read_text().startswith("gpu017 dmesg --follow")  # noqa: ASYNC240
        session.answers[GetWordsByHand] = lambda _: ("nothing-of-that-name",)
        await running.press("dollar_sign")
        assert "cannot start nothing-of-that-name" in running.text()
        await running.press("4", "dollar_sign")
        assert "Shell: no node is under the cursor" in running.text()


@piloted
async def test_not_in_a_terminal_that_cannot_be_lent() -> None:
    async with console(live()) as running:
        await running.press("2", "dollar_sign")
        assert "this terminal cannot start another program" in running.text()


@piloted
async def test_commands_of_the_site_fill_in_what_the_cursor_is_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "config.toml"
    file.write_text(
        '[commands.look]\nrun = "look --rank {rank} | grep {node}"\nkey = "ctrl+n"\n'
        'why = "What a rank does."\n'
    )
    actions, problems = read_commands([file])
    assert not problems
    async with console(live(), node_actions=actions) as running:
        monkeypatch.setattr(running.app, "suspend", suspended)
        await running.press("2", "ctrl+n")
        assert Path("ran").read_text() == "gpu017 look --rank 5 | grep gpu017"  # noqa: ASYNC240
        await running.press("ctrl+p", *"what a rank")
        assert "What a rank does." in running.text()


def test_nothing_that_a_node_is_called_reaches_its_shell() -> None:
    action = replace(OWN[0], run="look {node}")
    assert action.command({"node": "gpu017"}) == "look gpu017"
    assert action.command({"node": "$(reboot)"}) == "look '$(reboot)'"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("commands = 3", "[commands] must be a table"),
        ("[commands]\nx = 3", "[commands.x] must be a table with run, key and why"),
        ("[commands.x]\nwhy = 'because'", "[commands.x] has no `run`"),
        ("[commands.x]\nrun = 3", "[commands.x] run must be a text"),
        ("[commands.x]\nrun = 'a'\nkeys = 'b'", "[commands.x] unknown setting `keys`"),
        ("[commands.x]\nrun = 'a {gpu}'", "unknown field {gpu}; there are {node} and {rank}"),
        (
            "[commands.x]\nrun = 'awk {'",
            "run: Single '{' encountered in format string; write {{ and }}",
        ),
        ("[commands.x]\nrun = 'a'\nkey = 's'", "[commands.x] key: s is already Save"),
    ],
)
def test_what_is_wrong_with_a_command_is_said_and_ours_stay(
    tmp_path: Path, text: str, said: str
) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text)
    actions, [problem] = read_commands([file])
    assert actions == OWN
    assert said in str(problem)
