"""Recordings of every kind, damaged by chance or by malice, and what reading them may end in.

    python tests/fuzz/reader_mutations.py --seeds 0-9999 [--data FOLDER]

`checked(seeds, samples())` damages a sample for each seed and reads it as `oncall diagnose` does.
It may be read, or refused by BadInput, within ten seconds of CPU and two gigabytes; whatever else
happens is yielded. One seed makes one file, always the same.
"""

from __future__ import annotations

import argparse
import gzip
import random
import re
import resource
import struct
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import duckdb
from recording_samples import Sample, samples

from oncall.core.errors import BadInput
from oncall.evidence.incident import Incident
from oncall.importers.detect import load

MOST_CPU_S = 10.0
MOST_BYTES = 2 * 2**30
MOST_TEXT = 10_000  # characters of what is said of one recording
_MOST_DAMAGED_BYTES = 2_000_000


@dataclass(frozen=True)
class Failure:
    """What must not happen, and the file that made it happen."""

    seed: int
    name: str
    problem: str
    data: bytes


# ------------------------------------------------------------------- damages

Damage = Callable[[random.Random, bytearray, Sequence[Sample]], bytes]
_NUMBERS = (
    b"0", b"-1", b"1", b"255", b"65536", b"2147483647", b"-2147483648", b"4294967296",
    b"9223372036854775807", b"-9223372036854775808", b"18446744073709551615", b"1" + b"0" * 30,
    b"9" * 5000, b"NaN", b"Infinity", b"-Infinity", b"1e308", b"1e-400", b"1.5", b"null", b'""',
    b"[]", b"{}", b"true", b'"\\ud800"', b"1000000", b"999999", b"0x7f", b"1e9",
)  # fmt: skip
_WORDS = (
    b"\x00", b"\xff\xfe", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\\ud800", b"\xe2\x80\xa8", b"[/]",
    b"'; DROP TABLE ops; --", b"../" * 10, b"\x1b[2J", b"a" * 70_000, b'"', b"{", b"[", b"\\",
)  # fmt: skip


def _flip(r: random.Random, data: bytearray, _: Sequence[Sample]) -> bytes:
    for _n in range(r.choice((1, 1, 2, 8, 64))):
        if data:
            data[r.randrange(len(data))] ^= 1 << r.randrange(8)
    return bytes(data)


def _set(r: random.Random, data: bytearray, _: Sequence[Sample]) -> bytes:
    for _n in range(r.choice((1, 2, 8))):
        if data:
            data[r.randrange(len(data))] = r.choice((0, 255, 127, 128, r.randrange(256)))
    return bytes(data)


def _cut(r: random.Random, data: bytearray, _: Sequence[Sample]) -> bytes:
    return bytes(data[: r.randrange(len(data) + 1)])


def _drop(r: random.Random, data: bytearray, _: Sequence[Sample]) -> bytes:
    first, last = _span(r, data)
    return bytes(data[:first] + data[last:])


def _repeat(r: random.Random, data: bytearray, _: Sequence[Sample]) -> bytes:
    first, last = _span(r, data)
    times = r.choice((2, 3, 10, 100, 10_000))
    times = min(times, max(1, _MOST_DAMAGED_BYTES // max(1, last - first)))
    return bytes(data[:first] + data[first:last] * times + data[last:])


def _splice(r: random.Random, data: bytearray, all_samples: Sequence[Sample]) -> bytes:
    other = r.choice(all_samples).data
    first, last = _span(r, bytearray(other))
    at = r.randrange(len(data) + 1)
    return (
        bytes(data[:at]) + other[first:last] + bytes(data[at + (last - first) * r.randrange(2) :])
    )


def _number(r: random.Random, data: bytearray, _: Sequence[Sample]) -> bytes:
    found = list(re.finditer(rb"-?\d+(?:\.\d+)?", bytes(data)))
    for one in sorted(
        r.sample(found, min(len(found), r.choice((1, 1, 3)))), key=lambda m: -m.start()
    ):
        data[one.start() : one.end()] = r.choice(_NUMBERS)
    return bytes(data)


def _every_number(r: random.Random, data: bytearray, _: Sequence[Sample]) -> bytes:
    """The same field everywhere: what a counter that broke would write."""
    keys = list(set(re.findall(rb'"\w+"\s*:', bytes(data))))
    key = r.choice(keys) if keys else b""
    return re.sub(re.escape(key) + rb"\s*-?\d+", lambda _m: key + r.choice(_NUMBERS), bytes(data))


def _key(r: random.Random, data: bytearray, _: Sequence[Sample]) -> bytes:
    keys = list(re.finditer(rb'"(\w+)"\s*:', bytes(data)))
    if keys:
        one, other = r.choice(keys), r.choice(keys)
        data[one.start(1) : one.end(1)] = r.choice((other[1], b"", b"x", other[1] * 2))
    return bytes(data)


def _nest(r: random.Random, data: bytearray, _: Sequence[Sample]) -> bytes:
    depth = r.choice((10, 500, 5000, 200_000))
    opening, closing = r.choice(((b"[", b"]"), (b'{"a":', b"}"), (b'{"ph":', b"}"), (b"(", b"t")))
    at = r.randrange(len(data) + 1)
    inner = opening * depth + b"0" + closing * (depth if r.randrange(2) else 0)
    return bytes(data[:at]) + inner + bytes(data[at:])


def _word(r: random.Random, data: bytearray, _: Sequence[Sample]) -> bytes:
    at = r.randrange(len(data) + 1)
    data[at:at] = r.choice(_WORDS)
    return bytes(data)


def _integer(r: random.Random, data: bytearray, _: Sequence[Sample]) -> bytes:
    """A length or an offset in a binary format."""
    form = r.choice(("<I", "<Q", ">I", "<H"))
    count = struct.calcsize(form)
    if len(data) > count:
        value = r.choice((0, 1, 2 ** (8 * count) - 1, 2 ** (8 * count - 1), 2 ** (8 * count - 2)))
        struct.pack_into(form, data, r.randrange(len(data) - count), value)
    return bytes(data)


def _encode(r: random.Random, data: bytearray, _: Sequence[Sample]) -> bytes:
    text = bytes(data).decode("latin-1")
    return text.encode(r.choice(("utf-16", "utf-16-be", "utf-32", "utf-8-sig", "utf-8")))


def _pack(r: random.Random, data: bytearray, _: Sequence[Sample]) -> bytes:
    return gzip.compress(bytes(data) + bytes(r.choice((0, 10**6))), mtime=0) * r.choice((1, 2))


_DAMAGES: tuple[Damage, ...] = (
    _flip, _flip, _set, _cut, _drop, _repeat, _splice, _number, _number, _every_number, _key, _nest,
    _word, _integer, _encode, _pack,
)  # fmt: skip


def _span(r: random.Random, data: bytearray) -> tuple[int, int]:
    first = r.randrange(len(data) + 1)
    return first, min(len(data), first + r.choice((1, 4, 16, 64, 256, 1024, len(data))))


def damaged(seed: int, all_samples: Sequence[Sample]) -> Sample:
    """The file of a seed."""
    r = random.Random(seed)
    sample = r.choice(all_samples)
    data, packed = sample.data, sample.name.endswith(".gz") and not sample.name.endswith(".tar.gz")
    # Damage within what is packed would be found by its checksum alone.
    inside = packed and r.random() < 0.7
    data = gzip.decompress(data) if inside else data
    for _ in range(r.choice((1, 1, 1, 2, 3))):
        data = r.choice(_DAMAGES)(r, bytearray(data), all_samples)[:_MOST_DAMAGED_BYTES]
    return Sample(sample.name, gzip.compress(data, mtime=0) if inside else data, sample.beside)


# --------------------------------------------------------------------- checks


class Reader:
    """Reads damaged recordings into one incident, which is as empty as before after each: making
    its tables takes longer than reading into them."""

    def __init__(self) -> None:
        self._incident = Incident.empty()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._incident.close()

    def check(self, seed: int, all_samples: Sequence[Sample]) -> Failure | None:
        """Read the file of a seed; what must not happen, if it did."""
        sample = damaged(seed, all_samples)
        before_bytes, before_s = _most_bytes(), time.process_time()
        problem = self.read(sample)
        spent_s, grown = time.process_time() - before_s, _most_bytes() - before_bytes
        if problem is None and spent_s > MOST_CPU_S:
            problem = f"took {spent_s:.1f} s of CPU"
        if problem is None and grown > MOST_BYTES:
            problem = f"took {grown >> 20} MiB"
        return None if problem is None else Failure(seed, sample.name, problem, sample.data)

    def read(self, sample: Sample) -> str | None:
        """What must not happen when a sample is read, if it did."""
        con = self._incident.con
        with _written(sample) as place:
            con.begin()
            try:
                return _amiss(place, self._incident)
            except duckdb.TransactionException:
                # A row that was refused has ended our transaction; whoever reads has none.
                with Incident.empty() as incident:
                    return _amiss(place, incident)
            finally:
                con.rollback()

    def kinds(self, sample: Sample) -> set[str]:
        """The kinds of recordings that a sample is read as, without a problem."""
        con = self._incident.con
        with _written(sample) as place, suppress(BadInput):
            con.begin()
            try:
                load([place], self._incident)
                rows = con.execute("SELECT kind FROM recordings WHERE problem IS NULL AND rows > 0")
                return {kind for (kind,) in rows.fetchall()}
            finally:
                con.rollback()
        return set()  # one file of a simulation alone tells nothing


def _amiss(place: Path, incident: Incident) -> str | None:
    """What must not happen when a file is read, if it did."""
    try:
        load([place], incident)
    except BadInput as error:
        return None if str(error).isprintable() else "an error that cannot be printed"
    except duckdb.TransactionException:
        raise
    except BaseException:
        return traceback.format_exc(limit=-6)
    rows = incident.con.execute("SELECT path, problem, note FROM recordings").fetchall()
    if not rows or any(path is None for path, *_ in rows):
        return "nothing says what was read"
    texts = [text for row in rows for text in row[1:] if text is not None]
    return None if all(len(text) < MOST_TEXT for text in texts) else "a problem without end"


@contextmanager
def _written(sample: Sample) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="oncall-fuzz-") as folder:
        place = Path(folder, "job")
        place.mkdir()
        for name, data in (*sample.beside, (sample.name, sample.data)):
            (place / name).write_bytes(data)
        yield place


def _most_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def checked(seeds: Iterable[int], all_samples: Sequence[Sample]) -> Iterator[Failure]:
    """The failures among the files of these seeds."""
    with Reader() as reader:
        for seed in seeds:
            failure = reader.check(seed, all_samples)
            if failure is not None:
                yield failure


def main() -> None:
    """Check a span of seeds, and print what fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0-999", help="FIRST-LAST")
    parser.add_argument("--data", type=Path, help="a folder with more recordings")
    parser.add_argument("--keep", type=Path, help="a folder for the files that fail")
    options = parser.parse_args()
    first, last = map(int, options.seeds.split("-"))
    found, failures = samples(options.data), 0
    for failure in checked(range(first, last + 1), found):
        failures += 1
        print(f"seed {failure.seed} {failure.name}: {failure.problem}", flush=True)
        if options.keep:
            options.keep.mkdir(parents=True, exist_ok=True)
            (options.keep / f"{failure.seed}-{failure.name}").write_bytes(failure.data)
    print(f"{last - first + 1:,} damaged recordings of {len(found)} samples, {failures} failed")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
