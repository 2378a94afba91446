"""Inference servers, vLLM and SGLang: what shows that one answers, and what that it hangs while its
processes live."""

from __future__ import annotations

import re
from collections.abc import Sequence

from oncall.importers.logs.line import Found, Line, Recogniser, event

# The periodic report: a rate of tokens, and how many requests are being worked on.
_RATE = re.compile(
    r"(?:Avg generation throughput: |gen throughput \(token/s\): )(?P<rate>\d+(?:\.\d+)?)"
)
_RUNNING = re.compile(r"(?:\bRunning: |#running-req: )(?P<running>\d{1,9})")
_PROMPTS = re.compile(r"Avg prompt throughput: (?P<rate>\d+(?:\.\d+)?)")
_ANSWER = re.compile(r"\"POST /(?:v1/|generate)\S* HTTP/[\d.]+\" 200\b")
# What a process says that waits for its workers.
_NO_BLOCK = re.compile(
    r"No available (?:shared memory broadcast )?block found in (?P<s>\d{1,6}) ?s"
)
_NO_ANSWER = re.compile(r"RPC call to (?P<call>\w+) timed out")
_WATCHDOG = re.compile(r"[Ww]atchdog timeout \(self\.watchdog_timeout=(?P<s>\d{1,6})")
_DIED = re.compile(
    r"(?:Engine core proc (?P<engine>\S+)|"
    r"Worker proc (?:\S*[^\s\d])?+(?P<rank>\d+)) died unexpectedly"
)


def read(line: Line) -> Sequence[Found]:
    """What one line says of a server."""
    text = line.text
    if _ANSWER.search(text):
        return [event("served")]
    if rated := _RATE.search(text):
        prompts, running = _PROMPTS.search(text), _RUNNING.search(text)
        if float(rated["rate"]) > 0 or (prompts and float(prompts["rate"]) > 0):
            return [event("served")]
        requests = int(running["running"]) if running else 0
        # Short of a minute, one long prompt may be all that runs.
        return [event("server", "no_token", number=requests, text=text)] if requests else []
    if found := _NO_BLOCK.search(text):
        return [event("server", "no_block", number=int(found["s"]), text=found[0])]
    if found := _NO_ANSWER.search(text):
        said = f"its workers did not answer {found['call']} in time"
        return [event("server", "no_answer", text=said)]
    if found := _WATCHDOG.search(text):
        said = f"no forward pass in {found['s']} s"
        return [event("server", "watchdog", number=int(found["s"]), text=said)]
    if found := _DIED.search(text):
        rank = int(found["rank"]) if found["rank"] else None
        said = f"no exit code: {found[0]}"
        return [event("exit", "unknown", rank=rank, number=0, text=said)]
    return []


SERVING = Recogniser(
    "serving",
    (
        "generation throughput: ",
        "gen throughput",
        '"POST /v1/',
        '"POST /generate',
        "block found in ",
        "RPC call to ",
        "atchdog timeout (self.",
        "died unexpectedly",
    ),
    read,
)
