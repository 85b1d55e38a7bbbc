"""What a fuzz target is: inputs that are bytes, and what has to hold for each of them."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

CORPUS = Path(__file__).parent / "corpus"

Check = Callable[[Any], None]


def _same(data: Any) -> Any:
    return data


@dataclass(frozen=True)
class Target:
    """One parser of what comes from outside.

    Attributes
    ----------
    inputs : strategy
        Bytes of the kind that it reads, broken ones among them. What else an input needs, such as
        where a stream is cut, follows from the bytes, so that each input is one small file.
    freeze, thaw : callable
        An input as bytes and back, where it is something else.
    check : callable
        Raises AssertionError where something does not hold.
    prepare : callable
        What has to stand while inputs are tried, such as a server; gives the check.
    short : int
        Inputs in the run that is part of every test.
    """

    name: str
    inputs: st.SearchStrategy[Any]
    check: Check | None = None
    prepare: Callable[[], AbstractContextManager[Check]] | None = None
    short: int = 200
    freeze: Callable[[Any], bytes] = _same
    thaw: Callable[[bytes], Any] = _same

    def opened(self) -> AbstractContextManager[Check]:
        """The check, ready to use."""
        if self.prepare is not None:
            return self.prepare()
        assert self.check is not None
        return nullcontext(self.check)

    def kept(self) -> list[Path]:
        """Inputs that once failed, or that nobody would come upon again."""
        return sorted(path for path in (CORPUS / self.name).glob("*") if path.is_file())

    def keep(self, failed: Any) -> Path:
        """Put an input that failed beside the others."""
        data = self.freeze(failed)
        path = CORPUS / self.name / f"{zlib.crc32(data):08x}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path


def chance(data: bytes) -> random.Random:
    """Choices that follow from the input alone."""
    return random.Random(zlib.crc32(data))


def cuts_of(data: bytes, *, ways: int = 3) -> Iterator[list[bytes]]:
    """Some ways to cut the bytes into pieces: whole, in single bytes, anywhere."""
    yield [data]
    if len(data) <= 2_000:
        yield [data[place : place + 1] for place in range(len(data))]
    rng = chance(data)
    for _ in range(ways):
        places = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randint(1, 12)))
        yield [data[start:end] for start, end in pairwise([0, *places, len(data)])]


def mutated(valid: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Valid inputs, and the same with bytes cut out, doubled, changed or put in."""

    @st.composite
    def broken(draw: st.DrawFn) -> bytes:
        data = bytearray(draw(valid))
        for _ in range(draw(st.integers(0, 4))):
            place = draw(st.integers(0, len(data)))
            end = min(len(data), place + draw(st.integers(0, 9)))
            match draw(st.integers(0, 3)):
                case 0:
                    del data[place:end]
                case 1:
                    data[place:place] = data[place:end]
                case 2:
                    data[place:place] = draw(st.binary(max_size=4))
                case _:
                    data[place:end] = draw(st.sampled_from(_ODD))
        return bytes(data)

    return broken()


_ODD = [
    *(bytes([one]) for one in b"\x00\t\n\r \"'\\/{}[]:;,%&=-.\x7f\x80\xff"),
    b"\r\n",
    b"\xef\xbb\xbf",
    b"\xed\xa0\x80",
    b"\xc3\xa9",
    b"e\xcc\x81",
    b"\xe2\x80\xae",
    b"\xf0\x9f\x9a\x80",
    b"9" * 40,
    b"-1",
    b"null",
    b"1e999",
]


@contextmanager
def telling(target: Target, data: Any) -> Iterator[None]:
    """Name target and input of whatever fails."""
    try:
        yield
    except Exception as error:
        error.add_note(f"target {target.name}, input {data!r:.400}")
        raise
