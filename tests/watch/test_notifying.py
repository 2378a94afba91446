"""Announcements reach real servers, in order and once; what refuses or hangs is tried again."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from tests.watch.servers import Receiver, receiving

from oncall.core.errors import BadInput
from oncall.core.printable import is_harmless
from oncall.core.units import NS_PER_S
from oncall.watch.announcement import Announcement
from oncall.watch.course import State
from oncall.watch.keeping import Kept, WatchFolder
from oncall.watch.outbox import Outbox
from oncall.watch.settings import WatchSettings, read_watch_settings
from oncall.watch.targets.target import NotSent

# apprise looks for a module that Python 3.13 no longer has.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr':DeprecationWarning")

NEWS = Announcement(
    kind="opened",
    job="llama",
    incident="llama-20261123T031000Z",
    number=1,
    severity="critical",
    at_ns=1_795_403_400 * NS_PER_S,
    opened_ns=1_795_403_400 * NS_PER_S,
    headline="Not-entered hang: rank 5 on gpu017",
    summary="Rank 5 @here never called AllReduce 9",
    verdict=("hang H1 rank 5 on gpu017",),
)
SECRET = "T000SECRET/B000SECRET"


def configured(tmp_path: Path, text: str) -> WatchSettings:
    path = tmp_path / "config.toml"
    path.write_text(text)
    return read_watch_settings(path)


def outbox(settings: WatchSettings, folder: WatchFolder, patience_s: float = 15.0) -> Outbox:
    targets = {name: one.target for name, one in settings.notify.items()}
    return Outbox(targets, folder.save, patience_s)


def test_a_cloud_event(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret-token\n")
    with receiving(Receiver()) as bus:
        settings = configured(
            tmp_path,
            f'[watch.notify.bus]\nkind = "cloudevents"\nurl = "{bus.url}/events"\n'
            f'token_file = "{tmp_path}/token"\n',
        )
        settings.notify["bus"].target.send(NEWS)
    ((path, headers, event),) = bus.received
    assert path == "/events"
    assert headers["Content-Type"] == "application/cloudevents+json; charset=UTF-8"
    assert headers["Authorization"] == "Bearer s3cret-token"
    assert event["specversion"] == "1.0"
    assert event["id"] == "llama-20261123T031000Z/1"
    assert event["type"] == "oncall.incident.opened"
    assert event["source"] == "/oncall/jobs/llama"
    assert event["time"] == "2026-11-23T03:10:00.000Z"
    assert event["data"]["headline"] == NEWS.headline


@pytest.mark.parametrize("kind", ["cloudevents", "alertmanager"])
def test_names_that_could_steer_a_terminal_do_not_leave(kind: str, tmp_path: Path) -> None:
    evil = "\x1b[2J\u202egood\udce9"
    document = {"job": evil, "findings": [{"blame": [{evil: evil}]}]}
    news = replace(NEWS, job=evil, headline=f"rank 5 of {evil}", diagnosis=document)
    with receiving(Receiver()) as receiver:
        text = f'[watch.notify.it]\nkind = "{kind}"\nurl = "{receiver.url}"\n'
        configured(tmp_path, text).notify["it"].target.send(news)
    ((_, _, sent),) = receiver.received
    assert is_harmless(json.dumps(sent, ensure_ascii=False))


def test_an_alert_keeps_its_labels_and_ends(tmp_path: Path) -> None:
    with receiving(Receiver()) as manager:
        text = f'[watch.notify.am]\nkind = "alertmanager"\nurl = "{manager.url}"\n'
        target = configured(tmp_path, text + 'labels = {cluster = "a"}\n').notify["am"].target
        target.send(NEWS)
        target.send(replace(NEWS, kind="closed", number=2, severity="warning", headline="moves"))
    (first,), (last,) = (alerts for _, _, alerts in manager.received)
    assert manager.received[0][0] == "/api/v2/alerts"
    assert first["labels"] == last["labels"]
    assert first["labels"]["cluster"] == "a"
    assert first["endsAt"] == "2026-11-23T04:10:00.000Z"
    assert last["endsAt"] == "2026-11-23T03:10:00.000Z"


def test_apprise_sends_title_and_body(tmp_path: Path) -> None:
    pytest.importorskip("apprise")
    with receiving(Receiver()) as hook:
        (tmp_path / "url").write_text(f"json://127.0.0.1:{hook.port}/{SECRET}")
        text = (
            f'[watch.notify.chat]\nkind = "apprise"\nurl_file = "{tmp_path}/url"\n'
            'title = "$severity $job"\n'
        )
        configured(tmp_path, text).notify["chat"].target.send(NEWS)
    ((path, _, message),) = hook.received
    assert path == f"/{SECRET}"
    assert message["title"] == "critical llama"
    assert message["message"] == "Rank 5 (at)here never called AllReduce 9"


@pytest.mark.parametrize("kind", ["apprise", "cloudevents"])
def test_a_refusal_names_its_reason_and_no_secret(
    kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    if kind == "apprise":
        pytest.importorskip("apprise")
    with receiving(Receiver([403], answer=f"no {SECRET}")) as hook:
        scheme = "json" if kind == "apprise" else "http"
        (tmp_path / "url").write_text(f"{scheme}://127.0.0.1:{hook.port}/{SECRET}")
        text = f'[watch.notify.x]\nkind = "{kind}"\nurl_file = "{tmp_path}/url"\n'
        target = configured(tmp_path, text).notify["x"].target
        with pytest.raises(NotSent, match="403") as raised:
            target.send(NEWS)
        said = "".join(capfd.readouterr())
    assert "SECRET" not in str(raised.value) + said + repr(target)


def test_a_redirect_is_not_followed(tmp_path: Path) -> None:
    with receiving(Receiver([302])) as bus:
        text = f'[watch.notify.bus]\nkind = "cloudevents"\nurl = "{bus.url}"\n'
        with pytest.raises(NotSent, match="302"):
            configured(tmp_path, text).notify["bus"].target.send(NEWS)
    assert len(bus.received) == 1


def test_refused_then_accepted_and_never_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with receiving(Receiver([503, 200])) as bus, receiving(Receiver()) as other:
        settings = configured(
            tmp_path,
            f'[watch.notify.bus]\nkind = "cloudevents"\nurl = "{bus.url}"\n'
            f'[watch.notify.other]\nkind = "cloudevents"\nurl = "{other.url}"\n',
        )
        folder = WatchFolder(tmp_path / "watch")
        kept = Kept(State("llama")).announce(NEWS, ("bus", "other"))
        kept = kept.announce(replace(NEWS, kind="updated", number=2), ("bus", "other"))
        kept = outbox(settings, folder).deliver(kept, 0)
        assert [one.target for one in kept.pending] == ["bus", "bus"]  # in order
        assert "HTTP 503" in capsys.readouterr().err
        kept = outbox(settings, folder).deliver(folder.load("llama"), 1)
        assert len(kept.pending) == 2  # not before its time
        folder.close()
        folder = WatchFolder(tmp_path / "watch")  # another watch takes over
        kept = outbox(settings, folder).deliver(folder.load("llama"), 10 * NS_PER_S)
        folder.close()
    assert kept.pending == ()
    assert [event["id"][-1] for _, _, event in bus.received] == ["1", "1", "2"]
    assert [event["id"][-1] for _, _, event in other.received] == ["1", "2"]


def test_a_target_that_hangs_holds_up_nobody(tmp_path: Path) -> None:
    with receiving(Receiver(hang=threading.Event())) as slow, receiving(Receiver()) as bus:
        settings = configured(
            tmp_path,
            f'[watch.notify.slow]\nkind = "cloudevents"\nurl = "{slow.url}"\n'
            f'[watch.notify.bus]\nkind = "cloudevents"\nurl = "{bus.url}"\n',
        )
        folder = WatchFolder(tmp_path / "watch")
        box = outbox(settings, folder, patience_s=0.3)
        kept = box.deliver(Kept(State("llama")).announce(NEWS, ("slow", "bus")), 0)
        assert [one.target for one in kept.pending] == ["slow"]
        assert len(bus.received) == 1
        # It is not sent again while it hangs, nor after it was accepted at last.
        kept = box.deliver(kept, 3600 * NS_PER_S)
        assert slow.hang is not None
        slow.hang.set()
        box._hanging["slow"].thread.join(5)
        kept = box.deliver(kept, 7200 * NS_PER_S)
        folder.close()
    assert kept.pending == ()
    assert len(slow.received) == 1


def test_an_open_incident_is_repeated_to_alertmanager_alone(tmp_path: Path) -> None:
    with receiving(Receiver()) as manager, receiving(Receiver()) as bus:
        settings = configured(
            tmp_path,
            f'[watch.notify.am]\nkind = "alertmanager"\nurl = "{manager.url}"\n'
            f'[watch.notify.bus]\nkind = "cloudevents"\nurl = "{bus.url}"\n',
        )
        folder = WatchFolder(tmp_path / "watch")
        box = outbox(settings, folder)
        kept = box.deliver(Kept(State("llama")).announce(NEWS, ("am", "bus")), NEWS.at_ns)
        for seconds in (30, 90, 100):
            box.deliver(kept, NEWS.at_ns + seconds * NS_PER_S)
            box._hanging["am"].thread.join(5)
        folder.close()
    assert (len(manager.received), len(bus.received)) == (2, 1)
    assert manager.received[1][2][0]["endsAt"] == "2026-11-23T04:11:30.000Z"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[watch]\nevry = '1s'", "did you mean every?"),
        ("[watch]\nevery = 'soon'", "`every` in [watch]"),
        ("[watch]\nmetrics = '9469'", "must be an address"),
        ("[watch.notify.x]\nkind = 'slack'", "one of apprise, cloudevents, alertmanager"),
        ("[watch.notify.x]\nkind = 'apprise'\nurl = 'slack://a/b/c'", "url_file or url_env"),
        ("[watch.notify.x]\nkind = 'cloudevents'\nurl = 'ftp://x'", "http or https URL"),
        ("[watch.notify.x]\nkind = 'cloudevents'\nurl = 'http://u:p@x'", "token_file"),
        ("[watch.notify.x]\nkind = 'cloudevents'\nurl_file = '/nowhere'", "No such file"),
        ("[watch.notify.x]\nkind = 'cloudevents'\nurl_env = 'NOT_SET'", "is empty"),
        (
            "[watch.notify.x]\nkind = 'apprise'\nurl_env = 'HOOK'\nbody = '$cause'",
            "unknown field $cause",
        ),
        ("[watch.notify.x]\nkind = 'apprise'\nurl_env = 'HOOK'\nbody = '5 $'", "write `$$`"),
        ("[watch.notify.x]\nkind = 'apprise'\nurl_env = 'HOOK'", "does not accept its URL"),
    ],
)
def test_wrong_settings(
    text: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "HOOK" in text and says.startswith("does"):
        pytest.importorskip("apprise")
    monkeypatch.setenv("HOOK", "nosuch://SECRET-in-it")
    with pytest.raises(BadInput) as raised:
        configured(tmp_path, text)
    assert says in str(raised.value)
    assert "SECRET" not in str(raised.value)
