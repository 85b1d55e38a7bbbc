"""Figures and tables that one page takes from another place agree with that place."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def rows(text: str) -> list[list[str]]:
    """Cells of every table row, without emphasis."""
    found = re.findall(r"^\|(.+)\|$", text, re.MULTILINE)
    return [
        [cell.strip().replace("**", "").replace("`", "") for cell in row.split("|")]
        for row in found
    ]


def number(cell: str) -> float:
    return float(cell.replace(",", "").removesuffix(" µs").removesuffix(" MB"))


def test_the_comparison_has_the_figures_of_simulation_and_policy():
    rules = {
        (cells[0], cells[1], cells[2]): cells
        for cells in rows((DOCS / "simulation.md").read_text())
        if len(cells) == 11
    }
    ours = {
        cells[0]: cells
        for cells in rows((DOCS / "policy.md").read_text())
        if len(cells) == 8 and "0" in cells[0]
    }
    column = {"in time": 4, "cold": 3, "loads": 8}
    own_column = {"in time": 3, "cold": 2, "loads": 5}
    table = rows((DOCS / "comparison.md").read_text())
    header = next(cells for cells in table if cells[0] == "traffic, memory")
    compared, traffic = 0, ""
    for cells in table:
        if len(cells) != len(header) or cells[1] not in column:
            continue
        traffic = cells[0] or traffic
        name, memory = traffic.removesuffix(" MB").split(", ")
        digits = 0 if cells[1] == "loads" else 3
        for policy, cell in zip(header[2:], cells[2:], strict=True):
            if policy == "headstart":
                source = number(ours[f"{name} {memory}"][own_column[cells[1]]])
            else:
                source = number(rules[name, memory, policy][column[cells[1]]])
            assert abs(number(cell) - source) <= 0.51 * 10**-digits, (traffic, cells[1], policy)
            compared += 1
    assert compared == 4 * 3 * 5


def test_the_comparison_has_the_figures_of_the_first_run_of_the_gateways_benchmark():
    first = {
        cells[0].lower(): cells
        for cells in reversed(rows((DOCS / "benchmarks.md").read_text()))
        if len(cells) == 8
    }
    compared = 0
    for cells in rows((DOCS / "comparison.md").read_text()):
        if len(cells) != 5 or "µs" not in cells[1]:
            continue
        source = first[cells[0].lower()]
        told = [source[1].split(" / ")[0], source[2], source[3], source[7]]
        assert [number(cell) for cell in cells[1:]] == [number(cell) for cell in told], cells[0]
        compared += 1
    assert compared == 3


def test_operations_list_every_check_of_the_doctor_and_no_other():
    sources = "\n".join(path.read_text() for path in (ROOT / "cli/checkup").glob("*.py"))
    checks = set(re.findall(r'\b(?:ok|warn|fail|_strength)\(\s*"([a-z_.]+)"', sources))
    told = set(
        re.findall(r"^\| `([a-z_.]+)` \|", (DOCS / "operations.md").read_text(), re.MULTILINE)
    )
    assert told == checks


def test_metrics_that_operations_names_are_there():
    metrics = (DOCS / "metrics.md").read_text()
    for name in re.findall(r"`(headstart_\w+)", (DOCS / "operations.md").read_text()):
        assert f"`{name}`" in metrics, name
