"""Figures and tables that one page takes from another place agree with that place."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from adapters.redis_events import RedisEventLog
from adapters.redis_streams import LEAST_ENTRIES
from contracts.history import HISTORY_RINGS
from simulator.scale_costs import Budgets
from simulator.scale_figures import MOST_EVENTS

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


def _sizing() -> dict[str, list[str]]:
    return {cells[0]: cells for cells in rows((DOCS / "sizing.md").read_text())}


def test_sizing_has_the_bounds_of_the_code():
    text, budgets = (DOCS / "sizing.md").read_text(), Budgets()
    for said in (
        f"round of the controller more than {budgets.round_s:g} s",
        f"predictor more than {budgets.tick_s:g} s",
        f"more than {budgets.table_mb_per_s:g} MB/s",
        f"Redis more than {budgets.redis_bytes / 1e9:g} GB",
        f"{MOST_EVENTS:,} events",
        f"{LEAST_ENTRIES} tables",
    ):
        assert said in text.replace("\n", " "), said
    assert inspect.signature(RedisEventLog).parameters["max_entries"].default == MOST_EVENTS
    day = sum(min(slots, 86_400 / width_s) for width_s, slots in HISTORY_RINGS.items())
    assert f"{20 * day / 1000:.0f} KB after a day" in text


def test_sizing_takes_its_gateway_from_the_benchmarks():
    told = _sizing()["a gateway, all of it"][1]
    assert re.match(r"156 to 160 µs of CPU", told)
    assert "156 to 160 µs of processor for a request" in (DOCS / "benchmarks.md").read_text()


def test_sizing_adds_up():
    table = _sizing()
    per_s = [number(cell) for cell in table["requests a second"][1:]]
    models = (5, 100, 1000)
    log_mb, per_model_mb = 281 * MOST_EVENTS / 1e6, 0.061
    for count, cell in zip(models, table["Redis, MB when full"][1:], strict=True):
        assert number(cell) > log_mb + count * per_model_mb
    for rate, cell in zip(per_s, table["the event log holds"][1:], strict=True):
        value, unit = cell.split()
        seconds = float(value) * {"h": 3600, "min": 60, "s": 1}[unit]
        # four events each, and some of loads and nodes
        assert abs(seconds - MOST_EVENTS / (4.02 * rate)) < 0.05 * seconds + 1
