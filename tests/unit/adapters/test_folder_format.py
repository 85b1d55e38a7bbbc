"""The data folder: marked, brought up once, left alone where a newer release wrote it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from adapters.folder_format import settle_folder
from contracts.data_format import FORMAT, FileMigration, read_mark
from contracts.errors import Invalid


def number_in(folder: Path) -> int | None:
    mark = read_mark((folder / "format").read_bytes())
    return None if mark is None else mark.number


def shout(content: bytes) -> bytes | None:
    return None if content == b"gone" else content.upper()


UP = {1: (FileMigration(pattern="batch-files/*.json", change=shout),), 2: ()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = tmp_path / "data" / "batch-files"
    files.mkdir(parents=True)
    (files / "a.json").write_bytes(b"a")
    (files / "b.json").write_bytes(b"gone")
    (files / "c.data").write_bytes(b"c")
    return tmp_path / "data"


def test_a_new_folder_is_made_for_its_user_alone_and_marked(tmp_path: Path):
    settle_folder(tmp_path / "deep" / "data")
    assert (tmp_path / "deep" / "data").stat().st_mode & 0o777 == 0o700
    assert number_in(tmp_path / "deep" / "data") == FORMAT
    assert (tmp_path / "deep" / "data" / "format").stat().st_mode & 0o777 == 0o600


def test_a_folder_from_before_marks_is_brought_up_step_by_step(folder: Path):
    settle_folder(folder, known=3, migrations=UP)
    files = folder / "batch-files"
    assert sorted(path.name for path in files.iterdir()) == ["a.json", "c.data"]
    assert (files / "a.json").read_bytes() == b"A"
    assert (files / "c.data").read_bytes() == b"c"
    assert number_in(folder) == 3


def test_it_is_brought_up_once(folder: Path):
    settle_folder(folder, known=2, migrations=UP)
    (folder / "batch-files" / "late.json").write_bytes(b"late")
    settle_folder(folder, known=2, migrations=UP)
    assert (folder / "batch-files" / "late.json").read_bytes() == b"late"


def test_a_link_out_of_the_folder_is_not_followed(folder: Path, tmp_path: Path):
    (tmp_path / "elsewhere").write_bytes(b"theirs")
    (folder / "batch-files" / "link.json").symlink_to(tmp_path / "elsewhere")
    settle_folder(folder, known=2, migrations=UP)
    assert (tmp_path / "elsewhere").read_bytes() == b"theirs"


def test_newer_data_is_refused_and_nothing_is_written(folder: Path):
    (folder / "format").write_text('{"format": 9, "written_by": "9.9"}')
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    with pytest.raises(Invalid, match=r"format 9, written by headstart 9\.9"):
        settle_folder(folder)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_a_mark_that_nobody_can_read_is_refused(folder: Path):
    (folder / "format").write_bytes(b"\x00\x01")
    with pytest.raises(Invalid, match="cannot be read"):
        settle_folder(folder)


def test_a_folder_that_cannot_be_made_is_left_to_who_writes_into_it(tmp_path: Path):
    (tmp_path / "file").write_text("")
    settle_folder(tmp_path / "file" / "data")


def test_what_a_killed_one_left_beside_is_no_hindrance(folder: Path):
    (folder / f".format.{os.getpid()}.new").write_text("half")
    settle_folder(folder)
    assert number_in(folder) == FORMAT
