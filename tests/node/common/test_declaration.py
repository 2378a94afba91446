"""How a source declares itself: found by its name, with its rate and its options."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from oncall.node.common import declaration
from oncall.node.common.declaration import (
    NoOptions,
    Polled,
    Surroundings,
    declared,
    default_options,
    on_by_default,
    source,
)
from oncall.node.common.options import option
from oncall.node.common.source import FailedSource, Source


@dataclass(frozen=True)
class Moon(Polled):
    phase: str = option("name", "how much of it is lit", default="new")


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test declares is not declared for the next."""
    monkeypatch.setattr(declaration, "_DECLARED", dict(declared()))


def moon(surroundings: Surroundings, options: Moon) -> Source:
    """The moon.

    More about it."""
    return FailedSource(surroundings.node, options.phase)


def test_a_source_has_a_rate_options_and_words() -> None:
    assert source("moon", every="2 s", on_by_default=False)(moon) is moon
    reported = declaration._DECLARED["moon"]
    assert (reported.collects, reported.on_by_default) == ("The moon.", False)
    assert reported.options == Moon(every_ns=2 * 10**9)


def test_what_cannot_be_declared_is_refused() -> None:
    def still(surroundings: Surroundings, options: NoOptions) -> Source:
        raise NotImplementedError

    with pytest.raises(TypeError, match="declared twice"):
        source("gpus", every="1 s")(moon)
    with pytest.raises(TypeError, match="`every`"):
        source("moon")(moon)
    with pytest.raises(TypeError, match="`every`"):
        source("still", every="1 s")(still)


def test_every_source_says_what_it_collects_and_what_its_options_mean() -> None:
    assert set(on_by_default()) <= set(declared())
    for name, reported in declared().items():
        assert reported.collects.endswith("."), name


def test_options_are_found_by_their_class() -> None:
    options = default_options()
    found = [type(each) for each in options.by_source.values() if type(each) is not Polled]
    assert all(type(options.of(kind)) is kind for kind in found)
