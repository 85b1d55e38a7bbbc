"""Small files of the kernel's: a line of text or a number. None: not there, or not one."""

from __future__ import annotations

from pathlib import Path

MAX_BYTES = 1 << 20
"""No file that is read here is nearly as large; what is larger is not one of them."""


MAX_DIGITS = 30


def text_of(path: Path) -> str | None:
    """What the file holds, without the spaces around it."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES).decode(errors="replace").strip()
    except OSError:
        return None


def number_of(path: Path) -> int | None:
    """The whole number that the file holds, if it is at least 0; some drivers write it as 0x…."""
    text = text_of(path) or ""
    base = 16 if text.startswith("0x") else 10
    try:
        return max(0, int(text, base)) if text[:1].isdigit() else None
    except ValueError:
        return None


def whole_of(text: str) -> int | None:
    """The whole number that a text is; None: it is none, or none of a kernel's."""
    return int(text) if text.isdecimal() and len(text) <= MAX_DIGITS else None


def names_in(folder: Path) -> tuple[str, ...]:
    """What is in the folder, by name."""
    try:
        return tuple(sorted(entry.name for entry in folder.iterdir()))
    except OSError:
        return ()
