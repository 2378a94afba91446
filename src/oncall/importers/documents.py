"""Documents that are parsed whole (JSON, pickle, YAML), without trusting what they ask for.

A parser's memory is foreseen from the document: a few bytes can ask for a hundred each. Where that
cannot be foreseen (a pickle's opcodes), the process's own limit holds while it is read.
"""

from __future__ import annotations

import gc
import io
import json
import pickle
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

try:
    import resource
except ImportError:  # no such limits on this platform
    resource = None  # type: ignore[assignment]

from oncall.core.errors import Unreadable
from oncall.core.room import address_space_bytes
from oncall.importers.bounds import DEFAULT, Bounds, memory_bytes, size

# Memory for each byte of JSON, at worst: empty containers in small ones take 35 (measured).
JSON_FACTOR = 48.0
# Of a document that may take much, what is in it tells more: bytes in memory for each of these.
_JSON_COSTS = (("{", 240), ("[", 72), (",", 160))
_JSON_TEXT_COST = 5  # the bytes themselves, and the text of them, of up to 4 bytes a character

_LARGE_VALUE = 2 << 20  # characters: beside its decoding, pausing the collection costs nothing
_PICKLE_FACTOR = 64  # dictionaries in memory against their pickled size, generously
_PICKLE_SLACK_BYTES = 2**30  # and what the address space holds besides: arenas, read-ahead
_MOST_YAML_BYTES = 64 * 1024  # sizes of parallel groups, a few lines


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Documents are trees without cycles: collecting while their containers grow takes as long as
    parsing, or three times as long."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def parse_json(data: bytes, bounds: Bounds = DEFAULT) -> Any:
    """The value of a JSON document. Raises Unreadable, with the reason, and nothing else."""
    check_json(data, bounds)
    try:
        return json.loads(data)
    except json.JSONDecodeError as error:
        at = f"line {error.lineno} column {error.colno}"
        raise Unreadable(f"truncated or damaged JSON at {at}: {error.msg}") from error
    except RecursionError as error:
        raise Unreadable("refused: nested too deeply") from error
    except (ValueError, MemoryError) as error:  # no UTF-8, a number of thousands of digits
        raise Unreadable(f"damaged: {error}") from error


def check_json(data: bytes | str, bounds: Bounds = DEFAULT) -> None:
    """Raises Unreadable if the values of this JSON may take more memory than one part may."""
    if len(data) * JSON_FACTOR <= bounds.part_memory_bytes >> 4:
        return
    cost = len(data) * _JSON_TEXT_COST
    for mark, each in _JSON_COSTS:
        count = data.count(mark) if isinstance(data, str) else data.count(mark.encode())
        cost += count * each
    if cost > memory_bytes(bounds):
        raise Unreadable(
            f"its {size(len(data))} of JSON may take {size(cost)} of memory, more than the "
            f"{size(memory_bytes(bounds))} that one file may take here"
        )


class JsonValues:
    """JSON values that stand one after another in a text, each decoded where it begins."""

    def __init__(self, *, fractions_as_text: bool = False) -> None:
        self._decoder = (
            json.JSONDecoder(parse_float=str) if fractions_as_text else json.JSONDecoder()
        )

    def at(self, text: str, start: int) -> tuple[Any, int]:
        """The value that begins at `start`, and where it ends.

        Raises ValueError (json.JSONDecodeError has its place) for damage, and Unreadable for one
        that is nested too deeply. Who lets a value grow beyond a mebibyte asks `check_json`.
        """
        try:
            if len(text) - start > _LARGE_VALUE:
                with no_garbage_collection():
                    return self._decoder.raw_decode(text, start)
            return self._decoder.raw_decode(text, start)
        except RecursionError as error:
            raise Unreadable("nested too deeply") from error


# --------------------------------------------------------------------- pickle


class _PlainUnpickler(pickle.Unpickler):
    """An unpickler of containers, strings and numbers, and of nothing else."""

    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        raise Unreadable(f"refused: the pickle asks for {module_name}.{global_name}")

    def persistent_load(self, pid: Any, /) -> NoReturn:  # noqa: ARG002
        raise Unreadable("refused: the pickle asks for a persistent object")


def is_pickle(data: bytes) -> bool:
    """Whether these bytes begin as a pickle of protocol 2 to 5 does."""
    return data[:1] == pickle.PROTO and data[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05")


def parse_pickle(data: bytes) -> Any:
    """What a pickle of plain containers holds. Raises Unreadable, with the reason, alone.

    One object can be in it many times: a caller that walks it counts what it looks at against the
    document's bytes, and takes no value for a scalar that it has not checked (`scalars`).
    """
    # The buffer lets the unpickler read ahead: five times faster than a bare BytesIO.
    file = io.BufferedReader(io.BytesIO(data), len(data) + 1)
    try:
        with _bounded_memory(len(data)):
            return _PlainUnpickler(file).load()
    except Unreadable:
        raise
    except RecursionError as error:
        raise Unreadable("refused: nested too deeply") from error
    except MemoryError as error:
        raise Unreadable("refused: it asks for more memory than its size explains") from error
    except Exception as error:  # the pickle machine raises nearly any type on damaged input
        raise Unreadable(f"truncated or damaged pickle: {error}") from error


@contextmanager
def _bounded_memory(file_bytes: int) -> Iterator[None]:
    """Limit what reading may allocate: one opcode of a hostile pickle can ask for gigabytes."""
    space = address_space_bytes()
    if resource is None or not space:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = min(file_bytes * _PICKLE_FACTOR + _PICKLE_SLACK_BYTES, memory_bytes(DEFAULT))
    bound = space + most
    if soft != resource.RLIM_INFINITY:
        bound = min(bound, soft)
    resource.setrlimit(resource.RLIMIT_AS, (bound, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


_SCALARS = {str, int, float, bool, type(None)}


def scalars(values: Iterable[Any]) -> None:
    """Raises ValueError if any of these is no string, number, flag or None.

    Of containers that hold one another many times, a name, a hash or an array would never end.
    """
    strange = set(map(type, values)) - _SCALARS
    if strange:
        raise ValueError(f"a {strange.pop().__name__} where a name or a number belongs")


# ----------------------------------------------------------------------- YAML


def parse_yaml(data: bytes) -> Any:
    """The value of a short YAML document, None for one that is damaged."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        return YAML(typ="safe").load(data[:_MOST_YAML_BYTES])
    except (YAMLError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
