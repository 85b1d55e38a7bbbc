"""What a process asks of its C library, seen from outside of it."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.integration

_LARGE_AFTER_LARGER = """
import ctypes, sys
from adapters.process_limits import give_back_large_blocks

class Counts(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd",
        "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
    )]

libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Counts
if sys.argv[1] == "kept":
    give_back_large_blocks()
for _ in range(3):
    larger = bytes(8 * 1024**2)
    del larger
before = libc.mallinfo2().hblks
large = [bytes(512 * 1024) for _ in range(4)]
print(libc.mallinfo2().hblks - before)
"""


@pytest.mark.parametrize(("switch", "mapped"), [("kept", 4), ("as it comes", 0)])
def test_large_blocks_are_the_systems_also_after_larger_ones_were_freed(switch: str, mapped: int):
    told = subprocess.run(
        [sys.executable, "-c", _LARGE_AFTER_LARGER, switch],
        capture_output=True, text=True, check=True, timeout=30,
    )  # fmt: skip
    assert int(told.stdout) == mapped
