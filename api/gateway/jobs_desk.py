"""Files, batches and requests in the background: the control API's, reached at our address too.

The control API judges these callers itself, by the same keys, and knows whose files are whose.
"""

from __future__ import annotations

from dataclasses import replace

from api.gateway.body import RequestBody
from api.gateway.caller import Caller
from api.gateway.detect import match_path
from api.gateway.headers import Header, RequestHead, outgoing_headers
from api.gateway.live import LiveConfig
from api.gateway.metrics import GatewayMetrics
from api.gateway.problems import Problem, no_backend, upstream_timeout
from api.gateway.proxy import Relay
from contracts.errors import Transient
from contracts.ports import Clock
from contracts.reasons import Reason
from contracts.upstream import OutgoingRequest, Upstream, UpstreamResponse

LIMIT_S = 60.0
"""The control API answers at once; an upload counts from its last byte."""

_PREFIXES = ("/v1/files", "/v1/batches", "/v1/background")
_BACKGROUND = b"/v1/background"
_CLASS = b"x-headstart-class"
_PASSED_ON = frozenset({_CLASS, b"x-headstart-webhook"})
_PREFER = b"prefer"
_RESPOND_ASYNC = b"respond-async"


class JobsDesk:
    """Relays to the control API.

    Parameters
    ----------
    upstream : Upstream or None
        The way there. None: LocalAI is asked, as for any other path.
    """

    def __init__(
        self,
        upstream: Upstream | None,
        *,
        config: LiveConfig,
        relay: Relay,
        metrics: GatewayMetrics,
        clock: Clock,
    ) -> None:
        self._upstream = upstream
        self._live = config
        self._relay = relay
        self._metrics = metrics
        self._clock = clock

    def takes(self, head: RequestHead) -> bool:
        """Whether the request is for the control API."""
        if self._upstream is None:
            return False
        return _is_jobs_path(head.path) or wants_async(head)

    async def serve(self, head: RequestHead, caller: Caller) -> None:
        """Relay one request and its answer. Raises Problem, CallerLeft or AnswerCut."""
        body = None
        if head.has_body:
            limits = self._live.now
            body = RequestBody(
                caller, limit_bytes=limits.max_body_bytes, spool_bytes=limits.spool_bytes
            )
            # An upload is as slow as its caller: it is whole before the time counts.
            await body.read_all()
        caller.watch()
        try:
            response = await self._ask(head, body)
            self._metrics.passed(response.status)
            own: list[Header] = []
            if response.status == 202 and not _is_jobs_path(head.path):
                own.append((b"preference-applied", _RESPOND_ASYNC))
            await self._relay.answer(response, caller, headers=own)
        finally:
            if body is not None:
                body.close()

    async def _ask(self, head: RequestHead, body: RequestBody | None) -> UpstreamResponse:
        assert self._upstream is not None
        # With its key: the control API has to know it too.
        headers = outgoing_headers(replace(head, key=None), node_key=None)
        headers += [(name, value) for name, value in head.headers if name in _PASSED_ON]
        has_class = head.get(_CLASS) is not None or (head.key and head.key.priority)
        if wants_async(head) and not has_class:
            # Who asked for an answer and may come back for it still wants it soon.
            headers.append((_CLASS, b"realtime"))
        target = head.target if _is_jobs_path(head.path) else _BACKGROUND + head.target
        request = OutgoingRequest(
            method=head.method,
            target=target,
            headers=tuple(headers),
            body=None if body is None else body.outgoing(),
        )
        try:
            async with self._clock.timeout(LIMIT_S):
                return await self._upstream.send(request)
        except TimeoutError:
            raise upstream_timeout("The control API does not answer.") from None
        except Transient as error:
            raise _away(error) from error


def wants_async(head: RequestHead) -> bool:
    """Whether the caller of an inference path would rather come back for its answer."""
    asked = head.get(_PREFER)
    if asked is None or match_path(head.method, head.path) is None:
        return False
    words = (word.strip().lower() for word in asked.replace(b";", b",").split(b","))
    return _RESPOND_ASYNC in words


def _is_jobs_path(path: str) -> bool:
    return any(path == prefix or path.startswith(prefix + "/") for prefix in _PREFIXES)


def _away(error: Transient) -> Problem:
    return no_backend(
        f"Files, batches and background jobs are away: the control API does not answer ({error}).",
        retry_after_s=1.0,
        decision=Reason.NO_CONTROLLER,
    )
