"""`oncall diagnose --follow`: the answer of a growing log, printed again when it changes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from oncall.core.errors import BadInput, ExitCode, UsageError

if TYPE_CHECKING:
    from oncall.core.diagnosis import Diagnosis

_EVERY_S = 3.0
_REST = 1  # times as long as an answer took: a large log is read again from its beginning

Answer = Callable[[str], "tuple[Diagnosis, str]"]


def follow(paths: list[str], answer: Answer, every_s: float = _EVERY_S) -> ExitCode:
    """Print the answer to the one log in `paths`, and again each time it changes, until ctrl-C;
    returns the exit code of the last one. `answer` diagnoses a file and gives its report too.
    Raises UsageError for anything but one file."""
    from oncall.importers.logs.following import followed
    from oncall.use_case.diagnose import exit_code

    if len(paths) != 1 or paths[0] == "-" or Path(paths[0]).is_dir():
        raise UsageError("--follow needs one growing log: oncall diagnose slurm-4711.out --follow")
    code, last = ExitCode.TOO_LITTLE_COVERAGE, None
    print(f"oncall: following {paths[0]}; press Ctrl-C to end", file=sys.stderr)
    try:
        with followed(Path(paths[0])) as log:
            while True:
                took_s = 0.0
                if log.read_on():
                    began_s = time.monotonic()
                    found = _answered(answer, log.copy)
                    took_s = time.monotonic() - began_s
                    if found is not None and _kernel_of(found[0]) != last:
                        diagnosis, report = found
                        last, code = _kernel_of(diagnosis), exit_code(diagnosis)
                        print(f"── {datetime.now(UTC):%H:%M:%S} UTC ──", file=sys.stderr)
                        sys.stdout.write(report)
                        sys.stdout.flush()
                time.sleep(max(every_s, _REST * took_s))
    except KeyboardInterrupt:
        return code


def _answered(answer: Answer, copy: Path) -> tuple[Diagnosis, str] | None:
    """None while the log has too little in it to be known as one."""
    try:
        return answer(str(copy))
    except BadInput:
        return None


def _kernel_of(diagnosis: Diagnosis) -> tuple[object, ...]:
    """What makes an answer another one; that a log has grown does not."""
    found = [
        (one.rulebook, one.verdict, [sorted(map(str, blame.where.items())) for blame in one.blame])
        for one in diagnosis.findings
    ]
    return (diagnosis.result, found)
