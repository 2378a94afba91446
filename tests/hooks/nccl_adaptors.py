"""Run as a program: feeds the plugin through the real NCCL's own adaptors, by symbol address.

    nccl_adaptors.py LIBNCCL PLUGIN VERSION

Prints the plugin's name as NCCL found it for that version of the interface ("none": it did not;
"unknown": this NCCL has no adaptor for it, or does not say where), then has
NCCL's adaptor tell it of one AllReduce. The descriptors are version 7's, which is what NCCL 2.31
and 2.32 pass to their adaptors, and earlier ones read the beginning of; their offsets are from
that library's debug information.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from ctypes import CFUNCTYPE, POINTER, Structure, byref, c_char_p, c_int, c_uint64, c_void_p

_COLL, _KERNEL_CH, _GROUP, _COLL_API, _KERNEL_CH_STOP = 1 << 1, 1 << 6, 1 << 0, 1 << 9, 22

_SINCE_V4, _SINCE_V5 = 22703, 22803


_OUT, _MASK = POINTER(c_void_p), POINTER(c_int)
_INIT = CFUNCTYPE(c_int, _OUT, c_uint64, _MASK, c_char_p, c_int, c_int, c_int, c_void_p)
_INIT_V4 = CFUNCTYPE(c_int, _OUT, _MASK, c_char_p, c_uint64, c_int, c_int, c_int, c_void_p)


class Profiler(Structure):
    """struct ncclProfiler_v4_t to ncclProfiler_v7_t: alike but for init's arguments."""

    _fields_ = [
        ("name", c_char_p),
        ("init", c_void_p),
        ("start", CFUNCTYPE(c_int, c_void_p, POINTER(c_void_p), c_char_p)),
        ("stop", CFUNCTYPE(c_int, c_void_p)),
        ("state", CFUNCTYPE(c_int, c_void_p, c_int, POINTER(c_uint64))),
        ("finalize", CFUNCTYPE(c_int, c_void_p)),
    ]


_KEPT: list[ctypes.Array[ctypes.c_char]] = []  # strings that descriptors point at


def _text(value: str) -> int:
    _KEPT.append(ctypes.create_string_buffer(value.encode()))
    return ctypes.addressof(_KEPT[-1])


def _event(type_: int, parent: int | None = None, **at: tuple[int, int]) -> bytes:
    """A descriptor; each of `at` is (offset, value), written as 8 bytes."""
    descriptor = bytearray(136)
    for offset, value in ((0, type_), (8, parent or 0), *at.values()):
        descriptor[offset : offset + 8] = value.to_bytes(8, sys.byteorder)
    return bytes(descriptor)


def _address(library: ctypes.CDLL, path: str, mangled: str) -> int | None:
    """Where a function is that the library does not export; None: it says not."""
    listing = subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout
    found = {name: int(at, 16) for at, _, name in map(str.split, _defined(listing))}
    if mangled not in found:
        return None
    exported = ctypes.cast(library.ncclGetVersion, c_void_p).value
    assert exported is not None
    return exported - found["ncclGetVersion"] + found[mangled]


def _defined(listing: str) -> list[str]:
    return [line for line in listing.splitlines() if len(line.split()) == 3]


def _begin(profiler: Profiler, knows_calls: bool) -> c_void_p:
    """A communicator's context; `knows_calls`: this NCCL has version 5 at least."""
    context, mask = c_void_p(), c_int(0)
    if knows_calls:
        init = _INIT(profiler.init)
        code = init(byref(context), 0xABC, byref(mask), b"tp", 1, 4, 1, None)
    else:
        code = _INIT_V4(profiler.init)(byref(context), byref(mask), b"tp", 0xABC, 1, 4, 1, None)
    assert code == 0 and mask.value & _COLL
    return context


def _tell(profiler: Profiler, version: int, *, knows_calls: bool) -> None:
    """One AllReduce of 1000 floats on two channels, from call to end."""
    context = _begin(profiler, knows_calls)

    def start(descriptor: bytes) -> int | None:
        handle = c_void_p()
        assert profiler.start(context, byref(handle), descriptor) == 0
        return handle.value

    function, datatype = (32, _text("AllReduce")), (72, _text("ncclFloat32"))
    call = None
    if knows_calls:
        call = start(
            _event(_COLL_API, function=(24, function[1]), count=(32, 1000), type=(40, datatype[1]))
        )
    assert (call is not None) == (version > 4)  # version 4's adaptor keeps it to itself
    if call:
        profiler.stop(call)
    start(_event(_GROUP))
    task = start(
        _event(
            _COLL,
            call,
            function=function,
            count=(56, 1000),
            datatype=datatype,
            channels_and_warps=(80, 2 | 16 << 8),
            algo=(88, _text("RING")),
            proto=(96, _text("LL128")),
        )
    )
    assert task
    profiler.stop(task)
    for channel in range(2):
        kernel = start(_event(_KERNEL_CH, task, channel=(24, channel), timer=(32, 5000)))
        assert kernel
        assert profiler.state(kernel, _KERNEL_CH_STOP, byref(c_uint64(8000))) == 0
        profiler.stop(kernel)


def main(path: str, plugin_path: str, version: int) -> None:
    library = ctypes.CDLL(path)
    code = c_int()
    library.ncclGetVersion(byref(code))
    if code.value < (_SINCE_V4 if version == 4 else _SINCE_V5):
        print("unknown")
        return
    # NCCL passes what dlopen gave it; so do we.
    plugin = ctypes.CDLL(plugin_path, mode=os.RTLD_NOW | os.RTLD_LOCAL)
    address = _address(library, path, f"_Z18getNcclProfiler_v{version}Pv")
    if address is None:
        print("unknown")
        return
    found = CFUNCTYPE(c_void_p, c_void_p)(address)(plugin._handle)
    if not found:
        print("none")
        return
    profiler = Profiler.from_address(found)
    print(profiler.name.decode())
    _tell(profiler, version, knows_calls=code.value >= _SINCE_V5)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
