"""Conditions of texts: what they read, when they hold, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from oncall.core.units import parse_quantity
from oncall.rules.engine.check import Checker
from oncall.rules.language.condition import parse_condition
from oncall.rules.language.template import Rows, TemplateError

ROWS = Rows({"temp_c": 0, "reason": 1, "held": 2, "nothing": 3}, [(91, "heat", False, None)], 1)
VALUES = {"gpu": ROWS, "none": Rows({}, (), 0), "hot": parse_quantity(90)}


@pytest.mark.parametrize(
    ("condition", "offset"),
    [("gpu", 0), ("any(gpu) or gpu.held", 9), ("gpu.held ==", 9), ("any(gpu) and", 12), ("", 0)],
)
def test_what_cannot_be_read_is_pointed_at(condition: str, offset: int) -> None:
    with pytest.raises(TemplateError) as caught:
        parse_condition(condition)
    assert caught.value.offset == offset


SAY = 'say: "{{ absent | ranks }} stopped'


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("{when: any(absnt), text: a}, {text: b}", "unknown fact `absnt`"),
        ("{when: absent.rnk > 1, text: a}, {text: b}", "has no column `rnk`"),
        ("{when: absent.rank = 'x', text: a}, {text: b}", "cannot be compared with `x`"),
        ("{when: absent.rank > most, text: a}, {text: b}", "unknown parameter `most`"),
        ("{when: any(absent), text: a}", "the last text must have no `when`"),
        ("{text: a}, {text: b}", "what follows is never taken"),
        ("{when: absent.rank = , text: a}, {text: b}", "a condition is any(fact)"),
    ],
)
def test_a_wrong_list_of_texts_is_reported_at_its_place(
    tiny: str, texts: str, message: str
) -> None:
    line = next(line for line in tiny.splitlines() if SAY in line)
    text = tiny.replace(line, f"    say: [{texts}]")
    with Checker() as checker:
        problems = checker.check(text, "tiny.yaml")
    assert any(message in problem.message for problem in problems), problems
    at = tiny.splitlines().index(line) + 1
    assert all(problem.line == at for problem in problems if message in problem.message)


def test_a_weight_must_be_counted_and_have_a_value(tiny: str) -> None:
    text = tiny.replace(
        "start_when:",
        "weights:\n  margin: {value: absent.sur, because: seen}\n"
        "  other: {value: hang_aftr, because: seen}\nstart_when:",
    ).replace("    blame: absent\n", "    blame: absent\n    confidence: margin\n")
    with Checker() as checker:
        reported = [problem.message for problem in checker.check(text, "tiny.yaml")]
    assert "the fact `absent` has no column `sur`" in reported
    assert "unknown parameter `hang_aftr` (did you mean `hang_after`?)" in reported
    assert "no leaf uses the weight `other`" in reported


def test_the_first_text_that_holds_is_said_and_weights_multiply(book: Callable[..., Any]) -> None:
    from oncall.evidence.incident import Incident
    from oncall.rules.engine.engine import run

    said = (
        "say:\n      - {when: absent.last_seq > 9, text: late}\n"
        '      - {when: any(absent), text: "{{ absent | ranks }} early"}\n      - {text: never}\n'
        "    confidence: [half, sure]"
    )
    weights = (
        "  sure_by_half: {value: 50 %, why: a test}\ncase:",
        "weights:\n  half: {value: sure_by_half, because: half of it}\n"
        "  sure: [{when: none(absent), value: sure_by_half, because: no}]\nstart_when:",
    )
    whole = SAY + " at {{ absent.last_seq }}; {{ stuck | count('rank') }} wait.\""
    rulebook = book((whole, said), ("case:", weights[0]), ("start_when:", weights[1]))
    second = 10**9
    with Incident.empty() as incident:
        call = {"job": "j", "comm": 1, "kind": "coll", "observed_ns": 900 * second}
        incident.append("ops", call | {"rank": [0, 1], "seq": 8, "started_ns": second})
        incident.append(
            "ops", call | {"rank": [2], "seq": 7, "started_ns": second, "ended_ns": 2 * second}
        )
        (finding,) = run(incident, [rulebook]).findings
    assert finding.story[-1].say == "Rank 2 early"
    assert finding.confidence == 0.5
    assert [(one.name, one.why) for one in finding.reasons] == [("half", "half of it")]
