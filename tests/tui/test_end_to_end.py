"""The whole way in a real terminal multiplexer, as an engineer goes it: open, find the culprit,
read why, save, quit; on a recording, and on a job that hangs on this machine while one looks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from oncall.demo.demonstration import PARAMETERS, broken_cluster
from oncall.demo.faults import fault_named
from oncall.demo.layout import JOB, Layout

_SOURCE = Path(__file__).parents[2] / "src"
_RECORDING = Path(__file__).parents[2] / "fixtures" / "flight_recorder" / "not_entered"
_HANGS = ("--symptom", "hung")  # the dump does not say when it was made
_ONCALL = (sys.executable, "-m", "oncall.cli.main")
_DEADLINE_S = 40.0


class Tmux:
    """A terminal of 120 by 40 in a tmux server of its own, with a program in it."""

    def __init__(self, folder: Path, *command: str | Path) -> None:
        self._socket = folder / "tmux"
        self._left = folder / "left"
        # What the program returns is left in a file; the terminal stays to be looked at.
        run = '"$@"; echo $? >"$0"; exec sleep 600'
        self._tmux(
            *("-f", "/dev/null", "new-session", "-d", "-x", "120", "-y", "40", "-c", folder),
            *("-e", f"PYTHONPATH={_SOURCE}", "-e", f"XDG_CONFIG_HOME={folder}"),
            *("-e", f"XDG_STATE_HOME={folder}", "-e", "LC_ALL=C.UTF-8"),
            *("sh", "-c", run, self._left, *command),
        )

    def _tmux(self, *arguments: str | Path) -> str:
        done = subprocess.run(
            ["tmux", "-S", self._socket, *arguments], capture_output=True, text=True, check=True
        )
        return done.stdout

    def screen(self) -> str:
        return self._tmux("capture-pane", "-p")

    def press(self, *keys: str) -> None:
        self._tmux("send-keys", *keys)

    def type(self, text: str) -> None:
        self._tmux("send-keys", "-l", text)

    def wait_for(self, *texts: str) -> str:
        """Until all of them are on the screen; returns it."""
        deadline = time.monotonic() + _DEADLINE_S
        while True:
            seen = self.screen()
            if all(text in seen for text in texts):
                return seen
            assert time.monotonic() < deadline, f"not all of {texts} in:\n{seen}"
            time.sleep(0.05)

    def wait_without(self, text: str) -> None:
        """Until it has gone from the screen."""
        deadline = time.monotonic() + _DEADLINE_S
        while text in (seen := self.screen()):
            assert time.monotonic() < deadline, f"still {text!r} in:\n{seen}"
            time.sleep(0.05)

    def wait(self) -> int:
        """Until the program has ended; returns its exit code."""
        deadline = time.monotonic() + _DEADLINE_S
        while not (self._left.exists() and self._left.read_text().strip()):
            assert time.monotonic() < deadline, f"it does not end:\n{self.screen()}"
            time.sleep(0.05)
        return int(self._left.read_text())

    def close(self) -> None:
        subprocess.run(["tmux", "-S", self._socket, "kill-server"], check=False)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A place with a path short enough for sockets."""
    if shutil.which("tmux") is None:
        pytest.skip("no tmux here: apt-get install tmux")
    with TemporaryDirectory(prefix="oncall-") as name:
        yield Path(name)


@pytest.fixture
def opened() -> Iterator[list[Tmux]]:
    """Terminals that are closed at the end."""
    terminals: list[Tmux] = []
    yield terminals
    for one in terminals:
        one.close()


def children_of_oncall(folder: Path) -> list[str]:
    """Processes that were started by the console in that folder, and are still there."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            environment = (place / "environ").read_bytes().split(b"\0")
            command = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        ours = f"XDG_STATE_HOME={folder}".encode() in environment
        if ours and "oncall" in command and "sleep" not in command and "tmux" not in command:
            found.append(command)
    return found


def test_a_recording_is_opened_read_saved_and_left(folder: Path, opened: list[Tmux]) -> None:
    terminal = Tmux(folder, *_ONCALL, "open", _RECORDING, *_HANGS)
    opened.append(terminal)
    seen = terminal.wait_for("Not-entered hang: rank 5", "py-spy dump", "8/8 ranks")
    assert "AllReduce 9" in seen

    terminal.press("?")
    terminal.wait_for("Explain this screen and its keys.")
    terminal.press("Escape")
    terminal.wait_without("Explain this screen")

    terminal.press(":")
    terminal.wait_for("node  rank  rule")
    terminal.type("rank 5")
    terminal.press("Enter")
    terminal.wait_for("8 ranks by node", "Stack, last seen in Barrier 2")
    terminal.press("1")

    terminal.press("s")
    terminal.wait_for("All evidence, for")
    terminal.press("C-u")
    terminal.wait_without(".oncall")
    terminal.type("night")
    terminal.press("Enter")
    terminal.wait_for("saved night.oncall")

    terminal.press("C-q")
    assert terminal.wait() == 0
    assert "Not-entered hang" not in terminal.screen()  # the screen of before is back
    assert not children_of_oncall(folder)

    again = subprocess.run(
        [*_ONCALL, "diagnose", folder / "night.oncall", *_HANGS],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(_SOURCE)},
        check=False,
    )
    assert again.returncode == 1
    assert "Not-entered hang: rank 5" in again.stdout


def test_a_job_that_hangs_now_is_watched_read_saved_and_left(
    folder: Path,
    opened: list[Tmux],
    standin_job: None,  # noqa: ARG001
) -> None:
    fault = fault_named("H1")
    params = [part for name, value in PARAMETERS.items() for part in ("--param", f"{name}={value}")]
    with broken_cluster(fault, Layout.simulated(folder, 8, 4), folder, lambda *_: None):
        hosts = f"local:{folder}/node*"
        terminal = Tmux(folder, *_ONCALL, "--job", JOB, "--hosts", hosts, *params)
        opened.append(terminal)
        terminal.wait_for("Not-entered hang", f"rank {fault.broken}", "8/8 ranks", "live")

        terminal.type("/rank")  # at once, as a slow line brings it
        terminal.wait_for("/ rank")
        terminal.press("Enter")
        terminal.wait_for("/rank")
        terminal.press("Escape")
        terminal.wait_without("/rank")

        terminal.press("Space")
        terminal.wait_for("before the present")
        terminal.press(".")
        terminal.wait_for("● live")

        terminal.press("s")
        terminal.wait_for("All evidence, for")
        terminal.press("C-u")
        terminal.wait_without(".oncall")
        terminal.type("live")
        terminal.press("Enter")
        terminal.wait_for("saved live.oncall")

        terminal.press("C-q")
        assert terminal.wait() == 0
        assert not children_of_oncall(folder)
    assert (folder / "live.oncall").stat().st_size > 0


_EDITOR = """\
#!/bin/sh
echo "EDITING with $1"
read answer
case $answer in
    wrong) sed -i 's/^status: .*/status: stabel/' "$2" ;;
    mended) sed -i 's/^status: .*/status: stable  # by hand/' "$2" ;;
    *) exit 3 ;;
esac
"""


@pytest.mark.slow
def test_a_rulebook_is_edited_elsewhere_saved_and_broken_by_somebody(
    folder: Path, opened: list[Tmux]
) -> None:
    editor, saved = folder / "editor", folder / "oncall" / "rules" / "hang.yaml"
    editor.write_text(_EDITOR)
    editor.chmod(0o755)
    terminal = Tmux(folder, "env", f"EDITOR={editor} --wait", *_ONCALL, "open", _RECORDING, *_HANGS)
    opened.append(terminal)

    def edit(answer: str) -> None:
        terminal.press("e")
        terminal.wait_for("EDITING with --wait")
        terminal.type(answer)
        terminal.press("Enter")

    terminal.wait_for("Not-entered hang: rank 5", "8/8 ranks")
    terminal.press("5")
    terminal.wait_for("Which rank hangs")
    terminal.press(":")
    terminal.wait_for("node  rank  rule")
    terminal.type("rule hang")
    terminal.press("Enter")
    terminal.wait_for("rulebook: hang", "no problems")
    edit("wrong")
    terminal.wait_for("status: stabel   ◀ `status` must be", "● unsaved", "5 Rules", "ctrl+q Quit")
    edit("fail")
    terminal.wait_for("exited with 3; the text is unchanged", "5 Rules")
    edit("mended")
    terminal.wait_for("status: stable  # by hand", "no problems")

    terminal.press("C-s")
    terminal.wait_for("press ctrl+s again to save", "no verdict changes")
    terminal.press("C-s")
    terminal.wait_for("written to", "site · stable")
    assert "status: stable  # by hand" in saved.read_text()

    saved.write_text("rulebook: hang\nfacts: [\n")
    terminal.wait_for("✖ hang.yaml line 2:", "the shipped rulebook is", "1 finding", "◀ not YAML")
    terminal.press("C-q")
    assert terminal.wait() == 0

    later = subprocess.run(
        [*_ONCALL, "diagnose", _RECORDING, *_HANGS],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(_SOURCE), "XDG_CONFIG_HOME": str(folder)},
        check=False,
    )
    assert later.returncode == 1 and "Not-entered hang: rank 5" in later.stdout
    assert f"site rulebook {saved} skipped" in later.stderr
