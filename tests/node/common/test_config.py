"""The configuration: units, unknown keys, and where in the file they stand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from oncall.core.configuration import parse_toml
from oncall.core.errors import BadInput, UsageError
from oncall.node.common.config import Configuration, every_option, load, reload
from oncall.node.common.declaration import declared
from oncall.node.common.options import options_of


def _file(folder: Path, text: str) -> Path:
    path = folder / "collect.toml"
    path.write_text(text)
    return path


def test_quantities_carry_their_units(tmp_path: Path) -> None:
    reported = load(
        _file(
            tmp_path,
            'node = "gpu017"\nseal_every = "45 s"\nkeep = "2 d"\nkeep_bytes = "3 GiB"\n'
            'keep_free = "10 MiB"\nsocket_group = true\nseal_operations = 1000\n',
        )
    )
    assert (reported.node, reported.seal_every_ns, reported.keep_ns) == (
        "gpu017",
        45 * 10**9,
        172_800 * 10**9,
    )
    assert (reported.keep_bytes, reported.keep_free_bytes) == (3 * 2**30, 10 * 2**20)
    assert reported.socket_group is True
    assert reported.commit_every_ns == Configuration().commit_every_ns


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        (
            'node = "a"\n\nseal_evry = "1 s"\n',
            3,
            "`seal_evry`; did you mean `seal_every`?",
        ),
        ("# first\nseal_every = 30\n", 2, '30 is not a duration such as "30 s"'),
        ('keep_bytes = "3 s"\n', 1, 'not a size such as "1 GiB"'),
        ('seal_every = "-3 s"\n', 1, "below zero"),
        ('socket_group = "yes"\n', 1, "is not true or false"),
        ('sources = ["rings", "moon"]\n', 1, "unknown source `moon`; known are dpa, gpus"),
        ("seal_operations = 0\n", 1, "is not a number above zero"),
        ("[rings]\nx = 1\n", 1, "[rings] has no options"),
        ('gpus_every = "1 s"\n', 1, "`gpus_every`; did you mean `every` in [gpus]?"),
        ('[gpu]\nevery = "1 s"\n', 1, "did you mean [gpus]?"),
        ("gpus = 3\n", 1, "`gpus` is a table: write its options in [gpus]"),
        ('[hosts]\n[gpus]\nevry = "1 s"\n', 3, "`evry` in [gpus]; did you mean `every`?"),
        ('[gpus]\nseal_every = "1 s"\n', 2, "did you mean `seal_every`, above all tables?"),
        ("[probes]\ncolour = 1\n", 2, "unknown option `colour` in [probes]; known are every,"),
        (
            '[gpus]\nevery = "1 s"\n[hosts]\nevery = 1\n',
            4,
            "`every` in [hosts]: 1 is not a duration",
        ),
        ("hosts.every = 1\n", 1, "`every` in [hosts]: 1 is not a duration"),
        ("\nhosts = {every = 1}\n", 2, "`every` in [hosts]: 1 is not a duration"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(
    tmp_path: Path, text: str, line: int, problem: str
) -> None:
    path = _file(tmp_path, text)
    with pytest.raises(BadInput) as raised:
        load(path)
    assert raised.value.place == f"{path}:{line}"
    assert problem in raised.value.problem


def test_what_is_no_toml_is_said_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"not TOML: .*line 2"):
        load(_file(tmp_path, 'node = "a"\nseal_every =\n'))


def test_a_node_that_no_file_can_bear_is_refused() -> None:
    with pytest.raises(UsageError, match="host name"):
        load(None, {"node": "../up"})


def test_the_page_of_options_is_a_file_with_every_default(tmp_path: Path) -> None:
    text = every_option()
    assert load(_file(tmp_path, text)) == Configuration()
    tables = parse_toml(text, tmp_path)
    for name, source in declared().items():
        assert set(tables[name]) == set(options_of(source.options))
    for key in options_of(Configuration):
        assert f"\n{key} = " in text or f"\n# {key} = " in text


def test_what_changes_only_with_a_restart_is_named_and_kept() -> None:
    running = Configuration()
    wanted = replace(running, seal_every_ns=1, root=Path("/host")).with_source("gpus", every_ns=1)
    went_on, waiting = reload(running, wanted)
    assert waiting == ["root", "[gpus] every"]
    assert went_on == replace(running, seal_every_ns=1)
    assert reload(running, running) == (running, [])
