"""Small things that grow when they are read: each is read up to a bound, and refused in time."""

from __future__ import annotations

import gzip
import re
import time
import tracemalloc
import zlib
from pathlib import Path

import pytest

from adapters.codec import decode
from adapters.settings import load_settings
from api.gateway.inflating import MAX_INFLATED_BYTES, Inflater
from api.gateway.sse import answer_format
from contracts.data_format import read_mark
from contracts.errors import Invalid
from workers.batches.lines import read_lines

pytestmark = pytest.mark.integration

MEMORY_BYTES = 40 * 1024**2
LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(letter)}: &{chr(letter)} [{', '.join([f'*{chr(letter - 1)}'] * 9)}]\n"
    for letter in range(ord("b"), ord("j"))
)
DEEP = b"[" * 200_000


class Bounded:
    """Inside the block little memory is taken."""

    def __enter__(self) -> None:
        tracemalloc.start()

    def __exit__(self, *_: object) -> None:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < MEMORY_BYTES, peak


@pytest.mark.parametrize("level", ["once", "twice"])
def test_a_packed_answer_is_looked_at_up_to_a_bound(level: str):
    bomb = gzip.compress(bytes(64 * 1024**2), compresslevel=1)
    if level == "twice":
        bomb = gzip.compress(bomb)
    seen = 0
    inflater = Inflater()
    with Bounded():
        for start in range(0, len(bomb), 65_536):
            for piece in inflater.feed(bomb[start : start + 65_536]):
                assert len(piece) <= 65_536
                seen += len(piece)
    assert seen <= MAX_INFLATED_BYTES + 65_536


@pytest.mark.parametrize("encoding", [b"br", b"zstd", b"gzip, gzip", b"compress"])
def test_what_we_cannot_unpack_is_not_looked_into(encoding: bytes):
    assert answer_format(b"application/json", encoding) is answer_format(b"image/png", None)


@pytest.mark.parametrize("data", [b"", b"\x1f\x8b", b"\x1f\x8b\x08" + b"\xff" * 100, b"x" * 100])
def test_what_is_no_archive_ends_quietly(data: bytes):
    assert b"".join(Inflater().feed(data)) == b""


@pytest.mark.parametrize(
    "text",
    [
        LAUGHS,
        "a: &a [*a]\n",
        "gateway: " + "{a: " * 3_000,
        "gateway:\n" + "".join(f"{' ' * depth}a:\n" for depth in range(1, 900)),
        "a: !!python/object/apply:os.system [id]\n",
        "".join(f"k{number}: 1\n" for number in range(60_000)),
        "#" * 2_000_000,
        "port: 0x" + "f" * 200_000,
        "a: " + "9" * 500_000,
        "? " * 5_000,
    ],
    ids=["laughs", "circle", "braces", "steps", "object", "many", "large", "hex", "digits", "keys"],
)
def test_no_configuration_makes_itself_large(tmp_path: Path, text: str):
    began_s = time.process_time()
    file = tmp_path / "headstart.yaml"
    file.write_text(text)
    with pytest.raises(Invalid) as refused:
        load_settings({"HEADSTART_CONFIG": str(file), "HEADSTART_DATA_DIR": str(tmp_path)})
    assert len(str(refused.value)) < 20_000
    assert time.process_time() - began_s < 10.0


@pytest.mark.parametrize("text", [DEEP, b'{"a":' * 100_000, b"1" * 100_000, b'"' + b"\\u0000" * 9])
def test_records_that_are_deep_or_broken_are_nothing(text: bytes):
    assert decode(text) is None
    assert read_mark(text) is None
    assert decode(b'{"v":1,"kind":"Sla","data":' + text) is None


def test_a_batch_of_deep_lines_is_refused_line_by_line(tmp_path: Path):
    file = tmp_path / "in.jsonl"
    file.write_bytes(DEEP + b"\n" + b'{"custom_id": ' + b'{"a":' * 50_000 + b"\n")
    with Bounded(), file.open("rb") as source:
        reading = read_lines(source, "/v1/chat/completions", ())
    assert {fault.line for fault in reading.faults} == {1, 2}


def test_a_packed_batch_is_no_batch(tmp_path: Path):
    file = tmp_path / "in.jsonl"
    file.write_bytes(gzip.compress(b'{"custom_id": "a"}\n' * 10**5) + zlib.compress(bytes(10**6)))
    with Bounded(), file.open("rb") as source:
        assert read_lines(source, "/v1/chat/completions", ()).faults != ()


PATTERNS = [
    (module, name)
    for module, name in (
        ("adapters.log_setup", "_SECRET_TEXT"),
        ("adapters.log_setup", "_SECRET_NAME"),
        ("adapters.stored_records", "_NAME"),
    )
]
ATTACKS = [
    "a-" * 20_000, "api_" * 20_000 + "!", "bearer " + "a" * 50_000 + "!", "a" * 50_000 + "://",
    "http://" + "a" * 50_000, "secret" * 10_000, " " * 50_000, "sk-" * 20_000, "a.+-" * 15_000,
]  # fmt: skip


@pytest.mark.parametrize(("module", "name"), PATTERNS)
def test_no_pattern_blows_up(module: str, name: str):
    pattern: re.Pattern[str] = vars(__import__(module, fromlist=[name]))[name]
    for text in ATTACKS:
        began_s = time.process_time()
        pattern.sub("", text)
        # Linear ones take milliseconds; one that tries all ways would not come back.
        assert time.process_time() - began_s < 5.0, text[:20]
