"""``headstart simulate --events`` on a log in a file, and what ``--plot`` needs."""

from __future__ import annotations

import json
import sys
import types
from typing import Any

import pytest

from cli.__main__ import main
from cli.recorded_log import write_log
from contracts.events import (
    LoadCause,
    ModelLoaded,
    NodeObserved,
    PriorityClass,
    RequestCompleted,
    RequestDispatched,
    RequestReceived,
)
from contracts.ids import ModelId, NodeId, RequestId
from contracts.world import WorldSnapshot
from simulator.workloads import MIB

EPOCH_S = 1_700_000_000.0
NODE = NodeId("gpu")


def week(*, memory_mb=9_000):
    """Two models that do not fit together, asked for in turn each five minutes."""
    events: list[Any] = [
        NodeObserved(
            event_id="n",
            at_s=EPOCH_S,
            source="c",
            node=NODE,
            resident=(),
            busy=(),
            memory_total_bytes=None if memory_mb is None else memory_mb * MIB,
            memory_used_bytes=None,
            model_limit=None,
        )
    ]
    for number in range(40):
        model, at_s = ModelId("ab"[number % 2]), EPOCH_S + 300.0 * number
        request = RequestId(f"r{number}")
        stamp: dict[str, Any] = {"at_s": at_s, "source": "g", "request_id": request, "model": model}
        events += [
            RequestReceived(
                event_id=f"r{number}",
                operation="chat",
                priority=PriorityClass.REALTIME,
                client="",
                stream=False,
                **stamp,
            ),
            ModelLoaded(
                event_id=f"l{number}",
                at_s=at_s + 8.0,
                source="c",
                model=model,
                node=NODE,
                cause=LoadCause.DEMAND,
                load_s=8.0,
                footprint_bytes=6_000 * MIB,
            ),
            RequestDispatched(
                event_id=f"d{number}", node=NODE, queue_wait_s=8.0, cold=True, **stamp
            ),
            RequestCompleted(
                event_id=f"c{number}",
                status=200,
                duration_s=10.0,
                service_s=2.0,
                input_tokens=None,
                output_tokens=None,
                **stamp,
            ),
        ]
    return events


@pytest.fixture
def headstart(monkeypatch, capsys):
    def headstart(*arguments):
        monkeypatch.setattr(sys, "argv", ["headstart", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return ended.value.code, said.out, said.err

    return headstart


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "week.jsonl.gz"
    write_log(path, week(), WorldSnapshot(taken_at_s=EPOCH_S))
    return path


def test_what_the_last_week_would_have_been(headstart, log):
    status, out, err = headstart("simulate", "--events", log, "--policy", "lru,headstart", "--json")
    assert (status, err) == (0, "")
    recorded, lru, headstart_row = json.loads(out)["rows"]
    assert (recorded["policy"], recorded["cold"], recorded["mean_wait_s"]) == ("recorded", 1.0, 8.0)
    assert recorded["workload"] == lru["workload"] == "events"
    assert lru["capacity_mb"] == 9_000
    assert lru["slo"] == recorded["slo"] == 0.0
    assert headstart_row["slo"] > 0.5


def test_a_part_counts_from_the_first_request_and_has_no_row_of_what_happened(headstart, log):
    arguments = ("--events", log, "--policy", "lru", "--from", 600, "--to", 1500, "--json")
    _, out, _ = headstart("simulate", *arguments)
    (row,) = json.loads(out)["rows"]
    assert row["n"] == 3


def test_a_log_can_be_written_again_and_read_again(headstart, log, tmp_path):
    copy = tmp_path / "copy.jsonl"
    arguments = ("--policy", "lru", "--json")
    _, first, _ = headstart("simulate", "--events", log, "--export", copy, *arguments)
    _, second, _ = headstart("simulate", "--events", copy, *arguments)
    assert first == second
    assert copy.read_text().count("\n") == 162


def test_lines_that_say_nothing_are_counted(headstart, tmp_path):
    path = tmp_path / "log.jsonl"
    write_log(path, week(), None)
    path.write_text("not a record\n\n" + path.read_text())
    status, _, err = headstart("simulate", "--events", path, "--policy", "lru", "--json")
    assert (status, err) == (0, "headstart: 1 records could not be read\n")


def test_a_size_may_be_given_and_must_be_where_the_log_has_none(headstart, tmp_path):
    path = tmp_path / "log.jsonl"
    write_log(path, week(memory_mb=None), None)
    status, _, err = headstart("simulate", "--events", path, "--policy", "lru")
    assert status == 2
    assert "--capacity-mb: the log does not tell" in err
    sizes = ("--capacity-mb", "9000,20000")
    _, out, _ = headstart("simulate", "--events", path, "--policy", "lru", "--json", *sizes)
    assert [row["capacity_mb"] for row in json.loads(out)["rows"]] == [9000, 9000, 20000, 20000]


@pytest.mark.parametrize(("content", "message"), [("", "holds no event"), (None, "cannot be read")])
def test_a_file_that_is_no_log_is_refused(headstart, tmp_path, content, message):
    path = tmp_path / "log.jsonl"
    if content is not None:
        path.write_text(content)
    status, _, err = headstart("simulate", "--events", path)
    assert (status, err.count("\n")) == (2, 1)
    assert message in err


class Axes:
    """Takes what is drawn and remembers it."""

    def __init__(self):
        self.drawn = []

    def __getattr__(self, name):
        return lambda *arguments, **options: self.drawn.append((name, arguments, options))


@pytest.fixture
def matplotlib(monkeypatch):
    """A stand-in for the optional library; what was drawn on each panel, and where it went."""
    made = types.SimpleNamespace(axes=[], saved=[])

    def subplots(rows, columns, **_):
        made.axes = [[Axes() for _ in range(columns)] for _ in range(rows)]
        figure = types.SimpleNamespace(
            suptitle=lambda title: None,
            tight_layout=lambda: None,
            savefig=lambda path, dpi: made.saved.append(path),
        )
        return figure, made.axes

    library: Any = types.ModuleType("matplotlib")
    pyplot: Any = types.ModuleType("matplotlib.pyplot")
    library.use = lambda backend: None
    pyplot.subplots, pyplot.close = subplots, lambda figure: None
    library.__spec__ = types.SimpleNamespace()
    monkeypatch.setitem(sys.modules, "matplotlib", library)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", pyplot)
    return made


def test_a_plot_shows_residency_and_waits_of_each_policy(headstart, log, tmp_path, matplotlib):
    picture = tmp_path / "out.png"
    arguments = ("--events", log, "--policy", "lru,headstart", "--plot", picture)
    status, _, err = headstart("simulate", *arguments)
    assert (status, err) == (0, "")
    assert matplotlib.saved == [picture]
    assert len(matplotlib.axes) == 2
    residency, waits = matplotlib.axes[0]
    loading, resident = (call for call in residency.drawn if call[0] == "barh")
    assert loading[1][1] == [8.0 / 3600.0] * 40
    assert len(resident[1][1]) == 40
    (steps,) = (call for call in waits.drawn if call[0] == "step")
    assert (len(steps[1][0]), steps[1][1][0]) == (40, 1.0)


def test_a_plot_that_cannot_be_is_refused_before_anything_is_played(
    headstart, log, tmp_path, matplotlib
):
    events = ("simulate", "--events", log)
    for arguments, message in (
        (("--plot", tmp_path / "out.doc"), "must end in one of .png, .svg, .pdf"),
        (("--plot", tmp_path / "no" / "out.png"), "there is no folder"),
        (("--plot", tmp_path / "o.png", "--capacity-mb", "9000,9001"), "one workload at one size"),
    ):
        status, _, err = headstart(*events, *arguments)
        assert (status, err.count("\n")) == (2, 1)
        assert message in err


def test_without_matplotlib_it_says_what_to_install(headstart, log, tmp_path, monkeypatch):
    monkeypatch.setattr("cli.simulate_plot.find_spec", lambda name: None)
    status, _, err = headstart("simulate", "--events", log, "--plot", tmp_path / "out.png")
    assert (status, err.count("\n")) == (2, 1)
    assert "pip install 'headstart[plot]'" in err
