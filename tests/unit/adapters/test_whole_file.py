"""A file that is there whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.whole_file import whole_file


def test_it_is_there_at_the_end_and_for_its_user_alone(tmp_path: Path):
    path = tmp_path / "kept"
    path.write_bytes(b"before")
    with whole_file(path) as file:
        file.write(b"after")
        assert path.read_bytes() == b"before"
    assert path.read_bytes() == b"after"
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_writer_that_fails_leaves_what_was_there_and_nothing_else(tmp_path: Path):
    path = tmp_path / "kept"
    path.write_bytes(b"before")

    def fill() -> None:
        with whole_file(path) as file:
            file.write(b"aft")
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        fill()
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]
