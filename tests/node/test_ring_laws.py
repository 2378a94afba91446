"""Whatever the order of writing, reading and dying: every record comes once and in order, or is
counted as dropped or torn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oncall.node.rings.ring import RingReader

SLOTS = 64
Recording = Callable[..., Any]  # tests/conftest.py: starts a process that records

_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(1, 100)),
        st.tuples(st.just("drain"), st.integers(1, 80)),
        st.tuples(st.just("begin"), st.just(0)),
        st.tuples(st.just("finish"), st.just(0)),
    ),
    max_size=20,
)


class Model:
    """What a ring must do, said simply: a queue of numbered records, some of them unfinished."""

    def __init__(self) -> None:
        self.numbered = 0
        self.queue: list[tuple[int, bool]] = []  # number, whether it is finished
        self.dropped = 0

    def write(self, count: int, finished: bool = True) -> None:
        for _ in range(count):
            self.numbered += 1
            if len(self.queue) < SLOTS:
                self.queue.append((self.numbered, finished))
            else:
                self.dropped += 1

    def finish(self) -> None:
        self.queue = [(number, True) for number, _ in self.queue]

    def drain(self, most: int) -> list[int]:
        taken: list[int] = []
        while self.queue and len(taken) < most and self.queue[0][1]:
            taken.append(self.queue.pop(0)[0])
        return taken


@given(steps=_STEPS)
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_ring_does_what_a_queue_does(recording: Recording, steps: list[tuple[str, int]]) -> None:
    process = recording(ONCALL_RING_RECORDS=str(SLOTS))
    model = Model()
    with RingReader.open(process.ring) as ring:
        for step, number in steps:
            if step == "drain":
                assert ring.drain(number)["operation"].tolist() == model.drain(number)
            elif step == "begin" and len(model.queue) == SLOTS:
                continue  # the writer's `begin` does not look whether there is room
            else:
                process.tell(f"{step} {number}")
                match step:
                    case "write":
                        model.write(number)
                    case "begin":
                        model.write(1, finished=False)
                    case "finish":
                        model.finish()
            assert ring.head - ring.tail == len(model.queue)
            assert ring.dropped == model.dropped
        process.kill()
        left = [number for number, finished in model.queue if finished]
        assert ring.drain()["operation"].tolist() == left
        assert ring.torn == len(model.queue) - len(left)
        assert ring.head == ring.tail
