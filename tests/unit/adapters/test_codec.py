from __future__ import annotations

import json
import math

import pytest

from adapters.codec import EVENT_TYPES, decode, decode_as, encode
from contracts.events import NodeLost, PriorityClass, RequestFailed, RequestReceived
from contracts.ids import ModelId, NodeId, RequestId
from contracts.plan import Decision, Outcome
from contracts.reasons import Reason
from contracts.world import Sla

SLA = Sla(model=ModelId("a"), target_s=2.0)
LOST = NodeLost(event_id="e", at_s=1.0, source="s", node=NodeId("n"), error="gone")


def envelope(**changes: object) -> bytes:
    return json.dumps(
        {"v": 1, "kind": "Sla", "data": {"model": "a", "target_s": 2.0}} | changes
    ).encode()


def test_the_envelope_names_version_and_kind():
    assert json.loads(encode(SLA)) == {
        "v": 1,
        "kind": "Sla",
        "data": {
            "model": "a",
            "target_s": 2.0,
            "percentile": 95.0,
            "priority": "realtime",
            "weight": 1.0,
        },
    }


def test_there_and_back():
    assert decode(encode(SLA)) == SLA
    assert decode(encode(LOST)) == LOST


def test_missing_fields_take_their_defaults_and_unknown_ones_are_ignored():
    data = envelope(data={"model": "a", "target_s": 2.0, "colour": "blue"})
    assert decode(data) == SLA


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"null",
        b"[]",
        b"{",
        b'{"v":1}',
        envelope(v=2),
        envelope(v=0),
        envelope(v="1"),
        envelope(kind="Surprise"),
        envelope(kind=7),
        envelope(data=None),
        envelope(data={"model": "a"}),
        envelope(data={"model": "a", "target_s": "soon"}),
        envelope(data={"model": "a", "target_s": 2.0, "priority": "urgent"}),
        b'{"v":1,"kind":"Sla","data":' + b"[" * 100_000,
    ],
)  # fmt: skip
def test_what_is_newer_unknown_or_damaged_is_none(data: bytes):
    assert decode(data) is None


def test_only_the_wanted_kinds_are_given():
    assert decode_as(encode(LOST), EVENT_TYPES) == LOST
    assert decode_as(encode(SLA), EVENT_TYPES) is None
    assert decode_as(encode(SLA), Sla) == SLA
    assert decode_as(None, Sla) is None


def test_a_float_that_is_not_finite_is_missing_never_a_number():
    event = RequestFailed(
        event_id="e", at_s=1.0, source="s", request_id=RequestId("r"), model=None,
        status=None, error="x", origin="gateway", duration_s=math.nan,  # type: ignore[arg-type] # as a plain word
    )  # fmt: skip
    assert b"NaN" not in encode(event)
    assert decode(encode(event)) is None
    decision = Decision(
        policy="p", subject="s", outcome=Outcome.HOLD, reason=Reason.NO_ROOM,
        evidence=(("gain_s", 1.5), ("node", "n")),
    )  # fmt: skip
    assert decode(encode(decision)) == decision


def test_text_that_is_not_valid_unicode_does_not_stop_the_writer():
    event = RequestReceived(
        event_id="e",
        at_s=1.0,
        source="s",
        request_id=RequestId("r\udcff"),
        model=ModelId("a\ud800"),
        operation="chat",
        priority=PriorityClass.REALTIME,
        client="c",
        stream=True,
    )
    read = decode(encode(event))
    assert isinstance(read, RequestReceived)
    assert read.model == "a?"
    assert read.request_id == "r?"


def test_other_records_are_refused():
    with pytest.raises(TypeError, match="str is not a record"):
        encode("text")  # type: ignore[arg-type] # what a mistaken caller would do
