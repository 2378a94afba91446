"""Keys in the configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncall.tui.run import _actions, _chosen_theme
from oncall.tui.shell.keys import key_phrase, read_keymap


def test_a_later_file_overrides_an_earlier_one(tmp_path: Path) -> None:
    site, own = tmp_path / "site.toml", tmp_path / "own.toml"
    site.write_text('[keys]\nsave = "ctrl+s"\nfaults = "F"\n')
    own.write_text('[fleet]\nhosts = "gpu001"\n[keys]\nsave = "W,%"\n"jobs.open" = "o"\n')
    files = [site, tmp_path / "absent.toml", own]
    keymap, problems = read_keymap(files, _actions)
    assert keymap == {"save": "W,percent_sign", "faults": "F", "jobs.open": "o"}
    assert not problems


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[keys]\nsvae = "S"', "svae: unknown action; did you mean save"),
        ("[keys]\nsave = 5", 'expected a key such as "ctrl+s"'),
        ("keys = 3", "must be a table"),
        ("[keys", "not TOML"),
    ],
)
def test_a_slip_is_reported_with_its_file_and_the_rest_counts(
    tmp_path: Path, text: str, says: str
) -> None:
    path, own = tmp_path / "config.toml", tmp_path / "own.toml"
    path.write_text(text)
    own.write_text('[keys]\nfaults = "F"\n')
    keymap, (problem,) = read_keymap([path, own], _actions)
    assert keymap == {"faults": "F"}
    assert problem.place == str(path) and says in str(problem)


def test_every_action_has_an_id_of_its_own() -> None:
    for entries in _actions().values():
        ids = [entry.id for entry in entries]
        assert len(ids) == len(set(ids))


def test_a_key_that_does_something_else_already_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[keys]\nsave = "f"\n"incident.command" = "C"\n')
    keymap, (problem,) = read_keymap([path], _actions)
    assert keymap["save"] == "f"
    assert "save: f is already Faults (faults) on Jobs" in str(problem)


def test_keys_are_called_what_people_call_them() -> None:
    assert [key_phrase(key) for key in ("question_mark", "left_square_bracket", "y")] == [
        "?",
        "[",
        "y",
    ]


def test_a_theme_is_chosen_by_name(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[console]\ntheme = "high-contrast"\n')
    assert _chosen_theme([path], ["high-contrast"]) == ("high-contrast", [])
    chosen, (problem,) = _chosen_theme([path], ["oncall-dark"])
    assert chosen is None and "theme must be one of" in str(problem)
