from __future__ import annotations

from api.gateway.detect import Wishes
from api.gateway.meter import Subject
from api.gateway.passes import Pass
from api.gateway.problems import no_backend, queue_full
from api.gateway.recognition import Recognised
from api.gateway.serving_headers import serving_headers
from contracts.events import PriorityClass
from contracts.ids import ModelId, NodeId, RequestId
from contracts.reasons import Reason


def request(model: str | None = "llama") -> Recognised:
    return Recognised(
        subject=Subject(
            request_id=RequestId("r~1"),
            model=None if model is None else ModelId(model),
            operation="chat",
            priority=PriorityClass.REALTIME,
            client="c",
            stream=False,
        ),
        shown_id="r",
        wishes=Wishes(),
    )


def passed(model: str | None, reason: Reason = Reason.RESIDENT) -> Pass:
    return Pass(
        model=None if model is None else ModelId(model),
        node=NodeId("gpu"),
        is_cold=True,
        queue_wait_s=1.5,
        reason=reason,
    )


def test_the_model_that_serves_is_named_and_why():
    headers = serving_headers(
        request(), passed("llama--headstart-cpu", Reason.CPU_FALLBACK), None, node=NodeId("gpu")
    )
    assert headers == [
        (b"x-request-id", b"r"),
        (b"x-headstart-model", b"llama--headstart-cpu"),
        (b"x-headstart-backend", b"gpu"),
        (b"x-headstart-cold", b"true"),
        (b"x-headstart-queue-ms", b"1500"),
        (b"x-headstart-decision", b"cpu_fallback"),
    ]


def test_what_never_went_anywhere_names_the_model_that_was_asked_for():
    problem = no_backend("no", decision=Reason.NODE_LOST)
    assert serving_headers(request(), None, problem, node=None) == [
        (b"x-request-id", b"r"),
        (b"x-headstart-model", b"llama"),
        (b"x-headstart-decision", b"node_lost"),
    ]
    assert serving_headers(request(None), None, None, node=None) == [(b"x-request-id", b"r")]


def test_a_refusal_without_a_word_of_its_own_keeps_the_passes():
    problem = queue_full("realtime", 1.0)
    problem.decision = None
    headers = dict(serving_headers(request(), passed(None), problem, node=None))
    assert headers[b"x-headstart-model"] == b"llama"
    assert headers[b"x-headstart-decision"] == b"resident"
    assert b"x-headstart-backend" not in headers
