"""The moving picture of README.md: `oncall demo --console` names a rank that is stopped.

    python docs/pictures/cast.py [OUT.svg]

The job, its hooks and collectors run on this machine, and keys are pressed as a person would. Every
change of the screen is kept with its time; the wait for the verdict is shortened, and the stopwatch
on the screen tells how long it was. An element that several frames share is in the file once.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import pickle
import re
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from oncall.console.opening import open_fleet
from oncall.demo.demonstration import PARAMETERS, running_cluster
from oncall.demo.layout import JOB, Layout
from oncall.demo.orders import Controls, with_console
from oncall.tui.demonstration import DemonstrationApp

OUT = Path(__file__).resolve().parent / "demo.svg"
SIZE = (100, 30)
RANK = 5
LOOKS_EVERY_S, PATIENCE_S = 0.1, 180.0
HEALTHY_S, BETWEEN_KEYS_S, WAIT_S, NAMED_S = 1.6, 0.9, 3.2, 3.6  # of the picture: 10 s in all
_STYLE = re.compile(r"^\s*\.terminal-(r\d+) \{ (.*?) \}$", re.MULTILINE)
_ELEMENT = re.compile(r'<rect fill="[^>]*/>|<text class="terminal-r\d+".*?</text>', re.DOTALL)
_BODY = '<g transform="translate(9, 41)" clip-path="url(#terminal-clip-terminal)">'
_STILL = "@media (prefers-reduced-motion: reduce) { [class^=k] { animation: none !important } }"
_CLASS = re.compile(r'class="terminal-(r\d+)"')


@dataclass(frozen=True)
class Frame:
    """A screen as SVG, from `at_s` until the next one's."""

    at_s: float
    svg: str


# ------------------------------------------------------------------- recording


class Recorder:
    """Looks at the screen, and keeps it where it has changed."""

    def __init__(self, app: DemonstrationApp) -> None:
        self._app, self.frames = app, list[Frame]()

    def look(self) -> None:
        svg = self._app.export_screenshot(title="oncall demo --console")
        svg = re.sub(r"terminal-\d{4,}", "terminal", svg)
        if not self.frames or svg != self.frames[-1].svg:
            self.frames.append(Frame(time.monotonic(), svg))

    async def look_for(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.look()
            await asyncio.sleep(LOOKS_EVERY_S)

    async def look_until(self, said: str) -> None:
        """Until the stopwatch says it. Raises TimeoutError."""
        async with asyncio.timeout(PATIENCE_S):
            while said not in self._app.state.demonstration:
                await self.look_for(LOOKS_EVERY_S)


Recorded = tuple[list[Frame], float]


async def record(controls: Controls, hosts: str) -> Recorded:
    """The screens from the healthy job to the headline that names the rank, by the picture's time,
    and how long that is. Raises TimeoutError if nothing names it."""
    app = DemonstrationApp(
        controls, lambda: open_fleet(hosts, None, JOB, overrides=PARAMETERS), job=JOB
    )
    async with app.run_test(size=SIZE) as pilot:
        recorder = Recorder(app)
        while app.state.snapshot is None or app.state.snapshot.diagnosis.pending:
            await pilot.pause(LOOKS_EVERY_S)
        await recorder.look_for(HEALTHY_S)
        for key in ("d", "s"):
            await pilot.press(key)
            await recorder.look_for(BETWEEN_KEYS_S)
        await pilot.press(str(RANK))
        struck_s = time.monotonic()
        await recorder.look_until("named in")
        named_s = time.monotonic()
        await recorder.look_for(NAMED_S)
        ended_s = time.monotonic()
        app.close_session()
    shorten = min(WAIT_S / (named_s - struck_s), 1)
    began_s = recorder.frames[0].at_s

    def shown_s(at_s: float) -> float:
        waited_s = min(max(at_s - struck_s, 0), named_s - struck_s)
        return at_s - began_s - waited_s * (1 - shorten)

    frames = [Frame(shown_s(one.at_s), one.svg) for one in recorder.frames]
    return frames, shown_s(ended_s)


def demonstrated(folder: Path) -> Recorded:
    """Run the job in `folder` and record it. Raises NotBuilt, DemoFailed."""
    kept = folder / "frames"

    def show(controls: Controls) -> int:
        os.chdir(folder)  # so that no path of this machine is in the picture
        kept.write_bytes(pickle.dumps(asyncio.run(record(controls, "local:node*"))))
        return 0

    with running_cluster(Layout.simulated(folder, 8, 4), folder, partial(print, sep="\t")) as job:
        if code := with_console(job, show):
            raise SystemExit(code)
    recorded: Recorded = pickle.loads(kept.read_bytes())
    return recorded


# --------------------------------------------------------------------- drawing


def animated(frames: Sequence[Frame], length_s: float) -> str:
    """One SVG that shows the frames one after the other, again and again; what shows no animations
    shows the last."""
    styles: dict[str, str] = {}  # rule -> its name
    seen: dict[str, list[int]] = {}  # element -> the frames that have it
    for number, frame in enumerate(frames):
        rules = dict(_STYLE.findall(frame.svg))
        for element in _ELEMENT.findall(frame.svg.partition(_BODY)[2]):
            drawn = element
            if found := _CLASS.search(element):
                name = styles.setdefault(rules[found[1]], f"c{len(styles)}")
                drawn = _CLASS.sub(f'class="{name}"', element, count=1)
            seen.setdefault(drawn, []).append(number)
    when = {
        shown: f"k{number}" for number, shown in enumerate(dict.fromkeys(map(tuple, seen.values())))
    }
    drawn = {
        shape: [
            _drawn(one, when[tuple(numbers)], numbers[-1] == len(frames) - 1)
            for one, numbers in seen.items()
            if one.startswith(shape)
        ]
        for shape in ("<rect", "<text")
    }
    rules_now = [f".{name} {{ {rule} }}" for rule, name in styles.items()]
    rules_now += [_keyframes(name, shown, frames, length_s) for shown, name in when.items()]
    head = _STYLE.sub("", frames[-1].svg.partition(_BODY)[0])
    head = head.replace("</style>", "\n".join([*rules_now, _STILL, "</style>"]), 1)
    backgrounds, texts = (
        f"<g{kind}>{chr(10).join(drawn[shape])}</g>"
        for shape, kind in (("<rect", ""), ("<text", ' class="terminal-matrix"'))
    )
    return f"{head}{_BODY}{backgrounds}{texts}</g></svg>\n"


def _drawn(element: str, name: str, last: bool) -> str:
    """An element that is shown at times; hidden for what shows no animations, unless it is last."""
    hidden = "" if last else ' visibility="hidden"'
    return (
        element.replace(" ", f' class="{name}"{hidden} ', 1)
        if element[1] == "r"
        else (f'<g class="{name}"{hidden}>{element}</g>')
    )


def _keyframes(name: str, shown: Sequence[int], frames: Sequence[Frame], length_s: float) -> str:
    """When what has that name is visible, in shares of the whole length."""
    steps, before = [], None
    for number, frame in enumerate(frames):
        if (visible := number in shown) != before:
            share = 100 * frame.at_s / length_s if number else 0
            steps.append(f"{share:.2f}%{{visibility:{'visible' if visible else 'hidden'}}}")
        before = visible
    return (
        f"@keyframes {name} {{{''.join(steps)}}}"
        f" .{name} {{animation: {name} {length_s:.1f}s step-end infinite}}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", nargs="?", type=Path, default=OUT)
    out = parser.parse_args().out.resolve()
    with tempfile.TemporaryDirectory(prefix="oncall-demo-") as name:
        os.environ["XDG_STATE_HOME"] = name
        frames, length_s = demonstrated(Path(name))
    out.write_text(animated(frames, length_s))
    print(f"{out.name}: {len(frames)} frames, {length_s:.1f} s, {out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
