"""Lines that name ranks outright: the desync report, monitored barriers, collective fingerprints,
and NCCL's own checks of what two ends of a connection expect."""

from __future__ import annotations

import re
from collections.abc import Sequence

from oncall.importers.logs.line import Found, Line, Recogniser, event

# Ranks, and the number of the call where it is stated.
_STATED = tuple(
    (code, re.compile(pattern))
    for code, pattern in (
        ("absent", r"\[([\d, ]+)\] finished collective #\d+, but didn't join collective #(\d+)"),
        ("inside", r"\[([\d, ]+)\] joined but didn't finish collective #(\d+)"),
        ("absent", r"Ranks? ([\d, ]+) failed to pass monitoredBarrier()"),
    )
)
# As torchfrtrace prints what it finds in dumps, and Horovod what it waits for.
_NOT_ALL = re.compile(
    r"Not all ranks joining collective(?:,? sequence number:)? ?(?P<seq>\d+)?|"
    r"submitted to be reduced, gathered or broadcasted by subset of ranks"
)
_MISSING = re.compile(r"[Mm]issing ranks(?: are|:) \{([\d, ]+)\}")
_WITH_TENSORS = re.compile(r"(?:^|[:>] ?)(\d{1,7}): \[")  # a rank, and those it did not submit
_RUNNING = re.compile(r"Rank (\d+) is running (?:inconsistent )?collective: ?")
_CALL = re.compile(r"OpType=(\w+)(?:, TensorShape=(\[[\d, ]*\]))?")
_ASPECTS = re.compile(r"Collectives differ in the following aspects: ?(.*)")
_SEQ = re.compile(r"SequenceNumber=(\d+)")
_SIZES = re.compile(
    r"^(?>.*?peer (?P<peer>\S+?)<\d+>).*collective mismatch error,? local size (?P<here>\d+) "
    r"remote size (?P<there>\d+)",
    re.MULTILINE,
)
_TRUNCATED = re.compile(
    r"(?P<start>[Mm])essage truncated ?: (?:receiving|received) (?P<there>\d+) bytes instead of "
    r"(?P<here>\d+)"
)
# Gloo's TCP: what a peer sends is larger than what this rank receives next.
_GLOO_SIZES = re.compile(r"op\.preamble\.length <= op\.nbytes\. (\d+) vs (\d+)")
_PEER = re.compile(r"peer (\S+?)<\d+>")
# What two ends of a connection say of one another, and cannot both be right.
_ENDS = tuple(
    (code, re.compile(pattern), said)
    for code, pattern, said in (
        (
            "connection",
            r"wrong type (\d+) != (\d+)",
            "a connection of type {} where one of type {} was expected",
        ),
        (
            "bootstrap",
            r"mismatch in rank count from procs (\d+) : (\d+)",
            "processes that expect {} ranks, and {} ranks, in one communicator",
        ),
    )
)
_VERSIONS = re.compile(
    r"Mismatched NCCL version detected ?: rank (\d+) version (\d+) rank (\d+) version (\d+)"
)
# The driver's version against what runs on it.
_DRIVER = re.compile(
    r"NVIDIA driver on your system is too old \(found version \d+\)|"
    r"CUDA driver version is insufficient for CUDA runtime version|"
    r"[Dd]river/library version mismatch|API mismatch: the (?:client|NVIDIA kernel module) has|"
    r"system has unsupported display driver / cuda driver combination|"
    r"forward compatibility was attempted on non supported HW|"
    r"provided PTX was compiled with an unsupported toolchain"
)
# Servers and runtimes that see that a collective does not end, and not who keeps it; of XLA's
# rendezvous, that somebody did not come.
_ENDLESS = (
    (re.compile(r"^(?>.*?\b(EI0002): ).*[Nn]otify"), "HCCL {}: no word from another rank in time"),
    (
        re.compile(r"^(?>.*?Termination timeout for )(?>.*? exceeded).* All (\d+) threads joined"),
        "all {} threads joined the rendezvous",
    ),
)
_AWAITED = re.compile(r"remote rank:? ?\[(\d{1,7})\]")
# XLA warns of a thread that waits, and says so where the others came after all. A clique is the
# communicator of an operation's devices.
_MAY_BE_STUCK = re.compile(
    r"This thread has been waiting for `(?P<what>[^`;]{1,200})[^`]{0,2000}` for (?P<s>\d{1,9}) "
    r"seconds and may be stuck"
)
_UNSTUCK = re.compile(r"Thread is unstuck!")
_SHORT = re.compile(
    r"^(?>.*?Termination timeout for )(?>.*? exceeded).*"
    r"Expected (\d+) threads to join the rendezvous, but only (\d+) of them arrived"
)
_CALLS = re.compile(
    r"Mismatched (?:collective detected(?:.*?rank (\d+)[.! ]*$)?|[\w ]{1,40}: One rank )"
)


def _numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d{1,7}", text)]


def _not_all(line: Line, found: re.Match[str]) -> list[Found]:
    """The ranks that a report of what is missing names below its heading."""
    seq = int(found["seq"]) if found["seq"] else None
    if missing := _MISSING.search(" ".join([line.text, *line.below(12)])):
        code, ranks = "torchfrtrace", _numbers(missing[1])
    else:
        # With their numbers, which are taken for the prefix of a task elsewhere.
        named = map(_WITH_TENSORS.search, line.raw_below(12))
        code, ranks = "absent", [int(one[1]) for one in named if one]
    return [event("desync", code, rank=rank, seq=seq, text=line.text) for rank in ranks]


def _desync(line: Line) -> list[Found]:
    text = line.text if "#" in line.text else line.unwrapped
    for code, pattern in _STATED:
        if found := pattern.search(text):
            seq = int(found[2]) if found[2] else None
            ranks = _numbers(found[1])
            return [event("desync", code, rank=rank, seq=seq, text=text) for rank in ranks]
    return []


def _fingerprint(line: Line) -> list[Found]:
    """An event for each rank that the line names, with its own call, or how the calls differ."""
    text = line.unwrapped if "Collectives differ" not in line.text else line.text
    seq, aspects = _SEQ.search(text), _ASPECTS.search(text)
    differ = aspects[1].strip() if aspects else text
    _, *sides = _RUNNING.split(text)
    calls: dict[int | None, str] = {}
    for rank, said in zip(sides[::2], sides[1::2], strict=True):
        call = _CALL.search(said)
        calls[int(rank)] = " ".join(filter(None, call.groups())) if call else ""
    alike = len(set(calls.values())) < 2  # they differ in what is not compared here
    return [
        event(
            "mismatch",
            "aspects" if alike else "fingerprint",
            rank=rank,
            seq=int(seq[1]) if seq else None,
            text=differ if alike else call,
        )
        for rank, call in (calls or {line.rank: ""}).items()
    ]


def read(line: Line) -> Sequence[Found]:
    """What one line says of ranks or ends that do not agree."""
    text = line.text
    if "is running" in text and "ollective" in text:
        return _fingerprint(line)
    if found := _SIZES.search(text) or _SIZES.search(line.unwrapped):
        said = f"{found['here']} bytes here, {found['there']} bytes there"
        return [event("mismatch", "sizes", peer_host=found["peer"], text=said)]
    if found := _TRUNCATED.search(text):
        said = f"a message of {found['there']} bytes where {found['here']} were expected"
        if found["start"] == "M":  # of bootstrap, which sends no data of the program
            return [event("version", "bootstrap", text=said)]
        peer = _PEER.search(text)
        return [event("mismatch", "sizes", peer_host=peer[1] if peer else None, text=said)]
    if found := _GLOO_SIZES.search(text):
        who = "A rank" if line.rank is None else f"Rank {line.rank}"
        said = f"{who} received {found[1]} bytes from a peer where it expected {found[2]}"
        return [event("mismatch", "sizes", text=said)]
    if found := _VERSIONS.search(text):
        return [
            event("version", "stated", rank=int(rank), text=version, comm_rank=int(rank))
            for rank, version in ((found[1], found[2]), (found[3], found[4]))
        ]
    for code, pattern, said in _ENDS:
        if found := pattern.search(text):
            return [event("version", code, text=said.format(*found.groups()))]
    if found := _CALLS.search(text):
        rank = int(found[1]) if found[1] else None
        return [event("mismatch", "calls", rank=rank, text=text)]
    if found := _DRIVER.search(text):
        return [event("version", "driver", text=found[0])]
    for pattern, said in _ENDLESS:
        if found := pattern.search(text):
            said = said.format(found[1])
            awaited = dict.fromkeys(map(int, _AWAITED.findall(text)))
            return [
                event("desync", "inside", text=said),
                *(event("desync", "awaited", rank=rank, text=said) for rank in awaited),
            ]
    if _UNSTUCK.search(text):
        return [event("desync", "unstuck")]
    if found := _MAY_BE_STUCK.search(text):
        said = f"a thread waits in `{found['what']}` for {found['s']} s, and not all came"
        if "clique" in found["what"]:
            return [event("init", "clique", text=said)]
        return [event("desync", "stuck", text=said)]
    if found := _SHORT.search(text):
        said = f"{found[2]} of {found[1]} threads came to the rendezvous"
        return [event("desync", "absent", text=said)]
    if found := _NOT_ALL.search(text):
        return _not_all(line, found)
    return _desync(line)


DISAGREEMENTS = Recogniser(
    "disagreements",
    (
        "didn't join collective",
        "but didn't finish",
        "failed to pass monitoredBarrier",
        "Not all ranks joining",
        "submitted to be reduced",
        "is running collective",
        "is running inconsistent",
        "collective mismatch error",
        "essage truncated",
        "op.preamble.length <= op.nbytes",
        "wrong type",
        "in rank count",
        "Mismatched ",
        "system is too old",
        "is insufficient for CUDA",
        "library version mismatch",
        "API mismatch: ",
        "unsupported display driver",
        "orward compatibility was",
        "unsupported toolchain",
        "EI0002: ",
        "Termination timeout for",
        "and may be stuck",
        "Thread is unstuck!",
    ),
    read,
)
