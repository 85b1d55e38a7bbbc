"""Tells a caller's server that its job is over. It may be told twice; the id says so."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping

from contracts.errors import Invalid
from workers.tools import JobContext, Tools

KIND = "webhook"
SIGNATURE_HEADER = "X-Headstart-Signature"
_FIELDS = {"url", "job_id", "status"}


async def run(
    payload: Mapping[str, object], context: JobContext, tools: Tools
) -> Mapping[str, object]:
    """Post ``{id, object, status}`` to the URL of the payload ``{url, job_id, status}``.

    With a secret the body is signed, so that the receiver knows whose word it is.

    Raises
    ------
    Invalid
        The payload is none, or its URL is none that may be told.
    Transient, Permanent
        It was not taken now, or will not be.
    """
    fields = {name: payload.get(name) for name in _FIELDS}
    url, job_id, status = fields["url"], fields["job_id"], fields["status"]
    if set(payload) != _FIELDS or not all(isinstance(v, str) for v in fields.values()):
        raise Invalid("payload: takes url, job_id and status, each a text")
    if tools.notifier is None:
        raise Invalid("this worker tells nobody")
    assert isinstance(url, str)
    body = json.dumps({"id": job_id, "object": "background.job", "status": status}).encode()
    headers = {"Content-Type": "application/json", "X-Request-ID": context.job_id}
    if tools.webhook_secret is not None:
        sent_at_s = int(tools.clock.now_s())
        headers[SIGNATURE_HEADER] = signature(tools.webhook_secret, sent_at_s, body)
    await tools.notifier.notify(url, body, headers)
    return {"told": True}


def signature(secret: str, sent_at_s: int, body: bytes) -> str:
    """``t=<epoch seconds>,v1=<hex>``: HMAC-SHA256 over time, dot and body. Pure.

    The time is part of it, so that an old message cannot be sent again as a new one.
    """
    signed = b"%d.%s" % (sent_at_s, body)
    return f"t={sent_at_s},v1={hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()}"
