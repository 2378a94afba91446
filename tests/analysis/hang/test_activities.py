"""What a main thread does, by its frames."""

from __future__ import annotations

import pytest

from oncall.analysis.hang.main_threads import activity_of

DDP = "torch/distributed/distributed_c10d.py:9"
GRAPH = "_engine_run_backward at torch/autograd/graph.py:9"
FETCH = "fetch at torch/utils/data/_utils/fetch.py:5"
SELECT = "_PollLikeSelector.select at selectors.py:415"
MAIN = "main at train.py:9"


@pytest.mark.parametrize(
    ("activity", "frames"),
    [
        ("collective", ["all_reduce at torch/distributed/distributed_c10d.py:1316", MAIN]),
        ("collective", ["c10d::Reducer::finalize_backward at libtorch_cpu.so", MAIN]),
        ("collective", [f"barrier at {DDP}", "save_checkpoint at x.py:1"]),
        ("collective", ["_wait_batch_p2p at torch/distributed/pipelining/schedules.py:683", MAIN]),
        ("device", ["cudaStreamSynchronize at libcudart.so.12", GRAPH]),
        ("rendezvous", ["_store_based_barrier at torch/distributed/distributed_c10d.py:9", MAIN]),
        ("data loader", [SELECT, "_try_get_data at torch/utils/data/dataloader.py:1291", MAIN]),
        ("data loader", ["__getitem__ at my_data.py:7", FETCH]),
        ("checkpoint", ["write at storage.py:7", "_save at torch/serialization.py:1312", MAIN]),
        ("compilation", ["compile_fx at torch/_inductor/compile_fx.py:9", "forward at model.py:3"]),
        ("import", ["_find_and_load at <frozen importlib._bootstrap>:1027", MAIN]),
        ("debugger", ["interaction at pdb.py:520", MAIN]),
        ("optimizer", ["step at torch/optim/adamw.py:220", MAIN]),
        ("backward", ["_engine_run_backward at torch/autograd/graph.py:979", MAIN]),
        ("forward", ["_call_impl at torch/nn/modules/module.py:1773", MAIN]),
        ("storage", ["nfs_wait_bit_killable at kernel", "vfs_read at kernel"]),
        ("the kernel", ["futex_wait at kernel"]),
        ("lock", ["Condition.wait at threading.py:327", "get at prefetch.py:4", MAIN]),
        ("user code", ["clock_nanosleep at libc.so.6", "time_sleep at libpython3.11.so.1.0", MAIN]),
        ("unknown", []),
    ],
)  # fmt: skip
def test_the_newest_frame_that_tells_decides(activity: str, frames: list[str]) -> None:
    assert activity_of(tuple(frames)).name == activity


def test_user_code_is_named_by_its_own_frame() -> None:
    frames = ("time_sleep at libpython3.11.so.1.0", "augment at augment.py:14", MAIN)
    assert activity_of(frames).frame == "augment at augment.py:14"
