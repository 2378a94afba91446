"""docs/guide/console.md shows pictures that there are, and a configuration that is taken."""

from __future__ import annotations

import re
from pathlib import Path

from oncall.rules.site_folder import site_folder
from oncall.tui.drawing.states import THEMES
from oncall.tui.run import _actions
from oncall.tui.shell.keys import read_keymap
from oncall_lab.simulation import load

DOCS = Path(__file__).resolve().parents[2] / "docs"
GUIDE = (DOCS / "guide" / "console.md").read_text()


def test_every_picture_is_there_and_every_one_is_shown() -> None:
    shown = {Path(name).name for name in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", GUIDE)}
    assert shown == {path.name for path in (DOCS / "pictures").glob("*.svg")}


def test_no_picture_tells_where_it_was_made() -> None:
    for path in (DOCS / "pictures").glob("*.svg"):
        assert not re.search(r"/(home|root|tmp|work)/", path.read_text()), path


def test_the_configuration_is_taken(tmp_path: Path) -> None:
    block = re.search(r"    # \$XDG_CONFIG_HOME.*?\n\n(?=\S|!)", GUIDE, re.DOTALL)
    assert block
    path = tmp_path / "config.toml"
    path.write_text(re.sub(r"(?m)^    ", "", block[0]))
    assert read_keymap([path], _actions) == (
        {"save": "ctrl+e", "incident.command": "C,percent_sign"},
        [],
    )
    assert site_folder([path]) == (Path("/srv/oncall/rules"), [])
    assert 'theme = "oncall-light"' in block[0] and "oncall-light" in {one.name for one in THEMES}


def test_the_scenario_is_one() -> None:
    assert load(DOCS / "pictures" / "llama-70b.yaml").job == "llama-70b"
