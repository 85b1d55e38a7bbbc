"""A configuration that changes while a process runs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from structlog.testing import LogCapture

from adapters.config_files import POLL_S, ConfigReload
from adapters.settings import Settings, load_settings
from adapters.settings_changes import MAX_NAMED, Changes, changed_keys, changes_for
from adapters.terminal import Terminal
from contracts.errors import Invalid
from simulator.memory_ports import VirtualClock

HOME = {"HOME": "/home/op"}


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(name="log")
def _log() -> Iterator[LogCapture]:
    capture = LogCapture()
    structlog.configure(processors=[capture])
    yield capture
    structlog.reset_defaults()


def write(text: str, name: str = "headstart.yaml") -> Path:
    Path(name).write_text(text, encoding="utf-8")
    return Path(name)


def remove(name: str) -> None:
    Path(name).unlink()


class Process:
    """Takes over what it is given."""

    def __init__(self, environ: dict[str, str] | None = None) -> None:
        self.clock = VirtualClock(start_s=0.0)
        environ = HOME | (environ or {})
        self.settings = load_settings(environ)
        self.refuses = False
        self.configuration = ConfigReload(self.settings, environ, self.apply, self.clock)

    def apply(self, before: Settings, after: Settings) -> Changes:
        assert before is self.settings
        if self.refuses:
            raise Invalid("not now")
        self.settings = after
        return changes_for(
            before, after, applied=[("gateway",)], on_restart=[("gateway", "port"), ("redis",)]
        )

    async def looks(self, times: int) -> None:
        for _ in range(times):
            await self.clock.advance(POLL_S)
            await asyncio.sleep(0)


def test_a_new_configuration_is_taken_over_and_said(log: LogCapture) -> None:
    write("gateway: {keepalive_seconds: 5}")
    process = Process()
    write("gateway: {keepalive_seconds: 7, port: 9000}\nscheduler: {tick_seconds: 2}")
    process.configuration.reload()
    assert process.settings.gateway_config().keepalive_s == 7.0
    restart, loaded = log.entries
    assert restart["event"] == "configuration_needs_restart"
    assert restart["settings"] == ["gateway.port"]
    assert loaded["event"] == "configuration_loaded"
    assert loaded["changed"] == ["gateway.keepalive_seconds"]
    assert (process.configuration.loaded, process.configuration.refused) == (1, 0)


@pytest.mark.parametrize("bad", ["gateway: {port: hush}\nredis: 7", "gateway: [", "", None])
def test_a_bad_one_is_refused_with_all_that_is_wrong(log: LogCapture, bad: str | None) -> None:
    write("gateway: {keys: [k]}")
    process = Process()
    before = process.settings
    if bad is None:
        Path("headstart.yaml").unlink()
    else:
        write(bad)
    process.configuration.reload()
    assert process.settings is before
    (entry,) = log.entries
    assert entry["event"] == "configuration_refused"
    with pytest.raises(Invalid) as caught:
        load_settings(HOME, Path("headstart.yaml"))
    assert entry["error"] == str(caught.value)
    assert process.configuration.refused == 1
    write("gateway: {keys: [k2]}")
    process.configuration.reload()
    assert process.settings.gateway_config().keys == ("k2",)


def test_one_that_the_process_refuses_changes_nothing(log: LogCapture) -> None:
    write("gateway: {keepalive_seconds: 5}")
    process = Process()
    process.refuses = True
    write("gateway: {keepalive_seconds: 7}")
    process.configuration.reload()
    assert process.settings.gateway_config().keepalive_s == 5.0
    assert log.entries[0]["error"] == "not now"


def test_a_file_that_comes_later_is_found_when_asked() -> None:
    process = Process()
    write("gateway: {keepalive_seconds: 7}")
    process.configuration.reload()
    assert process.settings.gateway_config().keepalive_s == 7.0


async def test_a_change_of_a_file_is_seen_once_it_is_whole(log: LogCapture) -> None:
    write("gateway: {keepalive_seconds: 5}")
    secret = write("one", "keys")
    process = Process({"HEADSTART_GATEWAY_KEYS_FILE": str(secret.absolute())})
    watching = asyncio.create_task(process.configuration.watch())
    await asyncio.sleep(0)
    await process.looks(3)
    assert log.entries == []
    write("gateway: {keepalive_sec")
    await process.looks(1)
    write("gateway: {keepalive_seconds: 7}")  # whoever writes was not done
    await process.looks(1)
    assert log.entries == []
    await process.looks(1)
    assert process.settings.gateway_config().keepalive_s == 7.0
    write("two", "keys.new").rename("keys")  # another file in its place
    await process.looks(2)
    assert process.settings.gateway_config().keys == ("two",)
    await process.looks(5)
    assert [entry["event"] for entry in log.entries] == ["configuration_loaded"] * 2
    remove("headstart.yaml")
    await process.looks(5)
    assert [entry["event"] for entry in log.entries][2:] == ["configuration_refused"], "said once"
    assert process.settings.gateway_config().keepalive_s == 7.0
    watching.cancel()


def test_changes_name_keys_and_no_values() -> None:
    before = load_settings(HOME, write("gateway: {keys: [a, b]}\nmodels: {m: {slots: 1}}"))
    after = load_settings(
        HOME, write('gateway: {keys: [a, c]}\nmodels: {"x.y": {slots: 1}}\ndata_dir: /srv')
    )
    assert ("gateway", "keys") in changed_keys(before, after)
    changes = changes_for(
        before, after, applied=[("gateway",), ("models", "*", "slots")], on_restart=[("data_dir",)]
    )
    assert changes.applied == ("gateway.keys", "models.m.slots", 'models["x.y"].slots')
    assert changes.on_restart == ("data_dir",)
    assert changed_keys(after, after) == ()


def test_the_names_of_changes_are_bounded() -> None:
    many = "\n".join(f"  m{number}: {{slots: 2}}" for number in range(MAX_NAMED + 3))
    before, after = load_settings(HOME), load_settings(HOME, write(f"models:\n{many}"))
    changes = changes_for(before, after, applied=[("models", "*", "slots")], on_restart=[])
    assert len(changes.applied) == MAX_NAMED + 1
    assert changes.applied[-1] == "… and 3 more"


def test_a_terminal_that_is_closed_is_noticed() -> None:
    ours, theirs = os.openpty()
    terminal = Terminal((theirs,))
    assert not terminal.is_gone()
    os.close(ours)
    assert terminal.is_gone()
    os.close(theirs)
    assert terminal.is_gone()
    assert not Terminal((theirs,)).is_gone(), "there was none"
