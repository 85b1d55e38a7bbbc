"""Eight times the input is eight times the work, not sixty-four: for what was made to be dear."""

from __future__ import annotations

import io
import time
from collections.abc import Callable

import pytest

from api.gateway.detect import ApiStyle, peek_form, peek_json
from api.gateway.documents import DocumentScan
from api.gateway.forms import FormPeek
from api.gateway.queries import first_values
from api.gateway.renaming import NameFilter, find_form_name, find_name
from api.gateway.sse import AnswerObserver, Format
from workers.batches.lines import read_lines

pytestmark = pytest.mark.fuzz

SMALL, TIMES = 8_000, 8
FORM = b"multipart/form-data; boundary=b"
PART = b"--b\r\nContent-Disposition: form-data; name=x\r\n\r\n"

HOSTILE = [b'\\"', b'"', b"{", b"[", b'{"a":', b"%", b"&", b"=;", b"\r\n--b", b"--b", b"\r", b"\n"]
HOSTILE += [b'"model"', b'"model":', b"data:", b'"usage":', b"\xff", b"\\", b" "]


def _form(data: bytes) -> None:
    form = FormPeek(FORM)
    for start in range(0, len(data), 997):
        form.feed((PART if not start else b"") + data[start : start + 997])


def _stream(form: Format) -> Callable[[bytes], None]:
    def read(data: bytes) -> None:
        observer = AnswerObserver(ApiStyle.OPENAI, form)
        for start in range(0, len(data), 997):
            observer.feed(data[start : start + 997], 1.0)
        observer.end(2.0)

    return read


def _rename(data: bytes) -> None:
    names = NameFilter("m" * 100, b'"n"')
    for start in range(0, len(data), 997):
        names.feed(data[start : start + 997])


def _document(data: bytes) -> None:
    scan = DocumentScan()
    scan.feed(data)
    scan.end()


READERS: dict[str, Callable[[bytes], object]] = {
    "json": peek_json,
    "json behind an object": lambda data: peek_json(b'{"Model":"m"}' + data),
    "name in json": lambda data: find_name(b'{"model":"m"}' + data),
    "query": first_values,
    "form": peek_form,
    "multipart": _form,
    "name in a form": lambda data: find_form_name(PART + data + b"\r\n--b--", FORM),
    "events": _stream(Format.EVENTS),
    "lines": _stream(Format.LINES),
    "document": _document,
    "renaming": _rename,
    "batch": lambda data: read_lines(io.BytesIO(data), "/v1/embeddings"),
}


def _cost_s(read: Callable[[bytes], object], data: bytes) -> float:
    """CPU time of this thread, the least of three: what else runs does not count."""
    costs = []
    for _ in range(3):
        began_s = time.thread_time()
        read(data)
        costs.append(time.thread_time() - began_s)
    return min(costs)


@pytest.mark.parametrize("name", READERS)
def test_work_grows_with_size_alone(name: str) -> None:
    read = READERS[name]
    for piece in HOSTILE:
        small = piece * (SMALL // len(piece))
        most_s = 3.5 * TIMES * _cost_s(read, small) + 0.005
        assert _cost_s(read, small * TIMES) < most_s, piece
