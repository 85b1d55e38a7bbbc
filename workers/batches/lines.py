"""The lines of a batch's input file: what each asks for, or what is wrong with it. Pure."""

from __future__ import annotations

import codecs
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contracts.batches import BATCH_ENDPOINTS, MAX_LINES, BatchFault
from contracts.errors import Invalid
from contracts.ids import ModelId
from contracts.model_names import check_one_model, may_use

MAX_FAULTS = 100
"""A file that is wrong throughout would have as many faults as lines."""

MAX_CUSTOM_ID_CHARS = 512
MAX_LINE_BYTES = 8 * 1024**2
MAX_NESTED = 200

_FIELDS = ("custom_id", "method", "url", "body")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLine:
    """One request of a batch.

    Attributes
    ----------
    number : int
        Its place in the file, from 1; empty lines count.
    offset, size_bytes : int
        Where its bytes are in the file.
    """

    number: int
    custom_id: str
    model: ModelId
    offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A file that was read. Lines are of use only where there are no faults."""

    lines: tuple[BatchLine, ...]
    faults: tuple[BatchFault, ...]


def read_lines(raw_lines: Iterable[bytes], endpoint: str, models: Sequence[str] = ()) -> Reading:
    """Read a whole file, given by its lines with their ends.

    ``models`` are names and patterns of those that may be used; empty: all.

    Nothing of a file with a fault is run. A byte order mark, CRLF and empty lines are taken.
    At most ``MAX_FAULTS`` faults are told; a last one says that there are more.
    """
    lines: list[BatchLine] = []
    faults: list[BatchFault] = []
    seen: dict[str, int] = {}
    for number, offset, raw in _placed(raw_lines):
        if len(lines) + len(faults) >= MAX_LINES:
            faults.append(_too_many_lines())
            break
        found = _read_line(number, offset, raw, endpoint)
        if isinstance(found, BatchLine) and not may_use(models, found.model):
            found = _not_allowed(found)
        if isinstance(found, BatchLine):
            first = seen.setdefault(found.custom_id, number)
            if first != number:
                found = _duplicate(found, first)
        if isinstance(found, BatchLine):
            lines.append(found)
        else:
            faults.append(found)
        if len(faults) >= MAX_FAULTS:
            faults.append(_more_faults(number))
            break
    if not lines and not faults:
        faults.append(BatchFault(code="empty_file", message="The file holds no requests."))
    return Reading(lines=tuple(lines), faults=tuple(faults))


def read_body(raw: bytes) -> Mapping[str, object]:
    """The request's body of a line that ``read_lines`` has found good."""
    body = json.loads(_without_mark(raw))["body"]
    assert isinstance(body, dict)
    return body


def _placed(raw_lines: Iterable[bytes]) -> Iterator[tuple[int, int, bytes]]:
    offset = 0
    for number, raw in enumerate(raw_lines, start=1):
        if _without_mark(raw).strip():
            yield number, offset, raw
        offset += len(raw)


def _without_mark(raw: bytes) -> bytes:
    return raw.removeprefix(codecs.BOM_UTF8)


def _read_line(number: int, offset: int, raw: bytes, endpoint: str) -> BatchLine | BatchFault:
    if len(raw) > MAX_LINE_BYTES:
        message = f"The line has {len(raw)} bytes; at most {MAX_LINE_BYTES} are taken."
        return BatchFault(code="line_too_long", message=message, line=number)
    try:
        request = _DECODER.decode(_without_mark(raw).decode())
        if raw.count(b"{") + raw.count(b"[") > MAX_NESTED and _is_deep(request):
            raise ValueError(f"it is nested more than {MAX_NESTED} deep")  # noqa: TRY301 - as others
    except (ValueError, RecursionError) as error:
        return BatchFault(
            code="invalid_json_line", message=f"The line is no JSON: {error}.", line=number
        )
    if not isinstance(request, dict):
        message = "The line must be a JSON object with custom_id, method, url and body."
        return BatchFault(code="invalid_request", message=message, line=number)
    fault = _fault_of(request, endpoint)
    if fault is not None:
        code, param, message = fault
        return BatchFault(code=code, message=message, param=param, line=number)
    return BatchLine(
        number=number,
        custom_id=request["custom_id"],
        model=ModelId(request["body"]["model"]),
        offset=offset,
        size_bytes=len(raw),
    )


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text:.40} is too large a number")
    return number


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is no number")


_DECODER = json.JSONDecoder(parse_float=_number, parse_constant=_no_number)


def _is_deep(value: object) -> bool:
    """Whether writing it again could fail where reading it did not."""
    level: list[Any] = [value] if isinstance(value, dict | list) else []
    for _ in range(MAX_NESTED):
        inner = (one.values() if isinstance(one, dict) else one for one in level)
        level = [each for one in inner for each in one if isinstance(each, dict | list)]
        if not level:
            return False
    return True


def _fault_of(request: Mapping[str, object], endpoint: str) -> tuple[str, str, str] | None:
    """Code, parameter and message of the first thing that is wrong."""
    for name in _FIELDS:
        if name not in request:
            return "missing_required_parameter", name, f"{name} is missing."
    custom_id, body = request["custom_id"], request["body"]
    if not isinstance(custom_id, str) or not 0 < len(custom_id) <= MAX_CUSTOM_ID_CHARS:
        message = f"custom_id must be a text of 1 to {MAX_CUSTOM_ID_CHARS} characters."
        return "invalid_custom_id", "custom_id", message
    if request["method"] != "POST":
        return (
            "invalid_method",
            "method",
            f"method is {_shown(request['method'])}; only POST is taken.",
        )
    if request["url"] != endpoint:
        allowed = (
            "" if request["url"] in BATCH_ENDPOINTS else f" One of {', '.join(BATCH_ENDPOINTS)}."
        )
        message = f"url is {_shown(request['url'])}, the batch's endpoint {endpoint}.{allowed}"
        return "mismatched_endpoint", "url", message
    if not isinstance(body, dict):
        return "invalid_body", "body", "body must be a JSON object."
    model = body.get("model")
    if not isinstance(model, str) or not model:
        return "missing_model", "body.model", "body.model must name a model."
    try:
        check_one_model(body)
    except Invalid as error:
        return "ambiguous_model", "body.model", f"body: {error}."
    if body.get("stream"):
        message = "body.stream must be absent or false: answers are kept as a whole."
        return "unsupported_parameter", "body.stream", message
    return None


def _not_allowed(line: BatchLine) -> BatchFault:
    return BatchFault(
        code="model_not_allowed",
        message=f"Your key may not use the model {_shown(line.model)}.",
        param="body.model",
        line=line.number,
    )


def _duplicate(line: BatchLine, first: int) -> BatchFault:
    return BatchFault(
        code="duplicate_custom_id",
        message=f"custom_id {_shown(line.custom_id)} was used in line {first} already.",
        param="custom_id",
        line=line.number,
    )


def _too_many_lines() -> BatchFault:
    return BatchFault(
        code="too_many_lines",
        message=f"The file holds more than {MAX_LINES} requests; split it.",
    )


def _more_faults(number: int) -> BatchFault:
    return BatchFault(
        code="too_many_errors",
        message=f"Reading ended after {MAX_FAULTS} errors, at line {number}; there may be more.",
    )


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:79] + "…"
