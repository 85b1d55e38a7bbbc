"""What every answer to an inference request says about how it was served. Pure."""

from __future__ import annotations

from api.gateway.headers import Header, header_text
from api.gateway.passes import Pass
from api.gateway.problems import Problem
from api.gateway.recognition import Recognised
from contracts.ids import NodeId
from contracts.reasons import Reason


def serving_headers(
    request: Recognised, passed: Pass | None, problem: Problem | None, *, node: NodeId | None
) -> list[Header]:
    """``node``: the one that serves it, where callers are told; None: they are not."""
    headers: list[Header] = [(b"x-request-id", request.shown_id.encode())]
    served_by = None if passed is None else passed.model
    model = request.subject.model if served_by is None else served_by
    if model is not None:
        headers.append((b"x-headstart-model", header_text(model)))
    decision: Reason | None = None
    if passed is not None:
        if node is not None:
            headers.append((b"x-headstart-backend", header_text(node)))
        headers.append((b"x-headstart-cold", b"true" if passed.is_cold else b"false"))
        headers.append((b"x-headstart-queue-ms", b"%d" % (passed.queue_wait_s * 1000)))
        decision = passed.reason
    if problem is not None and problem.decision is not None:
        decision = problem.decision
    if decision is not None:
        headers.append((b"x-headstart-decision", decision.value.encode()))
    return headers
