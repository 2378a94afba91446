"""What is sent arrives, in whatever pieces; and what is no request or answer is named."""

from __future__ import annotations

import io
import json
from typing import IO, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncall.node.store.wire import (
    MOST_LINE_BYTES,
    End,
    FrameDecoder,
    Limits,
    Part,
    Request,
    WireError,
    check_versions,
    parse_request,
    write_error,
    write_frames,
)


class Kept:
    """A sink in memory."""

    def __init__(self) -> None:
        self.parts: list[tuple[str, int, _Buffer]] = []

    def part(self, table: str, rows: int) -> IO[bytes]:
        self.parts.append((table, rows, _Buffer()))
        return self.parts[-1][2]


class _Buffer(io.BytesIO):
    content = b""

    def close(self) -> None:
        self.content = self.getvalue()
        super().close()


@given(
    job=st.text(st.characters(categories=("L", "N", "P", "S")), max_size=40),
    comms=st.lists(st.integers(0, 2**64 - 1), max_size=5, unique=True),
    seqs=st.none() | st.tuples(st.integers(0, 2**40), st.integers(0, 2**40)),
    since_ns=st.none() | st.integers(0, 2**62),
)
def test_a_request_is_read_as_it_was_written(
    job: str, comms: list[int], seqs: tuple[int, int] | None, since_ns: int | None
) -> None:
    request = Request("detail", job, since_ns, comms=tuple(comms), seqs=seqs, tables=("ops",))
    assert parse_request(request.line()) == request


def test_what_a_newer_console_adds_is_passed_over() -> None:
    message = json.loads(Request("hello").line()) | {"protocol": 7, "colour": "blue"}
    assert parse_request(json.dumps(message).encode()).ask == "hello"


@pytest.mark.parametrize(
    ("changed", "reason", "said"),
    [
        ({"oldest_protocol": 2}, "version", "upgrade oncall on the node"),
        ({"protocol": 0}, "version", "upgrade oncall on the console"),
        ({"ask": "shell"}, "request", "unknown request `shell`"),
        ({"ask": ["hello"]}, "request", "unknown request"),
        ({"job": 5}, "request", "`job`"),
        ({"job": "a\x1b[2Jb"}, "request", "`job`"),
        ({"job": "x" * 2000}, "request", "`job`"),
        ({"job": None}, "request", "must name a job"),
        ({"since_ns": "yesterday"}, "request", "`since_ns`"),
        ({"since_ns": 2**63}, "request", "`since_ns`"),
        ({"since_ns": True}, "request", "`since_ns`"),
        ({"budget_rows": 0}, "request", "`budget_rows`"),
        ({"budget_rows": 10**12}, "request", "`budget_rows`"),
        ({"tables": ["ops; DROP TABLE ops"]}, "request", "`tables`"),
        ({"comms": [-1]}, "request", "`comms`"),
        ({"comms": "all"}, "request", "`comms`"),
        ({"seqs": [1, 2, 3]}, "request", "`seqs`"),
        ({"protocol": "one"}, "request", "`protocol`"),
    ],
)
def test_a_wrong_request_is_refused_by_name(
    changed: dict[str, Any], reason: str, said: str
) -> None:
    message = json.loads(Request("digest", job="llama").line()) | changed
    with pytest.raises(WireError) as refused:
        parse_request(json.dumps(message).encode())
    assert refused.value.reason == reason
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "line", [b"", b"\xff\xfe", b"[]", b"null", b"{" * 10_000, b"1" * (MOST_LINE_BYTES + 1)]
)
def test_what_is_no_request_is_refused(line: bytes) -> None:
    with pytest.raises(WireError):
        parse_request(line)


@given(st.data())
def test_an_answer_is_read_in_whatever_pieces_it_comes(data: st.DataObject) -> None:
    contents = data.draw(st.lists(st.binary(min_size=1, max_size=300), max_size=4))
    stream = io.BytesIO()
    frames: list[Part | End] = [Part("ops", len(content), content) for content in contents]
    write_frames(stream, iter([*frames, End({"node": "gpu017"})]))
    sent = stream.getvalue()
    sink = Kept()
    decoder = FrameDecoder(sink)
    end, at = None, 0
    while at < len(sent):
        assert end is None
        size = data.draw(st.integers(1, len(sent)))
        end = decoder.feed(sent[at : at + size])
        at += size
    assert end == End({"node": "gpu017"})
    assert [buffer.content for _, _, buffer in sink.parts] == contents


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"Last login: Tue\n", "does not speak the protocol"),
        (b'{"part": "../../etc/passwd", "rows": 1, "bytes": 4}\n', "does not speak the protocol"),
        (b'{"part": "ops", "rows": 1}\n', "without its size"),
        (b'{"part": "ops", "rows": 1, "bytes": -4}\n', "without its size"),
        (b'{"part": "ops", "rows": 1, "bytes": 99999}\n', "over the limit"),
        (b'{"end": {}}\n{"end": {}}\n', "sent data after the end"),
        (b"x" * (MOST_LINE_BYTES + 1), "a line without end"),
        (b'{"error": "no \\u001b[31mway", "reason": "job"}\n', "no  [31mway"),
    ],
)
def test_what_is_no_answer_is_named(sent: bytes, said: str) -> None:
    with pytest.raises(WireError) as wrong:
        FrameDecoder(Kept(), Limits(part_bytes=1000)).feed(sent)
    assert said in str(wrong.value)


def test_an_answer_without_end_is_cut_off_at_its_limit() -> None:
    decoder = FrameDecoder(Kept(), Limits(total_bytes=10_000))
    decoder.feed(b'{"part": "ops", "rows": 1, "bytes": 50000}\n')
    with pytest.raises(WireError, match="more than"):
        for _ in range(100):
            decoder.feed(b"\0" * 1000)
    decoder.close()


def test_rows_are_bounded_over_all_parts_of_an_answer() -> None:
    decoder = FrameDecoder(Kept(), Limits(rows=100))
    sent = b'{"part": "ops", "rows": 60, "bytes": 1}\nx'
    decoder.feed(sent)
    with pytest.raises(WireError, match="more than 100 rows in one answer"):
        decoder.feed(sent)


def test_an_error_frame_carries_its_reason() -> None:
    stream = io.BytesIO()
    write_error(stream, "no such job", "job")
    with pytest.raises(WireError, match="no such job") as reported:
        FrameDecoder(Kept()).feed(stream.getvalue())
    assert reported.value.reason == "job"


@pytest.mark.parametrize(
    ("protocol", "said"),
    [
        ([2, 3], "upgrade the console"),
        ([0, 0], "too old"),
        (None, "does not say"),
        ([1], "not say"),
    ],
)
def test_a_node_of_another_age_is_named(protocol: Any, said: str) -> None:
    with pytest.raises(WireError, match=said):
        check_versions({"protocol": protocol, "oncall_version": "9.1"})


def test_a_newer_node_that_still_speaks_ours_is_understood() -> None:
    check_versions({"protocol": [1, 4]})
