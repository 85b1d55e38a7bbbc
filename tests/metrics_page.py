"""``python -m tests.metrics_page > docs/metrics.md``: every metric, from a recorded scrape."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

from tests.recorded_scrape import Family, control_families, gateway_families

ROOT = Path(__file__).parents[1]

HEAD = """# Metrics

Written by `python -m tests.metrics_page` from what is scraped, so that it is never behind.

Two places are scraped (`data/prometheus/scrape.yaml`): each gateway at `/headstart/metrics`, and
the control API at `/metrics`, both as OpenMetrics where the scraper asks for it. Base units
throughout. Labels are bounded: models past a bound share the label `other`, or have no series and
are counted in `headstart_metrics_omitted_models`. What is not known has no series; it is never 0.

Counters of the control API count what happens while its process runs. Three of them,
`headstart_requests_total`, `headstart_cold_starts_total` and `headstart_failed_requests_total`,
follow the event log from its beginning. Gauges with "last hour" in their text look back to a whole
bucket of five minutes.

How a figure is defined is said on [the dashboard's page](dashboard.md#key-figures). Alerts are in
`data/prometheus/alerts.yaml`, with what to do in [runbooks](runbooks.md); recording rules in
`data/prometheus/recording.yaml`; a Grafana dashboard that needs no edits, with its provisioning, in
`data/grafana/`. Without an address of its own a `runbook_url` is a path in this repository: set
another prefix with `relabel` or a template in Alertmanager.
"""

COLUMNS = ("| metric | kind | labels | what it is | panel | alert |", "|---|---|---|---|---|---|")


def page() -> str:
    """The whole page."""
    panels, alerts = _used_in_panels(), _used_in_alerts()
    parts = [HEAD]
    for title, found in (
        ("Of each gateway", gateway_families()),
        ("Of the control API", control_families()),
    ):
        parts.append(f"## {title}\n")
        parts.append("\n".join([*COLUMNS, *_rows(found.values(), panels, alerts), ""]))
    return "\n".join(parts)


def _rows(found: Iterable[Family], panels: set[str], alerts: set[str]) -> list[str]:
    return [
        f"| `{one.name}` | {one.kind} | {', '.join(f'`{label}`' for label in one.labels)} "
        f"| {one.text} | {'yes' if one.name in panels else ''} "
        f"| {'yes' if one.name in alerts else ''} |"
        for one in sorted(found, key=lambda one: one.name)
    ]


def _used_in_panels() -> set[str]:
    dashboard = json.loads((ROOT / "data/grafana/headstart.json").read_text())
    return named(
        target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])
    )


def _used_in_alerts() -> set[str]:
    rules = (ROOT / "data/prometheus/alerts.yaml").read_text()
    recorded = (ROOT / "data/prometheus/recording.yaml").read_text()
    return named([rules, recorded])


def named(expressions: Iterable[str]) -> set[str]:
    """Metrics that the expressions name, without the suffixes of histograms."""
    names = {name for one in expressions for name in re.findall(r"\bheadstart_\w+", one)}
    return {re.sub(r"_(bucket|count|sum)$", "", name) for name in names}


if __name__ == "__main__":
    print(page(), end="")
