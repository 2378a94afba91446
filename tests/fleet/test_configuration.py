"""config.toml: the user's above the site's, and slips that are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncall.core.configuration import configuration_files
from oncall.core.errors import BadInput
from oncall.fleet import reach
from oncall.fleet.configuration import FleetConfiguration, read_configuration


def _file(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_user_overrides_site_key_by_key(tmp_path: Path) -> None:
    site = _file(
        tmp_path,
        "site.toml",
        '[fleet]\nhosts = ["gpu[1-4]", "!gpu3"]\nwindow = 16\nconnect_timeout = "5s"\n',
    )
    user = _file(tmp_path, "user.toml", '[fleet]\nwindow = 4\nssh_options = ["-F", "x"]\n')
    assert read_configuration([site, tmp_path / "none.toml", user]) == FleetConfiguration(
        hosts="gpu[1-4],!gpu3", window=4, connect_timeout_s=5.0, ssh_options=("-F", "x")
    )


def test_user_file_is_under_xdg_config_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/x")
    assert configuration_files()[-1] == Path("/x/oncall/config.toml")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[fleet\n", "not TOML"),
        ("fleet = 3\n", "table"),
        ("[fleet]\nwindos = 4\n", r"windos.*did you mean window"),
        ("[fleet]\nwindow = 0\n", "window.*from 1 to"),
        ('[fleet]\nwindow = "8"\n', "window.*an integer"),
        ('[fleet]\ntransport = "telnet"\n', "transport.*openssh"),
        ('[fleet]\nconnect_timeout = "soon"\n', "connect_timeout.*duration"),
        ('[fleet]\nconnect_timeout = "0s"\n', "must be positive"),
        ('[fleet]\nssh_options = "-F x"\n', "ssh_options.*list"),
        ("[fleet]\nhosts = [1]\n", "hosts.*a string"),
        ('[fleet]\ncommand = ""\n', "command.*a string"),
    ],
)
def test_slips_are_named_with_file_and_key(tmp_path: Path, text: str, words: str) -> None:
    path = _file(tmp_path, "config.toml", text)
    with pytest.raises(BadInput, match=words) as reported:
        read_configuration([path])
    assert str(path) in str(reported.value)


def test_answer_timeout_limits_each_phase_of_a_gather(monkeypatch: pytest.MonkeyPatch) -> None:
    configured = FleetConfiguration(hosts="gpu001", answer_timeout_s=45.0)
    monkeypatch.setattr(reach, "read_configuration", lambda: configured)
    assert reach.reach_fleet(None, None).patience_s == 45.0
