"""What RQ logs of outages: a line each, since the way to Redis is no secret and no bug."""

from __future__ import annotations

import logging

import redis

RQ = "rq.worker"


class OutageInALine(logging.Filter):
    """Puts an error of Redis into the line in place of its traceback."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Always true: every line is kept."""
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, redis.RedisError):
            record.msg = f"{record.getMessage()} {type(error).__name__}: {error}"
            record.args = ()
            record.exc_info = None
        return True


def quieten() -> None:
    """From here on RQ tells an outage of Redis without a traceback."""
    logging.getLogger(RQ).addFilter(OutageInALine())
