"""The scenario's language: what it accepts, and what it says about what it does not."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from oncall.core.errors import BadInput, UsageError
from oncall_lab import TrainingFault, TrainingScenario
from oncall_lab.drawn.training import random_scenario
from oncall_lab.scenario import key_of
from oncall_lab.simulation import load
from oncall_lab.traffic import TrafficFault, TrafficScenario
from oncall_lab.training.fault import MEASURED_WAYS, WAYS

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "simulate.md"


def test_quantities_carry_units() -> None:
    scenario = TrainingScenario.from_mapping(
        {
            "tp": 4,
            "forward": "60 ms",
            "network": "25 GB/s",
            "tp_bytes": "32 MiB",
            "jitter": "3 %",
            "checkpoint_every": 0,
            "missing_nodes": "1-2",
            "tree": "world",
            "faults": [{"fault": "S1", "rank": 5, "at": "0 s", "factor": 2}],
        }
    )
    assert (scenario.tp, scenario.forward_ns, scenario.tp_bytes) == (4, 60_000_000, 32 * 2**20)
    assert (scenario.network_bytes_per_s, scenario.jitter) == (25e9, 0.03)
    assert (scenario.missing_nodes, scenario.tree) == ((1, 2), ("world",))
    assert scenario.faults == (TrainingFault("S1", (5,), at_ns=0, factor=2),)


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"micro_batchs": 4}, r"unknown key `micro_batchs` \(did you mean `micro_batches`\?\)"),
        ({"forward": 60}, r"`forward: 60` is not such as `forward: 60 ms`"),
        ({"forward": "60 furlongs"}, "unknown unit `furlongs`"),
        ({"tp": "four"}, r"`tp: four` is not a whole number"),
        ({"tp": True}, r"`tp: True` is not a whole number"),
        ({"tp": 0}, r"`tp: 0` must be at least 1"),
        ({"tp": 1, "pp": 1, "dp": 1}, "no other to wait for"),
        ({"tp": 100, "dp": 1000}, "more than the 65,536"),
        ({"ep": 3}, r"`ep: 3` does not divide the 8 ranks"),
        ({"missing_nodes": [9]}, "the nodes are 0-1"),
        ({"tree": "web"}, r"`tree: web` is none of tp"),
        ({"faults": {"fault": "H1"}}, "`faults` is a list"),
        ({"faults": ["H1"]}, "each one is a mapping"),
        ({"faults": [{"fault": "H1"}]}, "faults: `ranks` is missing"),
        ({"faults": [{"fault": "H9", "rank": 1}]}, "`H9` is none of H1"),
        ({"faults": [{"fault": "H1", "rank": 16}]}, "a fault on rank 16: the ranks are 0-15"),
        ({"faults": [{"fault": "H1", "rank": 1, "in": "db"}]}, "`in: db` is none of tp"),
        ({"faults": [{"fault": "H1", "rank": 1, "in": "ep"}]}, "ep, which has one rank here"),
        ({"faults": [{"fault": "H1", "rank": 1, "how": "x"}]}, "`how: x` is none of stop"),
        ({"faults": [{"fault": "H1", "rank": 1, "factor": 9}]}, "`factor` means nothing for H1"),
        ({"faults": [{"fault": "S1", "rank": 1, "factor": 0.5}]}, "would be a cure"),
        ({"faults": [{"fault": "H1", "rank": 1, "att": "1 s"}]}, "did you mean `at`"),
    ],
)
def test_a_bad_scenario_names_the_key(mapping: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        TrainingScenario.from_mapping(mapping)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tp: [1", "is not YAML"),
        ("tp: 2\ntp: 4\n", "is not YAML.*duplicate key"),
        ("\ttp: 2\n", "is not YAML"),
        ("- tp\n", "a scenario is a mapping"),
        ("", "a scenario is a mapping"),
        ("pq: 2\n", "unknown key `pq`"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BadInput, match=f"bad.yaml: .*{message}"):
        load(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"none\.yaml: cannot be read"):
        load(tmp_path / "none.yaml")


def test_every_way_of_every_fault_can_be_asked_for() -> None:
    for kind, ways in WAYS.items():
        for how in ways:
            assert TrainingFault(kind, (0,), how=how).how == how


def test_the_guide_names_every_key_and_its_example_loads(tmp_path: Path) -> None:
    text = GUIDE.read_text(encoding="utf-8")
    for cls in (TrainingScenario, TrainingFault, TrafficScenario, TrafficFault):
        for item in dataclasses.fields(cls):
            assert f"`{key_of(item)}`" in text, key_of(item)
    examples = re.findall(r"```yaml[^\n]*\n(.*?)```", text, re.DOTALL)
    assert examples
    for number, example in enumerate(examples):
        path = tmp_path / f"{number}.yaml"
        path.write_text(example, encoding="utf-8")
        assert load(path).world_size > 1


@pytest.mark.parametrize("seed", range(20))
def test_drawn_scenarios_are_sound_and_repeatable(seed: int) -> None:
    scenario = random_scenario(seed)
    assert scenario == random_scenario(seed)
    assert scenario != random_scenario(seed + 1)
    guilty = {r // scenario.gpus_per_node for f in scenario.faults for r in f.ranks}
    assert not guilty & set(scenario.missing_nodes)


@pytest.mark.parametrize("kind", list(MEASURED_WAYS))
def test_a_wanted_fault_of_devices_is_drawn(kind: str) -> None:
    drawn = [random_scenario(seed, (kind,)) for seed in range(12)]
    assert all(scenario.is_measured and 16 <= scenario.world_size <= 64 for scenario in drawn)
    assert {fault.kind for scenario in drawn for fault in scenario.faults} == {kind}
    ways = {fault.how for scenario in drawn for fault in scenario.faults}
    assert len(ways) > 1 or len(MEASURED_WAYS[kind]) == 1
    (mild,) = random_scenario(3, (kind,), severity=1).faults
    assert mild.severity == 1
    assert random_scenario(3, (), measured=True).faults == ()


@pytest.mark.parametrize("kind", list(WAYS))
def test_a_wanted_fault_is_drawn(kind: str) -> None:
    for seed in range(5):
        assert [fault.kind for fault in random_scenario(seed, (kind,)).faults] == [kind]
    assert random_scenario(1, ("S1",), from_start=True).faults[0].at_ns == 0
    assert random_scenario(1, (), large=True).world_size == 128
    with pytest.raises(UsageError, match="no fault class `H7`"):
        random_scenario(1, ("H7",))
