"""Logs of one process: structlog and the libraries' own in one format, secrets taken out."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from contracts.errors import Invalid

ROOT = "headstart"
"""Parent of all our loggers, whatever name ``structlog.get_logger`` was asked for."""

LEVELS = ("debug", "info", "warning", "error", "critical")
REDACTED = "***"

_SECRET_NAME = re.compile(r"password|passwd|secret|cookie|authorization|credential", re.IGNORECASE)
# Fencing tokens and counts of text tokens are numbers, and are no secrets.
_SECRET_NAME_UNLESS_NUMBER = re.compile(r"key|token", re.IGNORECASE)
_SECRET_TEXT = re.compile(
    r"(?i)(\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=\-]{4,}"
    r"|(\b(?:[a-z]{1,32}[-_]){0,16}(?:api[-_]?key|admin[-_]key|password|secret)[\"']?\s*[:=]\s*[\"']?)[^\s\"',;&}]+"
    r"|(\b[a-z][a-z0-9+.\-]{1,20}://[^\s:/@]*:)[^\s/@]+(?=@)"
    r"|(\bsk-)[A-Za-z0-9_\-]{8,}"
)
_MAX_DEPTH = 8


def configure_logging(
    process: str,
    *,
    json: bool | None = None,
    level: str = "info",
    stream: TextIO | None = None,
) -> None:
    """Set up logging for this process; a second call replaces the first.

    Parameters
    ----------
    process : str
        Name of the process, such as ``gateway``; in every line.
    json : bool, optional
        One JSON object a line. Default: when the stream is no terminal.
    level : str
        Lowest level of our own lines. Libraries speak from ``warning`` up, or from
        ``debug`` when we do.
    stream : file, optional
        Where to write. Default: standard error, since standard output is for answers.

    Raises
    ------
    Invalid
        On an unknown level.
    """
    if level not in LEVELS:
        raise Invalid(f'log level "{level}": must be one of {", ".join(LEVELS)}')
    target = sys.stderr if stream is None else stream
    terminal = target.isatty()
    as_json = not terminal if json is None else json
    shared = _shared_processors(process)
    handler = logging.StreamHandler(target)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                redact_secrets,
                *_renderers(as_json=as_json, colors=terminal),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.DEBUG if level == "debug" else logging.WARNING)
    logging.getLogger(ROOT).setLevel(level.upper())
    logging.captureWarnings(capture=True)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=_ParentedLoggers(),
        wrapper_class=structlog.stdlib.BoundLogger,
        # Loggers live in modules; caching would keep the set-up of whoever logged first.
        cache_logger_on_first_use=False,
    )


def redact_secrets(_logger: WrappedLogger, _method: str, event_dict: EventDict) -> EventDict:
    """Processor: replace what looks like a secret, by its name or by its shape.

    Values under names with key, token, authorization, password, secret or cookie in them
    become ``***`` (numbers under key and token stay); so do bearer tokens, ``api_key=…``,
    ``sk-…`` and passwords of URLs inside any text, tracebacks included.
    """
    return {name: _redacted(name, value, depth=0) for name, value in event_dict.items()}


def redact_text(text: str) -> str:
    """The text without what looks like a secret."""
    return _SECRET_TEXT.sub(_keep_label, text)


class _ParentedLoggers(structlog.stdlib.LoggerFactory):
    """Makes each logger a child of ``headstart``, so that one level rules them all."""

    def __init__(self) -> None:
        super().__init__(ignore_frame_names=[__name__])

    def __call__(self, *args: Any) -> logging.Logger:
        logger = super().__call__(*args)
        if logger.name == ROOT or logger.name.startswith(f"{ROOT}."):
            return logger
        return logging.getLogger(f"{ROOT}.{logger.name}")


def _shared_processors(process: str) -> list[Processor]:
    def add_process(
        _logger: WrappedLogger, _method: str, event_dict: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        event_dict.setdefault("process", process)
        return event_dict

    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
        add_process,
    ]


def _renderers(*, as_json: bool, colors: bool) -> list[Processor]:
    if as_json:
        return [structlog.processors.JSONRenderer()]
    return [
        structlog.dev.ConsoleRenderer(
            colors=colors, exception_formatter=structlog.dev.plain_traceback
        )
    ]


def _redacted(name: str, value: object, *, depth: int) -> object:
    if _SECRET_NAME.search(name):
        return value if value is None else REDACTED
    is_number = isinstance(value, int | float)
    if _SECRET_NAME_UNLESS_NUMBER.search(name) and not is_number and value is not None:
        return REDACTED
    return _scrubbed(value, depth=depth)


def _scrubbed(value: object, *, depth: int) -> object:
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, bytes):
        return redact_text(value.decode("utf-8", "replace"))
    if depth >= _MAX_DEPTH:
        return "…"
    if isinstance(value, Mapping):
        return {str(k): _redacted(str(k), v, depth=depth + 1) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_scrubbed(item, depth=depth + 1) for item in value]
    if isinstance(value, BaseException):
        return redact_text(f"{type(value).__name__}: {value}")
    return value


def _keep_label(match: re.Match[str]) -> str:
    label = next((group for group in match.groups() if group is not None), "")
    return f"{label}{REDACTED}"
