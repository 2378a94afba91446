"""Run as a program: feeds the plugin through the real NCCL's own adaptors, by symbol address.

    nccl_adaptors.py LIBNCCL PLUGIN VERSION

Prints the plugin's name as NCCL found it for that version of the interface ("none": it did not),
then has NCCL's adaptor tell it of one AllReduce. The descriptors are version 7's, which is what
NCCL 2.31 and 2.32 pass to their adaptors; their offsets are from that library's debug information.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from ctypes import CFUNCTYPE, POINTER, Structure, byref, c_char_p, c_int, c_uint64, c_void_p

_COLL, _KERNEL_CH, _GROUP, _COLL_API, _KERNEL_CH_STOP = 1 << 1, 1 << 6, 1 << 0, 1 << 9, 22


class Profiler(Structure):
    """struct ncclProfiler_v7_t."""

    _fields_ = [
        ("name", c_char_p),
        (
            "init",
            CFUNCTYPE(
                c_int,
                POINTER(c_void_p),
                c_uint64,
                POINTER(c_int),
                c_char_p,
                c_int,
                c_int,
                c_int,
                c_void_p,
            ),
        ),
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


def _tell(profiler: Profiler, version: int) -> None:
    """One AllReduce of 1000 floats on two channels, from call to end."""
    context, mask = c_void_p(), c_int(0)

    def start(descriptor: bytes) -> int | None:
        handle = c_void_p()
        assert profiler.start(context, byref(handle), descriptor) == 0
        return handle.value

    code = profiler.init(byref(context), 0xABC, byref(mask), b"tp", 1, 4, 1, None)
    assert code == 0 and mask.value & _COLL
    function, datatype = (32, _text("AllReduce")), (72, _text("ncclFloat32"))
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
    # NCCL passes what dlopen gave it; so do we.
    plugin = ctypes.CDLL(plugin_path, mode=os.RTLD_NOW | os.RTLD_LOCAL)
    address = _address(library, path, f"_Z18getNcclProfiler_v{version}Pv")
    if address is None:
        print("stripped")
        return
    found = CFUNCTYPE(c_void_p, c_void_p)(address)(plugin._handle)
    if not found:
        print("none")
        return
    profiler = Profiler.from_address(found)
    print(profiler.name.decode())
    _tell(profiler, version)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
