"""A job's configuration in every form that people and launchers write it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncall.core.training import SettingError, from_arguments, from_mapping, parse_settings

SCRIPT = r"""#!/bin/bash
# --tensor-model-parallel-size 64 stands in a comment
export NCCL_DEBUG=INFO
DISTRIBUTED_ARGS="--nproc_per_node 8 --nnodes 4"
MODEL_ARGS="
    --num-layers 48 \
    --micro-batch-size 1
    --global-batch-size 32"
torchrun $DISTRIBUTED_ARGS pretrain_gpt.py $MODEL_ARGS \
    --tensor-model-parallel-size 2 --pipeline-model-parallel-size=4 \
    --num-layers-per-virtual-pipeline-stage 6 \
    --use-distributed-optimizer --sequence-parallel --overlap-grad-reduce
"""


def test_settings_are_typed() -> None:
    columns = parse_settings("tp=2, pp=4 micro_batches=8,sequence_parallel=yes schedule=gpipe")
    assert columns.settings == {
        "tp": 2,
        "pp": 4,
        "micro_batches": 8,
        "sequence_parallel": True,
        "schedule": "GPipe",
    }


def test_a_launch_script_tells_what_follows_from_it() -> None:
    reported = from_arguments(SCRIPT, "train.sh")
    assert reported is not None
    assert reported.complete(32) == {
        "layers": 48,
        "tp": 2,
        "pp": 4,
        "dp": 4,
        "micro_batches": 8,
        "chunks": 2,
        "schedule": "interleaved",
        "distributed_optimizer": True,
        "sequence_parallel": True,
        "framework": "Megatron-LM",
    }


def test_without_the_number_of_ranks_nothing_is_made_up() -> None:
    reported = from_arguments("--tensor-model-parallel-size 2 --global-batch-size 32", "x")
    assert reported is not None
    assert reported.complete(None) == {"tp": 2, "framework": "Megatron-LM"}
    assert "dp" not in reported.complete(7)


def test_a_size_that_is_a_shell_variable_is_not_known() -> None:
    reported = from_arguments(
        "--tensor-model-parallel-size $TP --pipeline-model-parallel-size 4", "x"
    )
    assert reported is not None
    assert reported.settings == {"pp": 4, "framework": "Megatron-LM"}


def test_the_keys_of_a_straggler_study_are_known() -> None:
    columns = from_mapping({"trial_name": "ST", "dp_size": 2, "pp_size": 4, "vpp_size": 1}, "meta")
    assert columns.settings == {"dp": 2, "pp": 4, "chunks": 1}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("pipeline_paralel=2", r"unknown setting `pipeline_paralel`"),
        ("micro_batchs=8", r"did you mean micro_batches\?"),
        ("tp=two", "`tp` must be a positive integer, not `two`"),
        ("tp=0", "positive integer"),
        ("schedule=zigzag", "one of 1F1B, interleaved, GPipe"),
        ("sequence_parallel=perhaps", "true or false"),
        ("tp=2 quickly", "NAME=VALUE"),
    ],
)
def test_what_cannot_be_is_reported(text: str, problem: str) -> None:
    with pytest.raises(SettingError, match=problem):
        parse_settings(text)


def test_sizes_that_do_not_divide_the_ranks_are_reported() -> None:
    contradiction = parse_settings("tp=3,dp=5,ep=7").contradiction
    assert contradiction(64) == "tp=3, dp=5 does not fit 64 ranks: 3 x 5 = 15 does not divide 64"
    assert contradiction(60) is None
    assert contradiction(None) is None


@given(st.text(max_size=200))
def test_any_text_is_arguments_or_none(text: str) -> None:
    reported = from_arguments(text, "x")
    assert reported is None or reported.complete(8) is not None
