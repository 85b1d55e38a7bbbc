"""Objects of listed classes as plain data: all that goes in comes out, and nothing else does."""

from __future__ import annotations

import gc
import io
import tracemalloc
from collections import Counter, OrderedDict, deque
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import Invalid
from predictor import object_codec
from predictor.object_codec import Kind, fields_of, read, write


@dataclass(frozen=True, slots=True)
class Point:
    x: Any
    y: Any


class Page:
    def __init__(self, held: Any) -> None:
        self.held = held
        self.lost = ["was"]


@dataclass
class Word:
    text: str
    notes: list[str] = field(default_factory=list)


KINDS = (
    fields_of(Point, "x y"),
    fields_of(Page, "held", lost=list),
    Kind(Word, lambda word: (word.text,), lambda values: Word(*values)),
)
INTS = st.integers(-(2**63), 2**63 - 1)
SCALARS = st.none() | st.booleans() | INTS | st.floats(allow_nan=False) | st.text(max_size=5)
KEYS = st.integers(0, 9) | st.text(max_size=3)
DTYPES = ("bool", "int32", "int64", "float32", "float64")


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    rows = st.lists(inner, max_size=4)
    pairs = st.dictionaries(KEYS, inner, max_size=4)
    return st.one_of(
        rows,
        rows.map(tuple),
        st.sets(KEYS, max_size=1),
        st.builds(deque, rows, st.none() | st.integers(4, 9)),
        pairs,
        pairs.map(OrderedDict),
        st.dictionaries(KEYS, st.integers(0, 9)).map(Counter),
        st.builds(Point, inner, inner),
    )


def written(value: object) -> bytes:
    file = io.BytesIO()
    write(value, KINDS, file)
    return file.getvalue()


def again(value: object) -> Any:
    return read(KINDS, io.BytesIO(written(value)))


def framed(body: object, arrays: bytes = b"") -> io.BytesIO:
    data = msgspec.msgpack.encode(body)
    return io.BytesIO(len(data).to_bytes(8, "little") + data + arrays)


@given(st.recursive(SCALARS, containers, max_leaves=20))
def test_what_goes_in_comes_out_of_its_own_types(value: Any) -> None:
    found = again(value)

    assert found == value
    assert repr(found) == repr(value)


@given(
    st.sampled_from(DTYPES),
    st.lists(st.integers(0, 3), max_size=4),
    st.sampled_from(["C", "F"]),
)
def test_arrays_keep_their_numbers_shape_and_order(dtype: str, shape: list[int], order: Any):
    numbers = np.arange(np.prod(shape, dtype=int)).reshape(shape) / 3.0
    array = np.asarray(numbers, order=order).astype(dtype)
    found = again({"a": array})["a"]

    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    assert found.tobytes() == array.tobytes()
    assert found.flags.f_contiguous == array.flags.f_contiguous
    assert found.flags.writeable


def test_what_is_met_twice_is_one_again() -> None:
    rows, point = np.arange(3), Point(1, np.zeros(2))
    found = again([point, rows, rows[::2], Page(point), Page(rows)])

    assert found[3].held is found[0]
    assert found[4].held is found[1]
    assert found[2].tolist() == [0, 2]
    assert found[3].lost == []
    assert again(Word("a", ["b"])) == Word("a")
    assert again(float("nan")) != again(float("nan"))


def test_the_collector_is_as_it_was() -> None:
    assert gc.isenabled()
    again([1])
    assert gc.isenabled()
    gc.disable()
    try:
        again([1])
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"bytes", "holds a builtins.bytes"),
        (np.float64(1.0), "holds a numpy.float64"),
        (datetime(2026, 1, 1, tzinfo=UTC), "holds a datetime.datetime"),
        (print, "builtin_function"),
        (2**70, "no place in it: OverflowError"),
        ("\ud800", "no place in it: UnicodeEncodeError"),
        (np.array(["a"]), "an array of"),
        (np.array([None]), "an array of object"),
        (np.zeros(1, dtype=">f8"), "an array of"),
    ],
)
def test_what_is_of_no_kind_is_not_written(value: object, said: str) -> None:
    with pytest.raises(Invalid, match=said):
        written([value])


@pytest.mark.parametrize("bound", ["MOST_BODY_BYTES", "MOST_ARRAY_BYTES"])
def test_what_would_not_be_read_is_not_written(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    value = [np.zeros(9), "a" * 64]
    monkeypatch.setattr(object_codec, bound, 72)
    assert again(np.zeros(9)).tolist() == [0.0] * 9
    monkeypatch.setattr(object_codec, bound, 71)
    with pytest.raises(Invalid, match="more than would be read"):
        written(value)


def test_a_field_that_is_not_listed_is_told() -> None:
    page = Page(1)
    page.more = 2  # type: ignore[attr-defined]  # as a later version might
    with pytest.raises(Invalid, match="Page: other fields than held, lost"):
        written(page)
    with pytest.raises(Invalid, match="Point: other fields than x"):
        fields_of(Point, "x")


@pytest.mark.parametrize(
    "node",
    [
        [0, [[9, 1]]],
        [0, 7],
        [0],
        [1, [1], [2]],
        [3, -2, [1]],
        [3, 1],
        [4, [1], []],
        [4, [[0, []]], [1]],
        [7, 0],
        [7, -1],
        [7, "a"],
        [8, 0],
        [8, -1],
        [9],
        [9, 1, 2, 3],
        [10, 1, 2],
        [11, 1, 2, 3],
        [12, 1],
        [-1, 1, 1],
        [99],
        ["a"],
        [None],
        [True, [1]],
        [],
        {"a": 1},
        b"bytes",
        datetime(2026, 1, 1, tzinfo=UTC),
        [0, [b"bytes"]],
    ],
)
def test_what_makes_nothing_is_refused(node: object) -> None:
    with pytest.raises(Invalid):
        read(KINDS, framed([[], node]))


@pytest.mark.parametrize(
    "head",
    [
        ["object", [1], False],
        ["<U1", [1], False],
        ["float64", [-1, -1], False],
        ["float64", [1.0], False],
        ["float64", [True], False],
        ["float64", [2**40], False],
        ["float64", [2**20], False],
        ["float64", [0, 2**62], False],
        ["float64", [1] * 99, False],
        ["float64", "a", False],
        ["float64", [1]],
        [[], [1], False],
        "abc",
        7,
    ],
)
def test_an_array_that_can_be_none_is_refused(head: object) -> None:
    with pytest.raises(Invalid):
        read(KINDS, framed([[head], 1], b"12345678" * 2))


def deep(levels: int) -> bytes:
    return b"\x92\x00\x91" * levels + b"\x01"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 7,
        (2**63).to_bytes(8, "little"),
        object_codec.MOST_BODY_BYTES.to_bytes(8, "little") + b"ab",
        (6).to_bytes(8, "little") + b"\x92\xdd\xff\xff\xff\xff",
        (7).to_bytes(8, "little") + b"\x92\x90\xdd\xff\xff\xff\xff",
        (7).to_bytes(8, "little") + b"\x92\x90\xdf\xff\xff\xff\xff",
        (7).to_bytes(8, "little") + b"\x92\x90\xdb\xff\xff\xff\xff",
        framed([[["float64", [2**28 - 1], False]], 1]).getvalue(),
        (602).to_bytes(8, "little") + b"\x92\x90" + deep(200)[:600],
        (60_003).to_bytes(8, "little") + b"\x92\x90" + deep(20_000),
        (1203).to_bytes(8, "little") + b"\x92\x90" + deep(400),
    ],
)
def test_what_says_that_it_is_huge_takes_no_memory(data: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(Invalid):
            read(KINDS, io.BytesIO(data))
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


WHOLE = written(
    [
        Point(np.ones((2, 2), order="F"), "ab"),
        deque([1.5, 2.5], 4),
        {"k": Page({1, 2})},
        Counter(a=2),
        OrderedDict(b=(None, True)),
        Word("w"),
    ]
)
EDITS = st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), max_size=6)


@given(EDITS, st.integers(0, len(WHOLE)), st.binary(max_size=9))
def test_whatever_is_read_is_refused_or_made(
    edits: list[tuple[int, int]], cut: int, put: bytes
) -> None:
    data = bytearray(WHOLE)
    for place, value in edits:
        data[place] = value
    for tried in (bytes(data), bytes(data[:cut]), bytes(data[:cut]) + put + bytes(data[cut:])):
        with suppress(Invalid):
            read(KINDS, io.BytesIO(tried))
