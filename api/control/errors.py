"""Every error answer of the control API, in the one shape that OpenAI's clients read.

``{"error": {"message", "type", "param", "code"}}``, whatever went wrong: an unknown path, a
bad value, a store that is away, or a bug of ours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from contracts.errors import HeadstartError, Invalid, Permanent, Transient

_log = structlog.get_logger(__name__)

_MAX_SHOWN = 80
"""Characters of a refused value that an answer repeats."""

_WORDS = {
    400: ("invalid_request_error", "bad_request"),
    404: ("invalid_request_error", "not_found"),
    405: ("invalid_request_error", "method_not_allowed"),
    413: ("invalid_request_error", "body_too_large"),
    415: ("invalid_request_error", "unsupported_media_type"),
}


class ApiError(Exception):
    """An error answer. ``param`` names the field or the part of the path that is wrong."""

    def __init__(
        self,
        status: int,
        kind: str,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after_s: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.message = message
        self.code = code
        self.param = param
        self.retry_after_s = retry_after_s
        self.headers = dict(headers or {})


def error_body(
    kind: str, message: str, *, code: str | None = None, param: str | None = None
) -> dict[str, Any]:
    """The envelope."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def store_away() -> ApiError:
    """503: what was asked for needs the store, which does not answer. The log says how so."""
    return ApiError(
        503,
        "store_unavailable",
        "the store (Redis) does not answer; try again when it is back",
        code="store_unavailable",
        retry_after_s=1.0,
    )


def not_found(message: str, *, code: str = "not_found", param: str | None = None) -> ApiError:
    """404."""
    return ApiError(404, "invalid_request_error", message, code=code, param=param)


def install_error_handlers(app: FastAPI) -> None:
    """Make every error of ``app`` answer in the one shape."""
    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(HeadstartError, _headstart_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)


def as_response(error: ApiError) -> JSONResponse:
    """The answer that ``error`` stands for."""
    headers = dict(error.headers)
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_s)))
    return JSONResponse(
        # A name from a JSON body may hold half a surrogate, which UTF-8 cannot carry.
        error_body(
            error.kind,
            error.message.encode(errors="replace").decode(),
            code=error.code,
            param=error.param,
        ),
        status_code=error.status,
        headers=headers,
    )


async def _api_error(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ApiError)
    return as_response(error)


async def _headstart_error(_request: Request, error: Exception) -> JSONResponse:
    """Map what adapters raise: Transient is the store's fault, Invalid is the caller's."""
    match error:
        case Transient():
            shaped = store_away()
            shaped.retry_after_s = error.retry_after_s or 1.0
        case Invalid():
            shaped = ApiError(400, "invalid_request_error", str(error), code="invalid_value")
        case Permanent():
            shaped = ApiError(502, "store_refused", str(error), code="store_refused")
        case _:
            _log.error("control.unmapped_error", error=str(error))
            shaped = ApiError(500, "server_error", "internal error", code="internal_error")
    return as_response(shaped)


async def _http_error(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    kind, code = _WORDS.get(error.status_code, ("invalid_request_error", "http_error"))
    message = str(error.detail)
    if error.status_code == 404:
        message = f"there is nothing at {_shown(_request.url.path)}; see /docs"
    elif error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        message = f"{_request.method} is not taken here" + (f"; allowed: {allowed}" * bool(allowed))
    return as_response(ApiError(error.status_code, kind, message, code=code, headers=error.headers))


async def _validation_error(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    found = [_refusal(item) for item in error.errors()]
    first_field = found[0][0] if found else None
    message = "; ".join(text for _, text in found) or "the request is not valid"
    return as_response(
        ApiError(422, "invalid_request_error", message, code="invalid_value", param=first_field)
    )


def _refusal(item: Mapping[str, Any]) -> tuple[str | None, str]:
    """The field, and one sentence that names field, value and what is allowed."""
    field = _field_name(item.get("loc", ()))
    kind, detail = str(item.get("type", "")), str(item.get("msg", "not valid"))
    name = field or "the body"
    if kind == "missing":
        return field, f"{name} is missing: a value is needed"
    if kind == "json_invalid":
        return None, f"the body is not JSON: {item.get('ctx', {}).get('error', detail)}"
    if kind == "extra_forbidden":
        return field, f"{name} is not a field that is known here"
    return field, f"{name} is {_shown(item.get('input'))}: {detail[:1].lower()}{detail[1:]}"


def _field_name(location: Sequence[Any]) -> str | None:
    parts = [str(part) for part in location if part not in ("body", "query", "path", "header")]
    return ".".join(parts) or None


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 1] + "…"
