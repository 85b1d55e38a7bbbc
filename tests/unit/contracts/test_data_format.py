"""The mark beside the data, and what follows from it."""

from __future__ import annotations

import pytest

from contracts.data_format import (
    BEFORE_MARKS,
    FORMAT,
    DataFormat,
    read_mark,
    refusal,
    steps,
    write_mark,
)


def test_a_mark_is_read_as_it_was_written():
    mark = DataFormat(number=7, written_by="1.2.3")
    assert read_mark(write_mark(mark)) == mark


def test_data_without_a_mark_is_of_the_releases_before_marks():
    assert read_mark(None) == DataFormat(number=BEFORE_MARKS)


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"\xff\xfe", b"[1]", b"1", b"{}", b'{"format":0}', b'{"format":-1}',
     b'{"format":true}', b'{"format":"1"}', b'{"format":1.5}', b'{"format":null}',
     b"[" * 100_000],
)  # fmt: skip
def test_what_is_no_mark_is_none(text: bytes):
    assert read_mark(text) is None


def test_who_wrote_it_is_cut_to_what_people_can_read():
    mark = read_mark(b'{"format":1,"written_by":"%s"}' % (b"x" * 1_000))
    assert mark is not None
    assert len(mark.written_by) == 40


@pytest.mark.parametrize("number", [1, 2])
def test_data_of_this_format_or_an_older_one_is_used(number: int):
    assert refusal(DataFormat(number=number), place="Redis", release="2.0", known=2) is None


def test_newer_data_is_refused_in_one_line_that_says_who_wrote_it_and_what_to_do():
    said = refusal(DataFormat(number=3, written_by="3.1"), place="Redis", release="2.0", known=2)
    assert said is not None
    assert said.startswith("Redis has data of format 3, written by headstart 3.1; ")
    assert "this is headstart 2.0, which reads up to format 2" in said
    assert "start that release again" in said
    assert "backup" in said
    assert "\n" not in said


def test_a_newer_writer_may_be_unknown():
    said = refusal(DataFormat(number=3), place="Redis", release="2.0", known=2)
    assert said is not None
    assert "written by a newer release" in said


def test_a_mark_that_cannot_be_read_is_refused():
    said = refusal(None, place="/data", release="2.0")
    assert said is not None
    assert said.startswith("/data has a mark of its format that cannot be read")


def test_formats_are_left_behind_one_after_the_other():
    assert list(steps(2, 5)) == [2, 3, 4]
    assert list(steps(FORMAT)) == []
