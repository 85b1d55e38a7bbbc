"""What ships in ``data/`` agrees with the code, and says where it comes from."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.metrics_page import page
from tests.recorded_scrape import all_families

ROOT = Path(__file__).parents[2]
DATA = ROOT / "data"
ALERTS_TEST = ROOT / "tests/monitoring/alerts_test.yaml"

SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum"), "gauge": ("",)}

# Figures that are for finding faults in Headstart itself, not for a wall.
WITHOUT_A_PANEL = {
    "headstart_control_forgotten_total",
    "headstart_demand_loads_total",
    "headstart_event_listeners",
    "headstart_event_listeners_dropped_total",
    "headstart_event_listeners_refused_total",
    "headstart_event_log_lag_seconds",
    "headstart_failed_requests_total",
    "headstart_gateway_backend_in_flight",
    "headstart_gateway_circuits_forgotten_total",
    "headstart_gateway_cold_requests_total",
    "headstart_gateway_fallbacks_total",
    "headstart_gateway_health_checks_total",
    "headstart_gateway_in_flight",
    "headstart_gateway_lists_left_out_total",
    "headstart_gateway_passed_total",
    "headstart_gateway_request_seconds",
    "headstart_gateway_routing_table_age_seconds",
    "headstart_gateway_unexpected_cold_total",
    "headstart_gateway_waiting",
    "headstart_metrics_omitted_models",
    "headstart_node_peers",
    "headstart_node_warnings",
    "headstart_model_in_flight_requests",
    "headstart_model_waiting_requests",
    "headstart_queue_waiting_requests",
    "headstart_store_up",
}


def _metrics() -> set[str]:
    """Every name that a scrape can hold, without the suffixes of histograms."""
    return set(all_families())


def _recorded() -> set[str]:
    """Names that the recording rules make."""
    groups = _yaml("prometheus/recording.yaml")["groups"]
    return {rule["record"] for group in groups for rule in group["rules"]}


def _named(expression: str) -> set[str]:
    names = set(re.findall(r"\bheadstart[_:][\w:]+", expression))
    return {re.sub(r"_(bucket|count|sum)$", "", name) for name in names}


def _yaml(name: str) -> Any:
    return YAML(typ="safe").load(DATA / name)


def _rules() -> list[dict[str, Any]]:
    return [rule for group in _yaml("prometheus/alerts.yaml")["groups"] for rule in group["rules"]]


def _panels() -> Iterator[dict[str, Any]]:
    dashboard = json.loads((DATA / "grafana/headstart.json").read_text())
    yield from (panel for panel in dashboard["panels"] if panel["type"] != "row")


def test_the_metrics_are_found_at_all():
    assert {"headstart_gateway_requests_total", "headstart_node_up"} <= _metrics()
    assert len(_metrics()) > 30


def test_alerts_name_metrics_that_there_are_and_say_what_to_do():
    known = _metrics() | _recorded()
    for rule in _rules():
        expression = re.sub(r'\{[^}]*\}|"[^"]*"', "", rule["expr"])
        assert _named(expression) <= known, rule["alert"]
        assert _named(expression) or rule["expr"].startswith("up{"), rule["alert"]
        assert rule["labels"]["severity"] in {"info", "warning", "critical"}
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["description"].endswith(".")
    names = [rule["alert"] for rule in _rules()]
    assert len(set(names)) == len(names)


def test_recording_rules_rest_on_metrics_that_there_are():
    for group in _yaml("prometheus/recording.yaml")["groups"]:
        for rule in group["rules"]:
            assert _named(re.sub(r"\{[^}]*\}", "", rule["expr"])) <= _metrics(), rule["record"]


def test_every_alert_has_a_runbook_and_a_test_of_its_own():
    runbooks = (ROOT / "docs/runbooks.md").read_text()
    headings = {line[3:].strip() for line in runbooks.splitlines() if line.startswith("## ")}
    tested = set(re.findall(r"alertname: (\w+)", ALERTS_TEST.read_text()))
    names = {rule["alert"] for rule in _rules()}
    assert names == tested
    assert names <= headings
    for rule in _rules():
        wanted = f"docs/runbooks.md#{rule['alert'].lower()}"
        assert rule["annotations"]["runbook_url"] == wanted


def test_the_page_of_metrics_is_up_to_date():
    # Else: python -m tests.metrics_page > docs/metrics.md
    assert (ROOT / "docs/metrics.md").read_text() == page()


def test_metrics_have_names_by_the_rules_and_words():
    for family in all_families().values():
        assert (family.kind == "counter") == family.name.endswith("_total"), family.name
        assert family.text.endswith("."), family.name
        assert not re.search(r"_(ms|mb|percent|minutes)(_|$)", family.name), family.name


def test_panels_name_metrics_that_there_are_and_every_metric_has_one():
    known, shown = _metrics(), set()
    for panel in _panels():
        for target in panel["targets"]:
            named = _named(re.sub(r"\{[^}]*\}", "", target["expr"]))
            assert named, panel["title"]
            assert named <= known, panel["title"]
            shown |= named
    assert known - shown <= WITHOUT_A_PANEL
    assert known >= WITHOUT_A_PANEL


def test_panels_have_numbers_and_places_of_their_own():
    panels = list(_panels())
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


def test_what_is_scraped_is_what_the_compose_file_runs():
    services = YAML(typ="safe").load(ROOT / "docker-compose.yaml")["services"]
    jobs = {job["job_name"] for job in _yaml("prometheus/scrape.yaml")["scrape_configs"]}
    for job in _yaml("prometheus/scrape.yaml")["scrape_configs"]:
        for target in job["static_configs"][0]["targets"]:
            assert target.partition(":")[0] in services
    named = set(re.findall(r'job="([^"]+)"', (DATA / "prometheus/alerts.yaml").read_text()))
    assert named <= jobs


@pytest.mark.parametrize("entry", _yaml("models/catalogue.yaml")["models"], ids=lambda e: e["name"])
def test_the_catalogue_adds_up(entry: dict[str, Any]):
    file_mb = entry["parameters_b"] * 1e9 * entry["bits_per_weight"] / 8 / 2**20
    cache_mb = entry.get("kv_bytes_per_token", 0) * entry.get("context", 0) / 2**20
    assert entry["file_mb"] == pytest.approx(file_mb, abs=1)
    assert entry["footprint_mb"] == pytest.approx(file_mb * 1.1 + cache_mb, abs=1)
    assert 2.0 <= entry["load_s"] < 60.0
    assert entry["kind"] in {"chat", "embedding", "rerank", "speech", "transcription", "image"}
    assert entry["licence"]


def test_the_catalogue_names_each_model_once_and_has_every_kind():
    models = _yaml("models/catalogue.yaml")["models"]
    assert len({entry["name"] for entry in models}) == len(models)
    kinds = {entry["kind"] for entry in models}
    assert {"chat", "embedding", "speech", "transcription", "image"} <= kinds


def test_every_file_says_where_it_comes_from_and_under_which_licence():
    row = re.compile(r"^\| `([^`]+)` \|.*\| ([^|]+) \|$", re.MULTILINE)
    listed = dict(row.findall((DATA / "README.md").read_text()))
    there = {
        str(path.relative_to(DATA))
        for path in DATA.rglob("*")
        if path.is_file() and path.suffix not in {".py", ".pyc"} and path.name != "README.md"
    }
    assert there == set(listed)
    assert all("Apache-2.0" in licence for licence in listed.values())
