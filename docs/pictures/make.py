"""The pictures of the console in docs/guide/console.md, made by the program itself.

    python docs/pictures/make.py        # or: make pictures

A simulated job hangs, its evidence is opened, and keys are pressed as in the guide.
"""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from oncall.console.opening import open_recording
from oncall.simulate import Scenario, simulate, write
from oncall.tui.app import ConsoleApp

HERE = Path(__file__).resolve().parent
EASY, WIDE = (100, 30), (180, 46)


@dataclass(frozen=True)
class Picture:
    """What is pressed before it is taken; a text in `<>` is typed."""

    name: str
    keys: str
    size: tuple[int, int] = EASY
    theme: str = "oncall-dark"


PICTURES = (
    Picture("incident", ""),
    Picture("rows", "w"),
    Picture("wide", "", WIDE),
    Picture("light", "", theme="oncall-light"),
    Picture("fleet", "r"),
    Picture("communicators", "3"),
    Picture("rates", "4"),
    Picture("rule", "5 enter" + " down" * 11 + " end" + " backspace" * 5 + " <1 h> ctrl+r"),
    Picture("help", "question_mark"),
)


async def take(picture: Picture, recording: Path) -> str:
    """The picture as SVG, the same from run to run."""
    app = ConsoleApp(lambda: open_recording([recording], None), theme=picture.theme)
    async with app.run_test(size=picture.size) as pilot:

        async def rest() -> None:
            """Until the session is idle, also after what is asked a moment later."""
            for _ in range(3):
                await pilot.pause(0.3)
                while app.session.busy or app.state.world is None:
                    await pilot.pause(0.05)

        await rest()
        for word in re.findall(r"<[^>]*>|\S+", picture.keys):
            await pilot.press(*(word[1:-1] if word[0] == "<" else [word]))
            if not word.startswith(("down", "backspace")):
                await rest()
        svg = app.export_screenshot(title=f"oncall open {recording}")
        app.close_session()
    return re.sub(r"terminal-\d+", "terminal", svg)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # so that no path of this machine is in a picture
        os.environ["XDG_STATE_HOME"] = folder
        incident, truth = simulate(Scenario.load(HERE / "llama-70b.yaml"))
        with incident:
            write(incident, truth, Path("simulated"))
        Path("simulated/evidence.oncall").rename("llama-70b.oncall")
        for picture in PICTURES:
            svg = asyncio.run(take(picture, Path("llama-70b.oncall")))
            (HERE / f"{picture.name}.svg").write_text(svg)
            print(f"{picture.name}.svg")


if __name__ == "__main__":
    main()
