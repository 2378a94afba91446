"""The wording shared by the reports."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncall.core.diagnosis import Blame, Diagnosis, Lost, SkippedRule
from oncall.core.printable import clean
from oncall.rules.engine.engine import SoFar
from oncall.views import coverage_words, words


@pytest.mark.parametrize(
    ("blame", "phrase"),
    [
        ((), "no rank or node singled out"),
        ((Blame("rank", {"rank": 5}),), "rank 5"),
        ((Blame("rank", {"rank": 5, "node": "gpu017"}),), "rank 5 on gpu017"),
        (
            tuple(Blame("rank", {"rank": r, "node": f"gpu{r // 2:03}"}) for r in (0, 1, 2, 9)),
            "ranks 0-2,9 (4 ranks) on gpu[000-001,004]",
        ),
        ((Blame("rank", {"rank": 5, "node": "a", "stage": 0}),), "rank 5 on a, stage 0"),
        ((Blame("node", {"node": "a1"}), Blame("node", {"node": "a2"})), "nodes a[1-2]"),
        ((Blame("nic", {"nic": "mlx5_0", "node": "a1"}),), "NIC mlx5_0 on a1"),
        ((Blame("port", {"port": 3, "nic": "mlx5_0"}),), "port 3 of mlx5_0"),
        ((Blame("gpu", {"gpu": 3, "node": "a1"}),), "GPU 3 on a1"),
        ((Blame("stage", {"stage": 0}),), "stage 0"),
        ((Blame("group", {"comm": "0x2a", "comm_name": "tp"}),), "communicator tp (0x2a)"),
        (
            tuple(Blame("flow", {"flow": n}) for n in range(7)),
            "flow 0, flow 1, flow 2, flow 3 and 3 more",
        ),
        (
            (Blame("rank", {"rank": 1}), Blame("stage", {"stage": 2})),
            "rank 1, stage 2",
        ),
    ],
)
def test_who(blame: tuple[Blame, ...], phrase: str) -> None:
    assert words.who(blame) == phrase


def test_a_long_set_is_cut_and_its_size_said() -> None:
    assert words.ranks_phrase(range(0, 1000, 2)).endswith("… (500 ranks)")
    assert words.hosts_phrase(f"rack{n}-gpu{n}x" for n in range(0, 90, 7)).endswith("(13 nodes)")


@pytest.mark.parametrize(
    ("step", "parts"),
    [
        ("Drain the host.", [(False, "Drain the host.")]),
        ("Look: `dmesg -T`.", [(False, "Look:"), (True, "dmesg -T")]),
        ("`dmesg -T`", [(True, "dmesg -T")]),
        (
            "Run `a b` and then `c d` there.",
            [(False, "Run"), (True, "a b"), (False, "and then"), (True, "c d"), (False, "there.")],
        ),
        ("Set `NCCL_DEBUG`.", [(False, "Set `NCCL_DEBUG`.")]),
        ("Ask with `--symptom hung`.", [(False, "Ask with `--symptom hung`.")]),
        ("See who:\n$ ps aux", [(False, "See who:"), (True, "ps aux")]),
    ],
)
def test_next_parts(step: str, parts: list[tuple[bool, str]]) -> None:
    assert words.next_parts(step) == parts


@given(st.text())
def test_clean_text_is_one_harmless_line(text: str) -> None:
    cleaned = clean(text)
    assert len(cleaned.splitlines()) <= 1
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 or 0xD800 <= ord(c) < 0xE000 for c in cleaned)
    assert clean(cleaned) == cleaned


def test_instants() -> None:
    assert words.instant(1_795_142_520_000_000_000) == "2026-11-20 02:42:00 UTC"
    assert words.instant(12_345_000_000) == "t = 12.345 s"
    assert words.instant(2**63 - 1) == "2262-04-11 23:47:16 UTC"
    assert words.evidence_phrase(None, None) == "no timestamps"


def test_headline_names_every_severity_by_word(hang: Diagnosis, two_roots: Diagnosis) -> None:
    assert words.headline(hang)[:2] == ("✖", "critical")
    alike = [replace(one, severity="critical") for one in two_roots.findings]
    both = words.headline(replace(two_roots, findings=tuple(alike)))
    assert both[2].startswith("2 root causes. ")
    assert words.roots(hang) == hang.findings[:1]


def test_the_next_command_of_an_inconclusive_one_is_what_would_decide(hang: Diagnosis) -> None:
    assert words.next_command(hang) == words.first_command(hang.findings[0].next) != ""
    noticed = replace(hang.findings[0], severity="info")
    advice = "See in which call each rank is: `oncall stacks --job llama-70b`"
    doubted = replace(hang, findings=(noticed,), undecided="no times", would_decide=advice)
    assert words.leading(doubted) is None
    assert words.next_command(doubted) == "oncall stacks --job llama-70b"


def test_what_is_over_says_from_when_to_when(hang: Diagnosis) -> None:
    one = replace(words.leading(hang), lost=Lost(0.3), until_ns=1_760_000_031 * 10**9)
    one = replace(one, at_ns=1_760_000_000 * 10**9)
    assert words.since(one, None) == ", 2025-10-09 08:53:20 to 08:53:51 UTC (31 s)"


def test_a_hang_of_no_duration_is_since_then(hang: Diagnosis) -> None:
    [worst] = words.roots(hang)
    assert worst.at_ns is not None
    assert words.since(worst, worst.at_ns + 10) == f", since {words.instant(worst.at_ns)}"
    assert words.since(worst, worst.at_ns + 2 * 10**9) == ", for 2 s"


def test_what_is_found_so_far(hang: Diagnosis) -> None:
    assert words.found_so_far(SoFar(3, 20)) == "3 of 20 rulebooks have run"
    early = words.found_so_far(SoFar(4, 20, hang.findings[0]))
    assert early == f"✖ {words.headline(hang)[2].split(', ')[0]} so far; 4 of 20 rulebooks have run"


def test_rulebooks_that_lack_evidence_share_a_line_and_others_keep_theirs() -> None:
    rules = (
        SkippedRule("latency", ("pings or nics",), "not recorded: pings or NIC counters"),
        SkippedRule("waits", ("transfers",), "not recorded: NCCL transfers"),
        SkippedRule("slow.link", ("ranks",), "not recorded: ranks; 1 case(s) end there"),
        SkippedRule("site", (), "disabled by site.yaml"),
    )
    assert coverage_words.skipped_phrases(rules) == [
        "latency, waits: not recorded: NCCL transfers, NIC counters, pings",
        "slow.link: not recorded: ranks; 1 case(s) end there",
        "site: disabled by site.yaml",
    ]
    assert coverage_words.skipped_phrases(rules[1:2]) == ["waits: not recorded: NCCL transfers"]


def test_what_rulebooks_lacked_is_said_in_words_with_who_records_it() -> None:
    rules = (
        SkippedRule("latency", ("pings or nics",), "not recorded: pings or NIC counters"),
        SkippedRule("site.fact", ("a_relation",), "not recorded: a_relation"),
    )
    assert coverage_words.lacking_phrases(rules) == [
        "NIC counters: recorded by sysfs, ethtool",
        "pings: recorded by UDP and RDMA probes",
    ]
