"""PyTorch's names in the field's terms."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncall.importers.flight_recorder.names import operation, parse_call

SPELLINGS = {
    "nccl:all_reduce": "AllReduce",
    "nccl:allreduce_coalesced": "AllReduce",
    "nccl:all_reduce_barrier": "Barrier",
    "gloo:barrier": "Barrier",
    "gloo:all_gather": "AllGather",
    "nccl:_all_gather_base": "AllGather",
    "nccl:all_gather_into_tensor_coalesced": "AllGather",
    "nccl:_reduce_scatter_base": "ReduceScatter",
    "nccl:reduce_scatter_tensor_coalesced": "ReduceScatter",
    "nccl:broadcast": "Broadcast",
    "nccl:_broadcast_oop": "Broadcast",
    "nccl:reduce": "Reduce",
    "nccl:_reduce_oop": "Reduce",
    "nccl:all_to_all": "AllToAll",
    "nccl:gather": "Gather",
    "nccl:scatter": "Scatter",
    "nccl:coalesced": "Coalesced",
    "xccl:all_reduce": "AllReduce",
    "all_reduce": "AllReduce",
    "nccl:window_register": "window_register",
    "nccl:reduce_everything": "reduce_everything",
}


@pytest.mark.parametrize(("spelling", "op"), SPELLINGS.items())
def test_spellings(spelling, op):
    assert parse_call(spelling).op == op
    assert not parse_call(spelling).p2p


@given(st.integers(0, 9999), st.integers(0, 9999), st.sampled_from(["nccl", "gloo", "xccl"]))
def test_the_peer_is_the_other_end(me, other, backend):
    send, recv = (
        parse_call(f"{backend}:{c}") for c in (f"send {me}->{other}", f"recv {me}<-{other}")
    )
    assert (send.op, send.peer, send.p2p, send.backend) == ("Send", other, True, backend)
    assert (recv.op, recv.peer, recv.p2p, recv.backend) == ("Recv", other, True, backend)


@given(st.text(max_size=40))
def test_any_name_has_an_operation_and_names_are_settled(name):
    op = parse_call(name).op
    assert operation(op) == op or parse_call(name).p2p
