"""promtool and Prometheus on what ships: rules, their unit tests, scrapes, and each query."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.recorded_scrape import control_scrape, gateway_scrape

pytestmark = [pytest.mark.integration, pytest.mark.enable_socket]

DATA = Path(__file__).parents[2] / "data"
RULES = ("alerts.yaml", "recording.yaml")
MINUTES = 120


def promtool(*arguments: str, stdin: str | None = None, cwd: Path = DATA / "prometheus") -> str:
    done = subprocess.run(
        ["promtool", *arguments],
        check=False,
        input=stdin,
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_rules_and_configuration_are_valid():
    assert "SUCCESS" in promtool("check", "rules", *RULES)
    assert "SUCCESS" in promtool("check", "config", "--syntax-only", "scrape.yaml")


def test_alerts_fire_when_they_should_and_only_then():
    said = promtool("test", "rules", "alerts_test.yaml", cwd=Path(__file__).parent)
    assert "SUCCESS" in said


@pytest.mark.parametrize("scrape", [gateway_scrape, control_scrape])
def test_what_is_scraped_has_no_lint(scrape):
    assert promtool("check", "metrics", stdin=scrape()).strip() == ""


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prometheus with two hours of a recorded deployment, at the given address."""
    folder = tmp_path_factory.mktemp("prometheus")
    now_s = int(time.time()) // 60 * 60
    (folder / "series.om").write_text(_series(now_s))
    promtool("tsdb", "create-blocks-from", "openmetrics", "series.om", "blocks", cwd=folder)
    (folder / "none.yml").write_text("scrape_configs: []\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [
            "prometheus",
            "--config.file=none.yml",
            "--storage.tsdb.path=blocks",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=error",
        ],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        url = f"http://127.0.0.1:{port}"
        _until_ready(url)
        yield f"{url}/api/v1/query?time={now_s}&query="
    finally:
        server.terminate()
        server.wait(20)
        shutil.rmtree(folder, ignore_errors=True)


def ask(prometheus: str, expression: str) -> list[Any]:
    with urllib.request.urlopen(prometheus + urllib.parse.quote(expression), timeout=20) as answer:
        found: list[Any] = json.load(answer)["data"]["result"]
    return [one for one in found if one["value"][1] != "NaN"]


def queries() -> list[tuple[str, str]]:
    """Of every panel and every recording rule, with its name."""
    dashboard = json.loads((DATA / "grafana/headstart.json").read_text())
    found = [
        (f"{panel['title']} {target['refId']}", target["expr"])
        for panel in dashboard["panels"]
        for target in panel.get("targets", [])
    ]
    groups = YAML(typ="safe").load(DATA / "prometheus/recording.yaml")["groups"]
    found += [(rule["record"], rule["expr"]) for group in groups for rule in group["rules"]]
    return found


NOT_ALWAYS = {"Budget spent in A"}
"""A budget that is not being spent is never gone."""


def test_every_query_returns_data(prometheus: str):
    empty = [
        name
        for name, expression in queries()
        if not ask(prometheus, expression.replace("$__rate_interval", "5m"))
        and name not in NOT_ALWAYS
    ]
    assert not empty, ", ".join(empty)


def _series(now_s: int) -> str:
    """The scrapes as they would have been each minute: counters grow, gauges stay."""
    lines: list[str] = []
    for text in (gateway_scrape(), control_scrape()):
        kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
        samples: dict[str, list[tuple[str, float]]] = {}
        for line in text.splitlines():
            if line.startswith("#") or not line:
                continue
            series, value = line.rsplit(" ", 1)
            name = series.partition("{")[0]
            base = name if name in kinds else re.sub(r"_(bucket|count|sum)$", "", name)
            samples.setdefault(base, []).append((series, float(value)))
        for name, found in samples.items():
            grows = kinds.get(name) in ("counter", "histogram")
            # As untyped: what is asked is the values, and OpenMetrics names counters otherwise.
            lines += [
                f"{series} {value * (1 + minute / 10) if grows else value} {now_s - 60 * back}"
                for series, value in found
                for minute, back in ((MINUTES - back, back) for back in range(MINUTES, -1, -1))
            ]
    return "\n".join([*lines, "# EOF", ""])


def _until_ready(url: str) -> None:
    give_up_at = time.monotonic() + 20
    while True:
        try:
            with urllib.request.urlopen(f"{url}/-/ready", timeout=2):
                return
        except OSError:
            assert time.monotonic() < give_up_at, "Prometheus did not start"
            time.sleep(0.1)
