"""Field reports: the rows of ``docs/field-reports.md`` and the tests that replay them.

``python -m tests.field_reports`` prints both, with counts by outcome.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "field-reports.md"
OUTCOMES = ("right", "partly", "does not apply")
CASE_ID = re.compile(r"P\d{3}|config-\d{2}")

_SHOWN_LETTERS = 72
_CELL_END = re.compile(r"(?<!\\)\|")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One report as the page has it. ``remark`` is what follows the outcome's word."""

    case_id: str
    trouble: str
    answer: str
    outcome: str
    remark: str
    section: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Marked:
    """One ``@pytest.mark.case`` in a test file. ``case_id`` is None where it is no literal."""

    case_id: str | None
    path: Path
    line: int


def read_rows(page: str) -> list[Row]:
    """The rows of every table of the page; ValueError where one has not four cells."""
    rows = []
    section = ""
    for line in page.splitlines():
        if line.startswith("#"):
            section = line.lstrip("# ")
        if not line.startswith("|"):
            continue
        cells = [cell.strip() for cell in _CELL_END.split(line.strip().removesuffix("|"))[1:]]
        if cells[0] == "id" or set(cells[0]) <= set("-: "):
            continue
        if len(cells) != 4:
            raise ValueError(f"{len(cells)} cells instead of 4: {line}")
        outcome, remark = _outcome(cells[3])
        rows.append(
            Row(
                case_id=cells[0].strip("`* "), trouble=cells[1], answer=cells[2],
                outcome=outcome, remark=remark, section=section,
            )
        )  # fmt: skip
    return rows


def read_marks(folder: Path) -> Iterator[Marked]:
    """Every id that a test is marked with, found without importing the tests."""
    for path in sorted(folder.rglob("test_*.py")):
        source = path.read_text(encoding="utf-8")
        if "mark.case" in source:
            yield from _marks_of(ast.parse(source), path)


def _marks_of(tree: ast.AST, path: Path) -> Iterator[Marked]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.case":
            for argument in node.args:
                literal = argument.value if isinstance(argument, ast.Constant) else None
                case_id = literal if isinstance(literal, str) else None
                yield Marked(case_id=case_id, path=path, line=node.lineno)


def _outcome(cell: str) -> tuple[str, str]:
    """The outcome's word, and what is said after it; the word is '' when it is none of ours."""
    text = cell.replace("*", "").strip()
    for word in OUTCOMES:
        if text.casefold().startswith(word):
            return word, text[len(word) :].strip(" :,.;()–-")  # noqa: RUF001 - as people write
    return "", text


def _print_table(rows: Iterable[Row], tests_by_id: Counter[str]) -> None:
    counts: Counter[str] = Counter()
    section = ""
    for row in rows:
        counts[row.outcome] += 1
        if row.section != section:
            section = row.section
            print(f"\n{section}")
        tests = tests_by_id[row.case_id]
        trouble = row.trouble.replace("`", "")
        if len(trouble) > _SHOWN_LETTERS:
            trouble = trouble[: _SHOWN_LETTERS - 1] + "…"
        print(f"  {row.case_id:9} {row.outcome:14} {tests:2} tests  {trouble}")
    told = ", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES)
    print(f"\n{counts.total()} reports: {told}")


def main() -> None:
    """Print the table."""
    marks = read_marks(ROOT / "tests")
    tests_by_id = Counter(mark.case_id for mark in marks if mark.case_id is not None)
    _print_table(read_rows(PAGE.read_text(encoding="utf-8")), tests_by_id)


if __name__ == "__main__":
    main()
