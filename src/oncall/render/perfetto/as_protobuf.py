"""A trace in Perfetto's own format, a row of protobuf packets, by the classes of PyPI's `perfetto`.

Times are Unix ns, said to be both Perfetto's clock and the wall's, so that the viewer can show UTC.
What repeats, such as names, is written once and referred to by a number.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import IO, Any

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (
    ClockSnapshot,
    DebugAnnotation,
    TracePacket,
    TrackDescriptor,
    TrackEvent,
)
from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder

from oncall.core.printable import harmless
from oncall.render.perfetto.trace import End, Item, Placed, Process, Thread

_REALTIME, _BOOTTIME = 1, 6  # BuiltinClock
_ONE_SEQUENCE = 1
_LARGEST_INT = 2**63


def write_protobuf(items: Iterable[Item], file: IO[bytes]) -> None:
    """Write what `trace` yields, at least one item."""
    packets = _Packets(file)
    for item in items:
        match item:
            case Process():
                packets.process(item)
            case Thread():
                packets.thread(item)
            case Placed():
                packets.event(item)
            case End():
                packets.end(item)


class _Packets:
    """Packets of one sequence, in which names have numbers."""

    def __init__(self, file: IO[bytes]) -> None:
        self._builder = StreamingTraceProtoBuilder(file)
        self._event_names: dict[str, int] = {}
        self._annotation_names: dict[str, int] = {}
        first = self._builder.create_packet()
        first.trusted_packet_sequence_id = _ONE_SEQUENCE
        first.first_packet_on_sequence = True
        first.sequence_flags = TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        # The track of number 0, which no event is on, says that ranks of siblings count.
        first.track_descriptor.uuid = 0
        first.track_descriptor.process_ordering = TrackDescriptor.PROCESS_ORDERING_EXPLICIT
        self._builder.write_packet(first)
        self._clocks_stated = False

    def process(self, process: Process) -> None:
        packet = self._builder.create_packet()
        track = packet.track_descriptor
        track.uuid = _uuid(process.pid)
        track.sibling_order_rank = process.order
        track.child_ordering = TrackDescriptor.EXPLICIT
        track.process.pid = process.pid
        track.process.process_name = harmless(process.name)
        self._builder.write_packet(packet)

    def thread(self, thread: Thread) -> None:
        packet = self._builder.create_packet()
        track = packet.track_descriptor
        track.uuid, track.parent_uuid = _uuid(thread.pid, thread.tid), _uuid(thread.pid)
        track.name = harmless(thread.name)
        track.sibling_order_rank = thread.tid
        if thread.reads:
            track.counter.SetInParent()
        self._builder.write_packet(packet)

    def event(self, placed: Placed) -> None:
        event = placed.event
        if not self._clocks_stated:
            self._state_clocks(event.at_ns)
        packet = self._packet(placed.pid, placed.tid, event.at_ns)
        if event.value is not None:
            packet.track_event.type = TrackEvent.TYPE_COUNTER
            packet.track_event.double_counter_value = event.value
            self._builder.write_packet(packet)
            return
        lasts = event.until_ns is not None
        packet.track_event.type = TrackEvent.TYPE_SLICE_BEGIN if lasts else TrackEvent.TYPE_INSTANT
        self._name(packet, event.name)
        for name, value in json.loads(event.about).items():
            if value is not None:
                self._annotate(packet, name, value)
        self._builder.write_packet(packet)
        if event.until_ns is not None:
            end = self._packet(placed.pid, placed.tid, max(event.until_ns, event.at_ns))
            end.track_event.type = TrackEvent.TYPE_SLICE_END
            self._builder.write_packet(end)

    def end(self, end: End) -> None:
        """Found by the viewer by track and time, as in JSON; `flow_ids` would need the event."""
        packet = self._packet(end.pid, end.tid, end.at_ns)
        packet.track_event.categories.append("wait")
        self._name(packet, end.name)
        legacy = packet.track_event.legacy_event
        legacy.phase = ord("s" if end.starts else "f")
        legacy.unscoped_id = end.number
        legacy.bind_to_enclosing = not end.starts
        self._builder.write_packet(packet)

    def _packet(self, pid: int, tid: int, at_ns: int) -> TracePacket:
        packet = self._builder.create_packet()
        packet.timestamp = at_ns
        packet.trusted_packet_sequence_id = _ONE_SEQUENCE
        packet.sequence_flags = TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
        packet.track_event.track_uuid = _uuid(pid, tid)
        return packet

    def _state_clocks(self, at_ns: int) -> None:
        packet = self._builder.create_packet()
        packet.clock_snapshot.primary_trace_clock = _BOOTTIME
        for clock in (_REALTIME, _BOOTTIME):
            packet.clock_snapshot.clocks.append(
                ClockSnapshot.Clock(clock_id=clock, timestamp=at_ns)
            )
        self._builder.write_packet(packet)
        self._clocks_stated = True

    def _name(self, packet: TracePacket, name: str) -> None:
        number = self._event_names.get(name)
        if number is None:
            number = self._event_names[name] = len(self._event_names) + 1
            packet.interned_data.event_names.add(iid=number, name=harmless(name))
        packet.track_event.name_iid = number

    def _annotate(self, packet: TracePacket, name: str, value: Any) -> None:
        number = self._annotation_names.get(name)
        if number is None:
            number = self._annotation_names[name] = len(self._annotation_names) + 1
            packet.interned_data.debug_annotation_names.add(iid=number, name=name)
        _put(packet.track_event.debug_annotations.add(name_iid=number), value)


def _put(annotation: DebugAnnotation, value: Any) -> None:
    match value:
        case bool():
            annotation.bool_value = value
        case int() if -_LARGEST_INT <= value < _LARGEST_INT:
            annotation.int_value = value
        case float():
            annotation.double_value = value
        case list():
            for one in value:
                _put(annotation.array_values.add(), one)
        case dict():
            for name, one in value.items():
                _put(annotation.dict_entries.add(name=name), one)
        case _:
            annotation.string_value = harmless(str(value))


def _uuid(pid: int, tid: int = 0) -> int:
    return pid << 32 | tid
