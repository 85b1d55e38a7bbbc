"""RQ's own lines: an outage of Redis is a line, an error that nobody expected keeps all it has."""

from __future__ import annotations

import logging
from io import StringIO

import pytest
import redis

from workers.rq_log import OutageInALine


@pytest.mark.parametrize(
    "error",
    [
        redis.ConnectionError("Connection reset by peer"),
        redis.ResponseError("UNBLOCKED force unblock from blocking operation"),
        redis.ReadOnlyError("You can't write against a read only replica."),
    ],
)
def test_an_outage_of_redis_is_told_in_one_line(error: redis.RedisError):
    said = _said(error)
    assert said == f"Worker w: quitting {type(error).__name__}: {error}\n"


def test_any_other_error_keeps_its_traceback():
    said = _said(KeyError("status"))
    assert "Traceback" in said
    assert "KeyError: 'status'" in said


def test_a_line_without_an_error_stays_as_it_is():
    assert _said(None) == "Worker w: quitting\n"


def _said(error: BaseException | None) -> str:
    stream = StringIO()
    handler = logging.StreamHandler(stream)
    logger = logging.Logger("rq")  # noqa: LOG001 - of its own, so that nobody else's is changed
    logger.addHandler(handler)
    logger.addFilter(OutageInALine())
    if error is None:
        logger.error("Worker %s: quitting", "w")
        return stream.getvalue()
    try:
        raise error
    except type(error):
        logger.exception("Worker %s: quitting", "w")
    return stream.getvalue()
