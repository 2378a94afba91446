"""The pictures of docs/guide/console.md, stages.md and network.md, made by the program itself.

    python docs/pictures/make.py        # or: make docs

Simulated jobs hang or lose time, their evidence is opened, and keys are pressed as in the guide.
"""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from textual.widgets import TextArea

from oncall.analysis.network.network_paths import network_of
from oncall.console.opening import open_recording
from oncall.evidence.incident import Incident
from oncall.render.svg.provenance import provenance_svg
from oncall.render.svg.stages import timeline_svg
from oncall.render.svg.topology import topology_svg
from oncall.render.svg.waiting import waiting_svg
from oncall.tui.app import ConsoleApp
from oncall.views.network.provenance import provenance
from oncall.views.network.topology import topology
from oncall.views.network.waiting import find_collective, waiting_graph
from oncall.views.stages.iterations import timeline
from oncall_lab import write
from oncall_lab.simulation import load, simulate

HERE = Path(__file__).resolve().parent
EASY, WIDE = (100, 30), (180, 46)


@dataclass(frozen=True)
class Picture:
    """What is pressed before it is taken. A text in `<>` is typed; one in `[]` is looked for in the
    rulebook being edited: the cursor goes behind it."""

    name: str
    keys: str
    size: tuple[int, int] = EASY
    theme: str = "oncall-dark"
    job: str = "llama-70b"


PICTURES = (
    Picture("incident", ""),
    Picture("narrow", "", (80, 24)),
    Picture("rows", "w"),
    Picture("wide", "", (200, 60)),
    Picture("light", "", (120, 40), theme="oncall-light"),
    Picture("colour-blind", "", (120, 40), theme="colour-blind"),
    Picture("sixteen-colours", "", (120, 40), theme="ansi-dark"),
    Picture("fleet", "r"),
    Picture("lag", "2 o u", WIDE),
    Picture("communicators", "3"),
    Picture("rates", "4"),
    Picture(
        "rule",
        "5 colon <rule hang> enter enter [  hang_after: ] shift+end"
        " <{of: halted.hang_after, value: 1 h, why: a checkpoint to the object store takes 40 min}>"
        " ctrl+r",
    ),
    Picture("help", "question_mark"),
    Picture("stages", "6", job="late-backward"),
    Picture("network", "7", WIDE, job="incast"),
)


def go_behind(text: str, editor: TextArea) -> None:
    """Put the cursor behind the first such text. Raises StopIteration where there is none."""
    lines = enumerate(editor.text.splitlines())
    row, line = next((row, line) for row, line in lines if text in line)
    editor.move_cursor((row, line.index(text) + len(text)), center=True)


async def take(picture: Picture, recording: Path) -> str:
    """The picture as SVG, the same from run to run."""
    app = ConsoleApp(lambda: open_recording([recording], None), theme=picture.theme)
    async with app.run_test(size=picture.size) as pilot:

        async def rest() -> None:
            """Until the session is idle, also after what is asked a moment later."""
            for _ in range(3):
                await pilot.pause(0.3)
                while app.session.busy or app.state.snapshot is None:
                    await pilot.pause(0.05)

        await rest()
        for word in re.findall(r"<[^>]*>|\[[^]]*\]|\S+", picture.keys):
            if word[0] == "[":
                go_behind(word[1:-1], app.screen.query_one(TextArea))
            else:
                await pilot.press(*(word[1:-1] if word[0] == "<" else [word]))
            await rest()

        def drawn() -> str:
            svg = app.export_screenshot(title=f"oncall open {recording}")
            return re.sub(r"terminal-\d+", "terminal", svg)

        svg, before = drawn(), ""
        while svg != before:  # scroll bars come a moment after what they scroll
            await pilot.pause(0.5)
            svg, before = drawn(), svg
        app.close_session()
    return svg


def simulated(job: str) -> Path:
    """The saved incident of a scenario beside this file, in the folder one is in."""
    incident, truth = simulate(load(HERE / f"{job}.yaml"))
    with incident:
        write(incident, truth, Path(f"{job}-simulated"))
    return Path(f"{job}-simulated/evidence.oncall").rename(f"{job}.oncall")


def network_pictures(incident: Incident) -> dict[str, str]:
    """Who waited, the way of the pauses and the flows at its ports, of the worst collective."""
    graph = waiting_graph(incident, find_collective(incident))
    of, step, net = graph.collective, graph.worst, network_of(incident.con)
    assert step is not None
    way, ports = topology(incident, net, of, step), provenance(incident, net, of, step)
    assert way is not None and ports is not None
    return {
        "network-waiting.svg": waiting_svg(graph),
        "network-way.svg": topology_svg(way),
        "network-ports.svg": provenance_svg(ports),
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # so that no path of this machine is in a picture
        os.environ["XDG_STATE_HOME"] = folder
        jobs = {job: simulated(job) for job in dict.fromkeys(one.job for one in PICTURES)}
        for picture in PICTURES:
            svg = asyncio.run(take(picture, jobs[picture.job]))
            (HERE / f"{picture.name}.svg").write_text(svg)
            print(f"{picture.name}.svg")
        with Incident.open(jobs["late-backward"]) as incident:
            (HERE.parent / "guide" / "stages.svg").write_text(timeline_svg(timeline(incident)))
            print("stages.svg, the timeline")
        with Incident.open(jobs["incast"]) as incident:
            for name, svg in network_pictures(incident).items():
                (HERE.parent / "guide" / name).write_text(svg)
                print(name)


if __name__ == "__main__":
    main()
