"""What `oncall rules new` writes: a small rulebook that passes its check and its tests at once."""

from __future__ import annotations

import re
from pathlib import Path

from oncall.core.errors import UsageError
from oncall.rules.language.load import TEST_SUFFIX
from oncall.rules.language.rulebook import Rulebook
from oncall.rules.language.tests_file import tests_of

_RULEBOOK = """\
# A rulebook finds rows of evidence with SQL (facts), asks yes-or-no questions about them (tree)
# and concludes a verdict. See docs/guide/rules.md; `oncall schema` lists tables and relations.
#
#   oncall rules check NAME.yaml     everything that is wrong, each with its line
#   oncall rules test NAME.yaml      runs NAME.test.yaml
#   oncall diagnose RECORDING --rules NAME.yaml
rulebook: NAME
format: 1
title: Which GPU is too hot to keep its clock
status: experimental              # experimental | test | stable | deprecated
sources: ["Say here where this knowledge comes from: a paper, a ticket, a night"]

# Every number has a name, a unit and a reason; a site can then override it.
params:
  hot: {value: 85, why: "degrees Celsius from which this GPU lowers its clock"}
  slow_below: {value: 80 %, why: a clock under this share of the node's best slows every peer}

# One diagnosis for each of these; every fact must have these columns.
case: [node, gpu]

facts:
  # Facts run in order, each once for all cases. Later facts may read earlier ones.
  too_hot: |
    SELECT node, gpu, max(temp_c) AS temp_c, min(at_ns) AS at_ns
    FROM gpus WHERE temp_c > $hot
    GROUP BY ALL
  # `started` holds the cases that start_when let through.
  slowed: |
    SELECT node, gpu, sm_clock_mhz, best_mhz
    FROM (SELECT *, max(sm_clock_mhz) OVER (PARTITION BY node) AS best_mhz FROM gpus)
    JOIN started USING (node, gpu)
    WHERE sm_clock_mhz < $slow_below * best_mhz
    ORDER BY sm_clock_mhz          -- a sentence's slowed.sm_clock_mhz is that of the first row

start_when: any(too_hot)          # the cases in its rows are diagnosed, all others are healthy

# A test is any(fact) or none(fact). What is said, ranks and hosts folded, comes from the facts.
tree:
  ask: Did its clock fall below {{ slow_below }} of the node's best?
  test: any(slowed)
  if_yes:
    verdict: HOT
    say: "GPU {{ gpu }} of {{ node }} has {{ too_hot.temp_c }} degrees and runs at
      {{ slowed.sm_clock_mhz }} of {{ slowed.best_mhz }} MHz."
    blame: too_hot                # its columns rank, node, gpu, nic, ... say who
    next:
      - "Look at the cooling of {{ node }}: ipmitool sdr type Fan"
  if_no:
    verdict: none
    say: "GPU {{ gpu }} of {{ node }} is hot but keeps its clock."

# effect: the job lost time by it; symptom: it shows, and explains what is lost there; event: it
# failed and said so.
verdicts:
  HOT:
    kind: symptom
    explains: [compute]
    on: gpu
    title: GPU slowed by heat
    class: host
    severity: warning
"""

_TESTS = """\
# Evidence in short rows, and what must be found in it. Test healthy cases too.
rulebook: NAME
defaults:
  gpus: {node: gpu017, at_ns: 1 s, temp_c: 60, sm_clock_mhz: 1980}
tests:
  - name: one GPU is hot and slow
    given: {gpus: [{gpu: 0-2}, {gpu: 3, temp_c: 91, sm_clock_mhz: 1200}]}
    expect: {verdict: HOT, blame: [gpu017/3], path: {slowed: yes}}
  - name: hot, but at full clock
    given: {gpus: [{gpu: 0-2}, {gpu: 3, temp_c: 91}]}
    expect: {verdict: none, path: {slowed: no}}
  - name: all is well
    given: {gpus: [{gpu: 0-3}]}
    expect: {verdict: none}
"""


def starter_text(name: str) -> str:
    """The rulebook to start from. Raises UsageError if the name cannot be one."""
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", name):
        raise UsageError(f"`{name}`: a rulebook's name is lower-case letters, digits, `-` and `_`")
    return _RULEBOOK.replace("NAME", name)


def starter_tests(name: str) -> str:
    """The tests of `starter_text`."""
    return _TESTS.replace("NAME", name)


def write_new(name: str, folder: Path, pattern: Rulebook | None = None) -> list[Path]:
    """Write NAME.yaml and NAME.test.yaml into `folder`, as copies of a pattern if one is given.

    Raises UsageError if the name cannot be one, or a file of that name is there.
    """
    texts = {".yaml": starter_text(name), TEST_SUFFIX: starter_tests(name)}
    if pattern is not None:
        texts = {".yaml": _renamed(pattern.text, name, pattern.name)}
        tests = tests_of(Path(pattern.path))
        if tests.is_file():
            texts[TEST_SUFFIX] = _renamed(tests.read_text(encoding="utf-8"), name, name)
    written = {folder / f"{name}{suffix}": text for suffix, text in texts.items()}
    for path in written:
        if path.exists():
            raise UsageError(f"{path} exists already; choose another name or remove it")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in written.items():
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {error.filename}: {error.strerror}") from error
    return list(written)


def _renamed(text: str, name: str, before: str) -> str:
    """The text of a rulebook of that name. Another rulebook has no former names."""
    text = re.sub(r"(?m)^rulebook:.*$", f"rulebook: {name}", text, count=1)
    return text if name == before else re.sub(r"(?m)^was:.*\n", "", text, count=1)
