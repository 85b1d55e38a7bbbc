"""Objects of listed classes as plain numbers, words, lists and arrays, and back.

A length, then a msgpack list: what arrays there are, and the objects in it as lists that begin
with the number of their kind. Then the arrays' own bytes. Classes are found by their place in
the list that the reader brings along, never by a name; what is read can make nothing else. An
object or array that is met twice is one again; plain lists and mappings belong to one place.
"""

from __future__ import annotations

import gc
import math
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, BinaryIO

import msgspec
import numpy as np

from contracts.errors import Invalid

MOST_BODY_BYTES = 512 * 1024**2
MOST_ARRAY_BYTES = 2 * 1024**3
"""In all. Five thousand models, the most that are kept, take less than a quarter of either."""

_LENGTH_BYTES = 8
_CHUNK_BYTES = 1024**2
_SCALARS = frozenset({type(None), bool, int, float, str})
_DTYPES = frozenset({"bool", "int32", "int64", "float32", "float64"})
_LIST, _TUPLE, _SET, _DEQUE, _DICT, _ORDERED, _COUNTER, _ARRAY, _AGAIN, _FIRST_KIND = range(10)
_ROWS: dict[type, int] = {list: _LIST, tuple: _TUPLE, set: _SET}
_PAIRS: dict[type, int] = {dict: _DICT, OrderedDict: _ORDERED, Counter: _COUNTER}
_ROWS_MADE: dict[int, Callable[[list[Any]], Any]] = {_LIST: list, _TUPLE: tuple, _SET: set}
_PAIRS_MADE: dict[int, Callable[[Any], Any]] = {
    _DICT: dict,
    _ORDERED: OrderedDict,
    _COUNTER: lambda pairs: Counter(dict(pairs)),
}


@dataclass(frozen=True, slots=True)
class Kind:
    """A class of which objects may be written and made.

    Attributes
    ----------
    take : callable
        What an object holds, in a fixed order.
    make : callable
        An object that holds it. May raise anything: what it was given is damaged then.
    """

    cls: type
    take: Callable[[Any], Sequence[Any]]
    make: Callable[[Sequence[Any]], Any]


def fields_of(cls: type, names: str, **begins_with: Callable[[], Any]) -> Kind:
    """The kind of a class of ours with these fields and no others.

    Parameters
    ----------
    names : str
        Fields that are kept, with blanks between.
    begins_with
        Fields that are not, and what makes their first value.
    """
    kept = tuple(names.split())
    every = frozenset(kept) | begins_with.keys()
    get = attrgetter(*kept)
    if every != frozenset(vars(cls).get("__slots__", every)):
        raise Invalid(f"{cls.__name__}: other fields than {', '.join(sorted(every))}")

    def take(found: Any) -> Sequence[Any]:
        if hasattr(found, "__dict__") and set(vars(found)) != every:
            raise Invalid(f"{cls.__name__}: other fields than {', '.join(sorted(every))}")
        return get(found) if len(kept) > 1 else (get(found),)

    def make(values: Sequence[Any]) -> Any:
        made: Any = object.__new__(cls)
        for name, value in zip(kept, values, strict=True):
            object.__setattr__(made, name, value)
        for name, first in begins_with.items():
            object.__setattr__(made, name, first())
        return made

    return Kind(cls, take, make)


def write(root: object, kinds: Sequence[Kind], file: BinaryIO) -> None:
    """Write all that ``root`` leads to; Invalid where it leads to anything else, or too much."""
    writer = _Writer(kinds)
    try:
        with _nothing_collected():
            node = writer.node(root)
            body = msgspec.msgpack.encode([[_head(array) for array in writer.arrays], node])
    except (ValueError, OverflowError) as error:
        raise Invalid(f"holds what has no place in it: {type(error).__name__}") from error
    arrays_bytes = sum(array.nbytes for array in writer.arrays)
    if len(body) > MOST_BODY_BYTES or arrays_bytes > MOST_ARRAY_BYTES:
        raise Invalid("holds more than would be read")
    file.write(len(body).to_bytes(_LENGTH_BYTES, "little"))
    file.write(body)
    for array in writer.arrays:
        rows = array.T if _is_by_columns(array) else array
        file.write(np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data)


def read(kinds: Sequence[Kind], file: BinaryIO) -> Any:
    """What ``write`` wrote for the same kinds; Invalid where it is damaged.

    It takes memory for what is there, whatever that says of itself, and no more than the bounds.
    """
    try:
        with _nothing_collected():
            heads, node = msgspec.msgpack.decode(_body(file), type=tuple[list[Any], Any])
            return _Reader(kinds, _arrays(heads, file)).made(node)
    except Invalid:
        raise
    except Exception as error:
        # Damaged data may have a kind raise anything; what it is does not matter.
        raise Invalid(type(error).__name__) from error


@contextmanager
def _nothing_collected() -> Iterator[None]:
    """A hundred thousand new lists would have all there is looked through again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _Writer:
    def __init__(self, kinds: Sequence[Kind]) -> None:
        self.arrays: list[Any] = []
        self._kinds = {kind.cls: (_FIRST_KIND + place, kind) for place, kind in enumerate(kinds)}
        self._numbers: dict[int, int] = {}

    def node(self, value: Any) -> Any:
        cls = type(value)
        if cls in _SCALARS:
            return value
        if cls in self._kinds or cls is np.ndarray:
            return self._numbered(value, cls)
        if cls in _ROWS:
            return [_ROWS[cls], self._nodes(value)]
        if cls in _PAIRS:
            return [_PAIRS[cls], self._nodes(value.keys()), self._nodes(value.values())]
        if cls is deque:
            return [_DEQUE, value.maxlen, self._nodes(value)]
        raise Invalid(f"holds a {cls.__module__}.{cls.__qualname__}")

    def _nodes(self, values: Iterable[Any]) -> list[Any]:
        found = list(values)
        if _SCALARS.issuperset(map(type, found)):
            return found
        return [self.node(value) for value in found]

    def _numbered(self, value: Any, cls: type) -> list[Any]:
        number = self._numbers.get(id(value))
        if number is not None:
            return [_AGAIN, number]
        if cls is np.ndarray:
            node: list[Any] = [_ARRAY, len(self.arrays)]
            self.arrays.append(value)
        else:
            tag, kind = self._kinds[cls]
            node = [tag, *self._nodes(kind.take(value))]
        # After what it holds, as the reader counts; nothing holds itself.
        self._numbers[id(value)] = len(self._numbers)
        return node


class _Reader:
    def __init__(self, kinds: Sequence[Kind], arrays: Sequence[Any]) -> None:
        self._kinds = kinds
        self._arrays = arrays
        self._numbered: list[Any] = []

    def made(self, node: Any) -> Any:
        cls = type(node)
        if cls is not list:
            if cls not in _SCALARS:
                raise Invalid(f"holds a {cls.__name__}")
            return node
        tag, *rest = node
        if type(tag) is not int or tag < 0:
            raise Invalid("a kind that is none")
        if tag == _AGAIN:
            return self._numbered[_place(*rest)]
        if tag == _ARRAY or tag >= _FIRST_KIND:
            value = self._one(tag, rest)
            self._numbered.append(value)
            return value
        if tag == _DEQUE:
            maxlen, values = rest
            return deque(self._all(values), maxlen)
        if tag in _ROWS_MADE:
            (values,) = rest
            return _ROWS_MADE[tag](self._all(values))
        keys, values = rest
        return _PAIRS_MADE[tag](zip(self._all(keys), self._all(values), strict=True))

    def _one(self, tag: int, rest: list[Any]) -> Any:
        if tag == _ARRAY:
            return self._arrays[_place(*rest)]
        return self._kinds[tag - _FIRST_KIND].make(self._all(rest))

    def _all(self, nodes: Any) -> list[Any]:
        if type(nodes) is not list:
            raise Invalid("a list that is none")
        if _SCALARS.issuperset(map(type, nodes)):
            return nodes
        return [self.made(node) for node in nodes]


def _place(number: Any) -> int:
    if type(number) is not int or number < 0:
        raise Invalid("a place that is none")
    return number


def _is_by_columns(array: Any) -> bool:
    """Sums go along memory, so its order is kept: else their last digits were others."""
    return bool(array.flags.f_contiguous and not array.flags.c_contiguous)


def _head(array: Any) -> list[Any]:
    if array.dtype.name not in _DTYPES or not array.dtype.isnative:
        raise Invalid(f"holds an array of {array.dtype}")
    return [array.dtype.name, list(array.shape), _is_by_columns(array)]


def _arrays(heads: list[Any], file: BinaryIO) -> list[Any]:
    found = []
    left = MOST_ARRAY_BYTES
    for name, shape, by_columns in heads:
        if name not in _DTYPES or any(type(size) is not int or size < 0 for size in shape):
            raise Invalid("an array of none of the kinds")
        dtype = np.dtype(name)
        length = math.prod(shape) * dtype.itemsize
        left -= length
        if left < 0:
            raise Invalid("more arrays than there can be")
        array = np.frombuffer(_exactly(file, length), dtype)
        # A copy, laid where numpy lays its own.
        found.append(array.reshape(shape, order="F" if by_columns else "C").copy(order="K"))
    return found


def _body(file: BinaryIO) -> bytearray:
    length = int.from_bytes(_exactly(file, _LENGTH_BYTES), "little")
    if length > MOST_BODY_BYTES:
        raise Invalid("longer than any can be")
    return _exactly(file, length)


def _exactly(file: BinaryIO, length: int) -> bytearray:
    found = bytearray()
    while len(found) < length:
        chunk = file.read(min(length - len(found), _CHUNK_BYTES))
        if not chunk:
            raise Invalid("it ends too soon")
        found += chunk
    return found
