"""The page of field reports and the tests that replay them say the same."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.field_reports import CASE_ID, OUTCOMES, PAGE, ROOT, Marked, Row, read_marks, read_rows


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return read_rows(PAGE.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def marks() -> list[Marked]:
    return list(read_marks(ROOT / "tests"))


def test_every_id_on_the_page_is_one(rows: list[Row]):
    assert [row.case_id for row in rows if not CASE_ID.fullmatch(row.case_id)] == []


def test_no_report_stands_twice(rows: list[Row]):
    counts = Counter(row.case_id for row in rows)
    assert [case_id for case_id, count in counts.items() if count > 1] == []


def test_every_outcome_is_one_of_three(rows: list[Row]):
    assert [row.case_id for row in rows if row.outcome not in OUTCOMES] == []


def test_what_is_not_right_says_why(rows: list[Row]):
    unexplained = [row.case_id for row in rows if row.outcome != "right" and not row.remark]
    assert unexplained == []


def test_every_row_says_what_happens_and_what_is_done(rows: list[Row]):
    assert [row.case_id for row in rows if not row.trouble or not row.answer] == []


def test_every_replayed_report_has_a_test(rows: list[Row], marks: list[Marked]):
    tested = {mark.case_id for mark in marks}
    replayed = [row.case_id for row in rows if row.outcome in ("right", "partly")]
    assert [case_id for case_id in replayed if case_id not in tested] == []


def test_every_marked_test_has_its_row(rows: list[Row], marks: list[Marked]):
    listed = {row.case_id for row in rows}
    strangers = {
        f"{mark.path.relative_to(ROOT)}:{mark.line}: {mark.case_id}"
        for mark in marks
        if mark.case_id not in listed
    }
    assert sorted(strangers) == []


def test_marks_are_found_wherever_they_stand(tmp_path):
    (tmp_path / "test_some.py").write_text(
        "import pytest\n"
        'pytestmark = [pytest.mark.integration, pytest.mark.case("P001")]\n'
        '@pytest.mark.case("P002", "P003")\n'
        "def test_one(): ...\n"
        '@pytest.mark.parametrize("n", [pytest.param(1, marks=pytest.mark.case("P004"))])\n'
        "def test_two(n): ...\n"
        "@pytest.mark.case(CASE)\n"
        "def test_three(): ...\n"
    )
    found = {mark.case_id for mark in read_marks(tmp_path)}
    assert found == {"P001", "P002", "P003", "P004", None}


def test_a_row_is_read_with_its_remark():
    (row,) = read_rows(
        "## Names\n\n| id | trouble | answer | outcome |\n|---|:--|---|---|\n"
        "| `P001` | a \\| b | c | *partly*: d |\n"
    )
    assert (row.case_id, row.trouble, row.section) == ("P001", "a \\| b", "Names")
    assert (row.outcome, row.remark) == ("partly", "d")


def test_a_row_with_too_few_cells_is_refused():
    with pytest.raises(ValueError, match="3 cells"):
        read_rows("| P001 | a | right |")
