"""Which calls one LocalAI has, found without changing anything there.

Paths that act are called without a name (400 where they exist), or by a method that they do not
take (405); what only reads is read.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from adapters.localai_answers import REFUSED, Answer
from adapters.localai_calls import LocalAICalls
from contracts.errors import Transient
from contracts.node_facts import Access, Call, Capabilities

AT_ONCE = 4
"""Questions to one node at the same time."""


class _Question(NamedTuple):
    method: str
    path: str
    nameless: bool = False
    """Sent with an empty object, where a name would be needed."""


_QUESTIONS = {
    Call.LOAD: _Question("POST", "/backend/load", nameless=True),
    Call.SHUTDOWN: _Question("POST", "/backend/shutdown", nameless=True),
    Call.MONITOR: _Question("GET", "/backend/monitor"),
    Call.SYSTEM: _Question("GET", "/system"),
    Call.RESOURCES: _Question("GET", "/api/resources"),
    Call.SETTINGS: _Question("GET", "/api/settings"),
    Call.ALIASES: _Question("GET", "/api/aliases"),
    Call.CAPABILITIES: _Question("GET", "/v1/models/capabilities"),
    Call.UI_CAPABILITIES: _Question("GET", "/api/models/capabilities"),
    Call.ESTIMATE: _Question("POST", "/api/models/vram-estimate", nameless=True),
    Call.READ_CONFIG: _Question("GET", "/api/models/edit/-"),
    Call.IMPORT: _Question("GET", "/models/import"),
    Call.METRICS: _Question("GET", "/metrics"),
    Call.NODES: _Question("GET", "/api/nodes"),
    Call.P2P: _Question("GET", "/api/p2p"),
}

_NO_SUCH_PATH = "Resource not found"
"""LocalAI's words for a path that it has not; a name that it has not is told otherwise."""


async def probe(calls: LocalAICalls, *, limit_s: float) -> Capabilities:
    """Ask for everything. Raises Transient when the node is away; one odd answer is no fault."""
    version = await calls.call("GET", "/version", limit_s=limit_s)
    gate = asyncio.Semaphore(AT_ONCE)

    async def ask(call: Call) -> tuple[Call, Access]:
        question = _QUESTIONS[call]
        body: dict[str, object] | None = {} if question.nameless else None
        async with gate:
            try:
                answer = await calls.call(
                    question.method, question.path, body, limit_s=limit_s, may_repeat=True
                )
            except Transient:
                return call, Access.UNKNOWN
        return call, _access(call, answer)

    found = await asyncio.gather(*(ask(call) for call in Call))
    told = version.object().get("version")
    return Capabilities(version=told if isinstance(told, str) else "", calls=dict(found))


def _access(call: Call, answer: Answer) -> Access:
    status = answer.status
    if status in REFUSED:
        return Access.REFUSED
    if status == 405:
        # The path is there, and takes another method.
        return Access.YES
    if status == 404:
        # For a name that no model has, the path itself is there.
        named = call is Call.READ_CONFIG and answer.message not in ("", _NO_SUCH_PATH)
        return Access.YES if named else Access.ABSENT
    if status == 501:
        return Access.ABSENT
    if status in (408, 425, 429) or status >= 500:
        # Older versions fail in their own ways where a name is missing; that is an answer, too.
        return Access.YES if _QUESTIONS[call].nameless and status == 500 else Access.UNKNOWN
    return Access.YES
