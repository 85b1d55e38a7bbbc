"""What becomes of a line after an answer, and how it stands in the batch's files. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from contracts.ports import Exchange

MAX_FAILURES = 4
"""Tries of a line that LocalAI fails at; its last answer then is its result."""
MAX_REFUSALS = 100
"""Back-pressure is no failure, but a model that never loads must not be tried for ever."""
MAX_PREEMPTIONS = 3
"""A line that gave way so often is not offered for it again."""
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0
_REFUSED = frozenset({429, 503})
_FAILED = frozenset({408, *range(500, 600)}) - _REFUSED

GOOD, BAD = b"+", b"-"
"""The first byte of a record: for the output file, or for the error file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tries:
    """What a line has been through."""

    failures: int = 0
    refusals: int = 0
    preemptions: int = 0

    @property
    def gives_way(self) -> bool:
        """Whether it may still be preempted."""
        return self.preemptions < MAX_PREEMPTIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """It goes back to its place, and no line of its model is sent for ``after_s``."""

    after_s: float
    tries: Tries


def judge(exchange: Exchange, tries: Tries) -> Again | None:
    """None: the answer is the line's result, good or bad."""
    if exchange.error_type == "preempted":
        counted = replace(tries, preemptions=tries.preemptions + 1)
        return Again(after_s=max(_FIRST_PAUSE_S, exchange.retry_after_s or 0.0), tries=counted)
    if exchange.status in _REFUSED and tries.refusals < MAX_REFUSALS:
        counted = replace(tries, refusals=tries.refusals + 1)
        pause_s = exchange.retry_after_s or _pause_s(tries.refusals)
        return Again(after_s=max(_FIRST_PAUSE_S, pause_s), tries=counted)
    if exchange.status in _FAILED and tries.failures + 1 < MAX_FAILURES:
        counted = replace(tries, failures=tries.failures + 1)
        return Again(after_s=_pause_s(tries.failures), tries=counted)
    return None


def answered(batch_id: str, number: int, custom_id: str, exchange: Exchange) -> bytes:
    """The record of a line that has its answer."""
    response = {
        "status_code": exchange.status,
        "request_id": exchange.request_id or request_id(batch_id, number),
        "body": _body(exchange.body),
    }
    sign = GOOD if 200 <= exchange.status < 300 else BAD
    return sign + _record(batch_id, number, custom_id, response=response)


def unanswered(batch_id: str, number: int, custom_id: str, code: str, message: str) -> bytes:
    """The record of a line that never got one."""
    error = {"code": code, "message": message}
    return BAD + _record(batch_id, number, custom_id, error=error)


def request_id(batch_id: str, number: int) -> str:
    """The id of a line's request: the same in each try, so that its story can be found."""
    return f"{batch_id}-{number}"


def _record(
    batch_id: str,
    number: int,
    custom_id: str,
    *,
    response: Mapping[str, object] | None = None,
    error: Mapping[str, object] | None = None,
) -> bytes:
    line = {
        "id": f"batch_req_{batch_id.removeprefix('batch_')}_{number}",
        "custom_id": custom_id,
        "response": response,
        "error": error,
    }
    try:
        return json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        # Half surrogates stay escaped, so that the line finds its request again.
        return json.dumps(line, separators=(",", ":")).encode()


def _body(body: bytes) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return body.decode("utf-8", "replace")


def _pause_s(times: int) -> float:
    return min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(times, 30))
