"""Narratives: what they can show, what they refuse, and where the refusal points."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncall.core.units import Quantity
from oncall.rules.language.template import (
    FILTERS,
    Rows,
    TemplateError,
    parse_template,
)
from oncall.views.words import next_parts

ABSENT = Rows({"rank": 0, "node": 1, "seq": 2}, [(4, "gpu2", 7), (5, "gpu2", 9)], 2)
VALUES = {
    "absent": ABSENT,
    "none": Rows({"rank": 0}, [], 0),
    "hang_after": Quantity(300 * 10**9, "duration"),
    "comm": 255,
    "node": None,
}


def shown(text: str, **more: object) -> str:
    return parse_template(text).render(VALUES | more)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see {{ absent | ranks }}", "see ranks 4-5"),
        ("{{ absent | ranks }} stopped", "Ranks 4-5 stopped"),
        ("of {{ group.ranks | ranks }}", "of ranks 2-3"),
        ("{{ absent | hosts }}", "gpu2"),
        ("on {{ alone | hosts }}, on {{ several | hosts }}", "on its host, on their hosts"),
        ("{{ absent | count }}", "2"),
        ("{{ absent | count('rank') }}", "2 ranks"),
        ("{{ absent.seq }}", "7"),
        ("{{ absent.seq | list }}", "7 and 9"),
        ("{{ absent.node | count('host') }}", "1 host"),
        ("see {{ none | ranks }}, {{ none.seq }}", "see a process, unknown"),
        ("{{ hang_after }}", "5 min"),
        ("{{ hang_after | duration }}", "5 min"),
        ("{{ comm }} {{ comm | hex }}", "0x00000000000000ff 0x00000000000000ff"),
        ("{{ node }}", "unknown"),
        ("{{ ratio | percent }}", "12.5 %"),
        ("{{ big | number }}, {{ big | bytes }}, {{ big | rate }}", "1,048,576, 1 MiB, 1.05 MB/s"),
        ("two\n  lines", "two lines"),
    ],
)
def test_shows(text: str, expected: str) -> None:
    alone = Rows({"node": 0}, [(None,)], 1)
    several = Rows({"node": 0}, [(None,), (None,)], 2)
    rows = {"alone": alone, "several": several, "group": Rows({"ranks": 0}, [([2, 3],)], 1)}
    assert shown(text, ratio=0.125, big=2**20, **rows) == expected


def test_control_characters_of_a_recording_never_reach_the_terminal() -> None:
    evil = Rows({"node": 0}, [("gpu\x1b[2J1",)], 1)
    assert "\x1b" not in shown(
        "{{ evil.node }} {{ evil | hosts }} {{ evil.node | list }}", evil=evil
    )


def test_values_of_several_parts_are_shown_as_others_are() -> None:
    some = Rows({"x": 0}, [({"a": [1]},), ([1, [2]],), ({"a": [1]},), (3,)], 4)
    assert shown("{{ some.x | list }}", some=some) == "{'a': [1]}, 1 and 2 and 3"
    assert shown("{{ some.x | count }}", some=some) == "3"
    for name in FILTERS - {"count"}:
        shown(f"{{{{ some.x | {name} }}}}", some=some)


@pytest.mark.parametrize(
    ("text", "offset", "message"),
    [
        ("a {{ absent.__class__.__mro__ }}", 5, "is not a name"),
        ("a {{ absent.rank() }}", 5, "is not a name"),
        ("a {{ absent['rank'] }}", 5, "is not a name"),
        ("a {{ 1 + 1 }}", 5, "is not a name"),
        ("a {% for x in y %}", 2, "no statements"),
        ("a {# note #}", 2, "no statements"),
        ("a {{ absent", 2, "never closed"),
        ("a {{ absent | rnks }}", 14, "did you mean `ranks`"),
        ("a {{ absent | ranks | list }}", 5, "one filter"),
        ("a {{ absent | ranks('x') }}", 14, "takes no argument"),
    ],
)
def test_refuses_with_its_place(text: str, offset: int, message: str) -> None:
    with pytest.raises(TemplateError, match=message) as caught:
        parse_template(text)
    assert caught.value.offset == offset


@given(st.text())
def test_any_text_is_a_template_or_a_template_error(text: str) -> None:
    try:
        template = parse_template(text)
    except TemplateError as error:
        assert 0 <= error.offset <= len(text)
    else:
        if not template.slots:
            assert template.render({}) == " ".join(text.split())


@given(st.sampled_from(sorted(FILTERS)), st.lists(st.integers(0, 9000), max_size=60))
def test_every_filter_shows_any_rows(name: str, ranks: list[int]) -> None:
    rows = Rows({"rank": 0, "node": 0}, [(rank,) for rank in ranks], len(ranks))
    assert parse_template(f"{{{{ some.rank | {name} }}}}").render({"some": rows})


@pytest.mark.parametrize(
    ("node", "command"),
    [
        ("gpu017", "oncall probe gpu017"),
        ("; rm -rf ~", "oncall probe '; rm -rf ~'"),
        ("$(reboot)", "oncall probe '$(reboot)'"),
        ("-oProxyCommand=reboot", "oncall probe HOSTS"),
        ("a`reboot now`b", "oncall probe HOSTS"),
        ("gpu\u202e017", "oncall probe HOSTS"),
        ("x" * 1000, "oncall probe HOSTS"),
    ],
)
def test_a_name_in_a_command_is_one_argument_and_in_a_sentence_never_a_command(
    node: str, command: str
) -> None:
    advice = parse_template("Look at {{ slow | hosts }}: `oncall probe {{ slow | hosts }}`")
    printed = advice.render_advice({"slow": Rows({"node": 0}, [(node,)], 1)})
    assert [text for is_command, text in next_parts(printed) if is_command] == [command]


def test_within_quotes_of_a_command_only_plain_values_stand() -> None:
    advice = parse_template("`pgrep -af '{{ it.process }}'`")
    for process, shown in (
        ("train.py", "train.py"),
        ("'; reboot; '", "PROCESS"),
        ("$(a)", "PROCESS"),
    ):
        values = {"it": Rows({"process": 0}, [(process,)], 1)}
        assert advice.render_advice(values) == f"`pgrep -af '{shown}'`"


def test_words_of_a_command_made_by_sql_stay_unless_a_shell_would_read_more_into_them() -> None:
    advice = parse_template("`{{ it.reach | command }}dmesg`")
    for reach, shown in (
        ("ssh gpu017 ", "ssh gpu017 dmesg"),
        ("", "dmesg"),
        ("ssh a; b ", "dmesg"),
    ):
        assert advice.render_advice({"it": Rows({"reach": 0}, [(reach,)], 1)}) == f"`{shown}`"


@pytest.mark.parametrize(
    ("node", "nic", "command"),
    [
        ("gpu017", "mlx5_0", "`ssh gpu017 'devlink health; mlxlink -d mlx5_0'`"),
        ("gpu017", None, "`ssh gpu017 'devlink health; mlxlink -d NIC'`"),
        ("gpu017", "mlx; reboot", "`ssh gpu017 'devlink health; mlxlink -d NIC'`"),
        ("-oProxyCommand=evil", "mlx5_0", "`ssh NODE 'devlink health; mlxlink -d mlx5_0'`"),
        ("it's", "mlx'5; reboot", "`ssh NODE 'devlink health; mlxlink -d NIC'`"),
    ],
)
def test_what_ssh_hands_to_another_shell_is_plain(
    node: str | None, nic: str | None, command: str
) -> None:
    rows = Rows({"node": 0, "nic": 1}, [(node, nic)], 1)
    text = "`ssh {{ bad.node }} 'devlink health; mlxlink -d {{ bad.nic }}'`"
    assert parse_template(text).render_advice({"bad": rows}) == command
