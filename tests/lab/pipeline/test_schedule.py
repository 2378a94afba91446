"""Schedules of pipelines: every micro-batch once each way, in an order that can be run."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from oncall_lab.pipeline.schedule import Exchange, Pipeline, Program, Task, program


@st.composite
def schedules(draw: st.DrawFn) -> tuple[str, Pipeline, int]:
    name = draw(st.sampled_from(["1F1B", "interleaved", "GPipe"]))
    if name == "interleaved":
        pp = draw(st.integers(3, 6))
        pipeline = Pipeline(pp, draw(st.integers(2, 3)))
        return name, pipeline, pp * draw(st.integers(1, 3))
    return name, Pipeline(draw(st.integers(1, 6))), draw(st.integers(1, 9))


def tasks(items: Program) -> list[Task]:
    return [item for item in items if isinstance(item, Task)]


def exchanges(items: Program) -> list[Exchange]:
    return [item for item in items if isinstance(item, Exchange)]


@given(schedules())
def test_each_stage_does_every_task_once(case: tuple[str, Pipeline, int]) -> None:
    name, pipeline, micro_batches = case
    for stage in range(pipeline.pp):
        done = tasks(program(name, pipeline, stage, micro_batches))
        assert len(done) == len(set(done)) == 2 * pipeline.chunks * micro_batches
        for task in done:
            if task.task == "backward":
                ahead = Task("forward", task.chunk, task.micro_batch)
                assert done.index(ahead) < done.index(task)


@given(schedules())
def test_what_is_sent_is_received_once_and_between_a_pair_in_order(
    case: tuple[str, Pipeline, int],
) -> None:
    name, pipeline, micro_batches = case
    sent: dict[tuple[int, int], list[object]] = {}
    received: dict[tuple[int, int], list[object]] = {}
    for stage in range(pipeline.pp):
        for exchange in exchanges(program(name, pipeline, stage, micro_batches)):
            for message in exchange.sends:
                pair = stage, message.to_virtual() % pipeline.pp
                sent.setdefault(pair, []).append(message)
            for message in exchange.receives:
                pair = message.virtual % pipeline.pp, stage
                received.setdefault(pair, []).append(message)
    assert sent == received


@given(schedules())
def test_a_task_stands_after_its_input_and_before_its_output(
    case: tuple[str, Pipeline, int],
) -> None:
    name, pipeline, micro_batches = case
    for stage in range(pipeline.pp):
        items = program(name, pipeline, stage, micro_batches)
        for place, task in enumerate(items):
            if not isinstance(task, Task):
                continue
            before, after = exchanges(items[:place]), exchanges(items[place:])
            given_to, sent_on = pipeline.input_of(stage, task), pipeline.output_of(stage, task)
            assert given_to is None or any(given_to in e.receives for e in before)
            assert sent_on is None or any(sent_on in e.sends for e in after)


def test_the_order_of_one_forward_one_backward() -> None:
    """Narayanan et al. 2021, Figure 4: four stages, the third of them."""
    done = tasks(program("1F1B", Pipeline(4), 2, 4))
    assert [f"{task.task[0]}{task.micro_batch}" for task in done] == [
        "f0", "f1", "b0", "f2", "b1", "f3", "b2", "b3",
    ]  # fmt: skip


def test_the_order_of_interleaved_one_forward_one_backward() -> None:
    """The first stage of four with two chunks: ten forwards, then one and one."""
    done = tasks(program("interleaved", Pipeline(4, 2), 0, 8))
    assert [f"{task.task[0]}{task.chunk}{task.micro_batch}" for task in done[:14]] == [
        "f00", "f01", "f02", "f03", "f10", "f11", "f12", "f13", "f04", "f05",
        "f06", "b10", "f07", "b11",
    ]  # fmt: skip
