"""An unreliable-datagram queue pair of one NIC, by pyverbs: small messages to and fro.

pyverbs comes with rdma-core of the distribution (Debian: python3-pyverbs), for the distribution's
own Python; what PyPI has under that name is another program. It is imported only here, and late.
"""

from __future__ import annotations

import ipaddress
import select
import sys
import threading
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oncall.core.errors import OncallError
from oncall.node.common.system_files import read_text
from oncall.node.ping.local_nics import LocalNic
from oncall.node.ping.ping_packet import PACKET_BYTES, RdmaAddress
from oncall.node.ping.stamped_socket import Stamps, stamp

_QKEY = 0x0CA11  # both ends must name the same
_GRH_BYTES = 40  # before each datagram in its buffer
_SLOT_BYTES = 128
_SLOTS = 64  # for receiving, and as many for sending
_MOST_PEERS = 1024
_CHANNEL = "anon_inode:[infinibandevent]"
_opening_a_channel = threading.Lock()  # pings and empty probes are of threads of their own


class NoRdma(OncallError):
    """RDMA pings are not possible here; the message says why."""


@dataclass(frozen=True)
class Datagram:
    """What came, from whom, and when the program saw it."""

    data: bytes
    sender: RdmaAddress
    stamps: Stamps


def verbs() -> Any:
    """pyverbs. Raises NoRdma where this Python has none."""
    try:
        import pyverbs.addr
        import pyverbs.cq
        import pyverbs.device
        import pyverbs.enums
        import pyverbs.mr
        import pyverbs.pd
        import pyverbs.pyverbs_error
        import pyverbs.qp
        import pyverbs.wr
    except ImportError as error:
        version = ".".join(map(str, sys.version_info[:2]))
        raise NoRdma(
            f"no RDMA pings: this Python {version} has no pyverbs ({error}); install the "
            "distribution's python3-pyverbs and run oncall with the distribution's Python "
            "(a virtual environment needs --system-site-packages)"
        ) from None
    return pyverbs


class RdmaEndpoint:
    """A queue pair that sends and receives. Never blocks: poll `fileno()`."""

    def __init__(self, nic: LocalNic, root: Path = Path("/")) -> None:
        """Raises NoRdma."""
        if not nic.port:
            raise NoRdma(f"no RDMA pings: {nic.nic} is not an RDMA NIC")
        v = verbs()
        e = v.enums
        self._v = v
        self._port = nic.port
        self._gid_index, self._gid = _gid(nic, root)
        try:
            context = v.device.Context(name=nic.nic)
            self._pd = v.pd.PD(context)
            with _opening_a_channel:
                before = _channels()
                self._channel = v.cq.CompChannel(context)
                [self._descriptor] = _channels() - before
            self._received = v.cq.CQ(context, _SLOTS, None, self._channel, 0)
            self._sent = v.cq.CQ(context, _SLOTS)
            # The constructor takes the queue pair to "ready to send" with these attributes: a key
            # set later would leave every datagram dropped without an error.
            attributes = v.qp.QPAttr(port_num=nic.port)
            attributes.qkey = _QKEY
            room = v.qp.QPCap(_SLOTS, _SLOTS, 1, 1)
            wanted = v.qp.QPInitAttr(
                qp_type=e.IBV_QPT_UD, scq=self._sent, rcq=self._received, cap=room, sq_sig_all=1
            )
            self._pair = v.qp.QP(self._pd, wanted, attributes)
            self._memory = v.mr.MR(self._pd, 2 * _SLOTS * _SLOT_BYTES, e.IBV_ACCESS_LOCAL_WRITE)
            for slot in range(_SLOTS):
                self._take_back(slot)
            self._received.req_notify()
        except (v.pyverbs_error.PyverbsError, ValueError, OSError) as error:
            raise NoRdma(f"{nic.nic} cannot be used for RDMA pings: {error}") from None
        self._context = context
        self._peers: OrderedDict[RdmaAddress, Any] = OrderedDict()
        self._free = list(range(_SLOTS, 2 * _SLOTS))

    @property
    def address(self) -> RdmaAddress:
        return RdmaAddress(self._gid, self._pair.qp_num)

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        for each in (self._pair, self._memory, self._received, self._sent, self._channel):
            each.close()
        for handle in self._peers.values():
            handle.close()
        self._pd.close()
        self._context.close()

    def send(self, data: bytes, to: RdmaAddress) -> Stamps:
        """Send one message of up to PACKET_BYTES; returns the stamp before it. Raises OSError
        where that cannot be."""
        v = self._v
        self._reclaim()
        if not self._free:
            raise BlockingIOError("the send queue is full")
        try:
            handle = self._peer(to)
            slot = self._free[-1]
            at = slot * _SLOT_BYTES
            self._memory.write(data, len(data), at)
            piece = v.wr.SGE(self._memory.buf + at, len(data), self._memory.lkey)
            request = v.wr.SendWR(wr_id=slot, opcode=v.enums.IBV_WR_SEND, num_sge=1, sg=[piece])
            request.set_wr_ud(handle, to.qpn, _QKEY)
            before = stamp()
            self._pair.post_send(request)
        except v.pyverbs_error.PyverbsError as error:
            raise OSError(str(error)) from None
        self._free.pop()
        return before

    def receive(self) -> list[Datagram]:
        """All that has come. Raises OSError where the device has gone."""
        try:
            self._clear_events()
            found: list[Datagram] = []
            while True:
                count, completions = self._received.poll(_SLOTS)
                now = stamp()
                if not count:
                    return found
                for each in completions:
                    if each.status == self._v.enums.IBV_WC_SUCCESS:
                        found.append(self._datagram(each, now))
                    self._take_back(each.wr_id)
        except self._v.pyverbs_error.PyverbsError as error:
            raise OSError(str(error)) from None

    def _clear_events(self) -> None:
        """Take the events that woke us, and ask for the next, before the queue is looked at: what
        comes in between wakes us again."""
        readable = select.poll()
        readable.register(self._descriptor, select.POLLIN)
        events = 0
        while readable.poll(0):
            self._channel.get_cq_event(self._received)
            events += 1
        if events:
            self._received.ack_events(events)
            self._received.req_notify()

    def _datagram(self, completion: Any, now: Stamps) -> Datagram:
        at = completion.wr_id * _SLOT_BYTES
        header = self._memory.read(_GRH_BYTES, at)
        length = completion.byte_len - _GRH_BYTES
        data = self._memory.read(max(0, min(length, PACKET_BYTES)), at + _GRH_BYTES)
        return Datagram(bytes(data), RdmaAddress(_source(header), completion.src_qp), now)

    def _take_back(self, slot: int) -> None:
        """Let a buffer receive again."""
        v = self._v
        piece = v.wr.SGE(
            self._memory.buf + slot * _SLOT_BYTES, _GRH_BYTES + PACKET_BYTES, self._memory.lkey
        )
        self._pair.post_recv(v.wr.RecvWR(wr_id=slot, num_sge=1, sg=[piece]))

    def _reclaim(self) -> None:
        """Buffers of what has been sent are free again."""
        count, completions = self._sent.poll(_SLOTS)
        if count:
            self._free += [each.wr_id for each in completions]

    def _peer(self, to: RdmaAddress) -> Any:
        """The address handle of a peer, made once."""
        handle = self._peers.pop(to, None)
        if handle is None:
            addr = self._v.addr
            gid = str(ipaddress.IPv6Address(to.gid).exploded)
            route = addr.GlobalRoute(dgid=addr.GID(gid), sgid_index=self._gid_index, hop_limit=64)
            attributes = addr.AHAttr(gr=route, is_global=1, port_num=self._port)
            handle = addr.AH(self._pd, attr=attributes)
        self._peers[to] = handle
        if len(self._peers) > _MOST_PEERS:
            _, oldest = self._peers.popitem(last=False)
            oldest.close()
        return handle


def _gid(nic: LocalNic, root: Path) -> tuple[int, bytes]:
    """Index and bytes of the GID that pings leave by: of RoCE v2 the one of the NIC's address,
    else the port's first. Raises NoRdma."""
    port = root / "sys/class/infiniband" / nic.nic / "ports" / str(nic.port)
    wanted = _mapped(nic.address)
    first: tuple[int, bytes] | None = None
    for path in sorted((port / "gids").glob("*"), key=lambda path: int(path.name)):
        with suppress(ValueError):
            gid = ipaddress.IPv6Address(read_text(path) or "").packed
            kind = read_text(port / "gid_attrs/types" / path.name) or ""
            if gid == wanted and kind.endswith("v2"):
                return int(path.name), gid
            if first is None and any(gid):
                first = int(path.name), gid
    if first is None:
        raise NoRdma(f"{nic.nic} port {nic.port} has no GID")
    return first


def _mapped(address: str) -> bytes:
    """An IP address as a GID."""
    parsed = ipaddress.ip_address(address)
    return bytes(10) + b"\xff\xff" + parsed.packed if parsed.version == 4 else parsed.packed


def _source(header: bytes) -> bytes:
    """The sender's GID, of the global routing header, or of the IPv4 header that RoCE v2 puts into
    the second half of its place."""
    if header[0] >> 4 == 6:
        return bytes(header[8:24])
    return bytes(10) + b"\xff\xff" + bytes(header[32:36])


def _channels() -> set[int]:
    """The completion channels that this process has open; pyverbs does not tell its number."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            if str(entry.readlink()) == _CHANNEL:
                found.add(int(entry.name))
    return found
