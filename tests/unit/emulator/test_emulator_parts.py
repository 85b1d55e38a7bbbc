"""The emulator's parts that need no socket."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from contracts.errors import Invalid
from emulator.catalog import Catalog, read_document
from emulator.events import EventLog
from emulator.failures import cooldown_message, failure_of, go_duration
from emulator.faults import Fault, FaultBoard, parse_fault
from emulator.instance import Refusal
from emulator.models import EmulatedModel
from emulator.resources import display
from emulator.routes import Router
from emulator.settings import parse_duration_s
from emulator.work import timing
from simulator.cluster import Cluster
from simulator.localai import LocalAi
from simulator.localai_effects import RefusalKind, Refused

# The event log


def test_the_log_is_bounded_and_says_what_it_lost(tmp_path: Path):
    path = tmp_path / "deep" / "log.jsonl"
    log = EventLog(path, max_events=3)
    assert log.after(0) == []
    for number in range(5):
        log.append({"kind": "x", "number": number})
    assert [event["seq"] for event in log.after(0)] == [3, 4, 5]
    assert [event["seq"] for event in log.after(3)] == [4, 5]
    assert [event["seq"] for event in log.after(0, limit=2)] == [3, 4]
    assert log.after(5) == log.after(99) == []
    assert (log.last_seq, log.dropped) == (5, 2)
    log.flush()
    log.close()
    log.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["number"] for line in lines] == [0, 1, 2, 3, 4]  # the file has all


def test_a_log_without_a_file():
    log = EventLog()
    log.append({"kind": "x"})
    log.flush()
    log.close()
    assert log.after(0) == [{"seq": 1, "kind": "x"}]


# Times and words


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (9, "9s"), (60, "1m0s"), (80, "1m20s"), (300, "5m0s")]
)
def test_durations_are_printed_as_go_prints_them(seconds, text):
    assert go_duration(seconds) == text
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("1h2m3s", 3723.0), ("1.5s", 1.5), ("soon", None), ("", None)],
)
def test_durations_are_read_as_go_reads_them(text, seconds):
    assert parse_duration_s(text) == seconds


def test_a_cool_downs_text_is_rounded_and_its_header_is_not():
    refusal = Refusal(Refused(caller=1, kind=RefusalKind.COOLDOWN, retry_after_s=7.2))
    failure = failure_of(refusal, "m", configured=True)
    assert (failure.status, failure.retry_after) == (503, 8)
    assert failure.message == cooldown_message("m", 7.2)
    assert failure.message.endswith("retry after 7s")
    unconfigured = failure_of(refusal, "m", configured=False)
    assert (unconfigured.status, unconfigured.retry_after) == (500, None)
    assert unconfigured.message.startswith("could not load model - all backends returned error")


def test_a_cancelled_load_has_its_own_words():
    refusal = Refusal(Refused(caller=1, kind=RefusalKind.LOAD_FAILED, message="context canceled"))
    assert failure_of(refusal, "m", configured=True).message.endswith(
        "could not load model: rpc error: code = Canceled desc = context canceled"
    )


def test_a_refusal_without_words_says_its_kind():
    refusal = Refusal(Refused(caller=1, kind=RefusalKind.NOT_LOADED))
    assert failure_of(refusal, "m", configured=True).message == "not_loaded"


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(999, "999.0 B"), (4_457_408, "4.5 MB"), (188_190_136, "188.2 MB"), (10**15, "1000.0 TB")],
)
def test_sizes_are_shown_to_people(size_bytes, text):
    assert display(size_bytes) == text


def test_work_takes_what_the_model_or_the_caller_says():
    model = EmulatedModel(name="a", first_token_s=0.5, tokens_per_s=10.0)
    assert timing(model, tokens=5, service_s=None, extra_s=1.0) == (1.5, 0.1, 2.0)
    assert timing(model, tokens=4, service_s=2.5, extra_s=9.0) == (0.5, 0.5, 2.5)
    assert timing(model, tokens=0, service_s=0.4, extra_s=0.0) == (0.2, 0.2, 0.4)
    assert timing(None, tokens=4, service_s=2.5, extra_s=0.0) == (0.0, 0.0, 0.0)


# Routes


@pytest.mark.parametrize(
    ("method", "path", "template", "params"),
    [
        ("POST", "/v1/chat/completions", "/v1/chat/completions", {}),
        ("POST", "/v1/chat/completions/", "/v1/chat/completions", {}),
        ("GET", "/api/models/edit/org%2Fa", "/api/models/edit/:name", {"name": "org/a"}),
        (
            "PUT", "/models/toggle-pinned/a%20b/pin",
            "/models/toggle-pinned/:name/:action", {"name": "a b", "action": "pin"},
        ),
        ("POST", "/v1/text-to-speech/x", "/v1/text-to-speech/:voice-id", {"voice-id": "x"}),
    ],
)  # fmt: skip
def test_a_route_is_found(method, path, template, params):
    match = Router().find(method, path)
    assert match.route is not None
    assert (match.route.template, match.params) == (template, params)


def test_a_path_that_takes_other_methods_says_which():
    assert Router().find("GET", "/backend/load").methods == ("POST",)
    assert Router().find("DELETE", "/api/models/config-json/a").methods == ("GET", "PATCH")
    for path in ("//version", "/v1/models/a", "/api/models/edit/a/b"):
        match = Router().find("GET", path)
        assert (match.route, match.methods) == (None, ())


# The catalogue


def catalog() -> Catalog:
    return Catalog(
        (
            EmulatedModel(name="off", disabled=True),
            EmulatedModel(name="a", aliases=("z-alias", "b-alias"), load_s=7.0),
            EmulatedModel(name="e", kind="embedding"),
        )
    )


def test_names_lead_to_models():
    known = catalog()
    assert known.names() == ("off", "a", "z-alias", "b-alias", "e")
    assert known.resolve("z-alias") == "a"
    assert known.resolve("nope") == "nope"
    assert known.model("z-alias") is None
    assert known.model("nope") is None
    assert known.aliases() == {"b-alias": "a", "z-alias": "a"}
    first = known.first("chat")
    assert first is not None
    assert first.name == "a"  # the one before it is disabled
    assert known.first("image") is None


def test_a_configuration_keeps_what_only_an_emulator_knows():
    known = catalog()
    entry = known.put({"name": "a", "backend": "stub", "pinned": True})
    assert entry.model is not None
    assert (entry.model.load_s, entry.model.pinned) == (7.0, True)
    assert entry.model.aliases == ("z-alias", "b-alias")
    entry = known.put({"name": "a", "emulator": {"load_s": 1.0}})
    assert entry.model is not None
    assert entry.model.load_s == 1.0
    with pytest.raises(Invalid, match="load_s"):
        known.put({"name": "a", "emulator": {"load_s": "long"}})


def test_a_patch_merges_deeply():
    known = catalog()
    known.put({"name": "a", "parameters": {"model": "m", "top_k": 1}})
    entry = known.patch("a", {"parameters": {"top_k": 2}, "threads": 3})
    assert "top_k: 2" in entry.text
    assert "model: m" in entry.text
    assert "threads: 3" in entry.text


def test_flags_are_written_and_taken_back():
    known = catalog()
    assert "pinned: true" in known.set_flag("a", "pinned", on=True).text
    entry = known.set_flag("a", "pinned", on=False)
    assert "pinned" not in entry.text
    assert "disabled: true" in known.set_flag("z-alias", "disabled", on=True).text
    known.delete("a")
    known.delete("a")
    assert "a" not in known


def test_documents_that_are_no_configuration():
    assert read_document(b'{"name": "a"}', "application/json") == {"name": "a"}
    with pytest.raises(Invalid, match="Failed to parse body"):
        read_document(b"\xff\xfe\xff", "")
    with pytest.raises(Invalid, match="Name is required"):
        read_document(b"[1]", "application/x-yaml")
    with pytest.raises(Invalid, match="Name is required"):
        catalog().put({"name": 7})


# Faults


def board() -> FaultBoard:
    return FaultBoard(LocalAi(Cluster((EmulatedModel(name="a").spec(),))))


def test_a_fault_is_used_up():
    made = board()
    made.arm(Fault(kind="error_500", times=2), 0.0)
    assert made.take("error_500", "a") is not None
    assert made.take("error_500", "b") is not None
    assert made.take("error_500", "a") is None
    made.arm(Fault(kind="error_500", times=0), 0.0)
    assert made.take("error_500", "a") is None


def test_a_fault_of_one_model_is_not_another_ones():
    made = board()
    made.arm(Fault(kind="answer_slow", model="a", extra_s=2.0), 0.0)
    assert made.peek("answer_slow", "b") is None
    assert made.take("answer_slow", "a") == made.take("answer_slow", "a")


def test_disarming_one_fault_of_a_model_leaves_its_others():
    machine = LocalAi(Cluster((EmulatedModel(name="a").spec(),)))
    made = FaultBoard(machine)
    slow = parse_fault({"kind": "load_slow", "model": "a", "factor": 3})
    made.arm(slow, 0.0)
    made.arm(Fault(kind="unload_lies", model="a"), 0.0)
    made.disarm(slow)
    made.disarm(slow)  # a second time is nothing
    faults = machine.faults("a")
    assert (faults.load_factor, faults.unload_lies) == (1.0, True)
    assert [fault.kind for fault in made.armed()] == ["unload_lies"]
    made.clear()
    assert made.armed() == ()
    assert not machine.faults("a").unload_lies


def test_a_failing_load_without_a_count_fails_for_ever():
    machine = LocalAi(Cluster((EmulatedModel(name="a").spec(),)))
    FaultBoard(machine).arm(parse_fault({"kind": "load_fail", "model": "a"}), 0.0)
    assert machine.faults("a").load_failures > 10**6
