from __future__ import annotations

from pathlib import Path

import pytest

from adapters.settings import load_settings
from cli.services import (
    SERVICES,
    checked_names,
    child_environment,
    control_url,
    gateway_url,
    service_specs,
    wanted_ports,
)
from contracts.errors import Invalid

ROOT = Path(__file__).parents[3]


def settings_of(**environ: str):
    return load_settings({"HOME": "/nonexistent", **environ})


def test_urls_are_ones_that_this_machine_reaches():
    settings = settings_of(HEADSTART_GATEWAY_PORT="1234")
    assert gateway_url(settings) == "http://127.0.0.1:1234"
    assert control_url(settings) == "http://127.0.0.1:8090"
    named = settings_of(HEADSTART_GATEWAY__HOST="::1", HEADSTART_CONTROL__HOST="10.0.0.7")
    assert gateway_url(named) == "http://[::1]:8080"
    assert control_url(named) == "http://10.0.0.7:8090"


def test_names_are_checked():
    assert checked_names(["workers"]) == ("workers",)
    with pytest.raises(Invalid, match="there are gateway, control, predictor, controller, workers"):
        checked_names(["worker"])


def test_children_find_our_packages_first_and_share_one_clock():
    env = child_environment({"PYTHONPATH": "/extra", "X": "1"}, settings_of())
    assert env["PYTHONPATH"] == f"{ROOT}:/extra"
    assert env["PYTHONSAFEPATH"] == "1"
    assert env["X"] == "1"
    assert "HEADSTART_TIME_ANCHOR" not in env
    fast = {"HEADSTART_ENV": "dev", "HEADSTART_TIME_SCALE": "30"}
    real, shown = child_environment(fast, settings_of(**fast))["HEADSTART_TIME_ANCHOR"].split(":")
    assert real == shown
    anchored = {**fast, "HEADSTART_TIME_ANCHOR": "1:2"}
    assert child_environment(anchored, settings_of(**fast))["HEADSTART_TIME_ANCHOR"] == "1:2"


def test_only_the_services_that_run_want_ports():
    settings = settings_of()
    assert [port.service for port in wanted_ports(SERVICES, settings)] == ["gateway", "control"]
    assert [port.port for port in wanted_ports(["control"], settings)] == [8090]
    assert wanted_ports(["workers"], settings) == []


def test_nothing_waits_for_a_redis_that_may_be_away_unless_asked_to():
    settings = settings_of(HEADSTART_REDIS_URL="redis://localhost:1")
    calm = {spec.name: spec for spec in service_specs(SERVICES, settings, {}, watch_redis=False)}
    assert calm["gateway"].ready == "http://127.0.0.1:8080/headstart/healthz"
    assert calm["control"].ready == "http://127.0.0.1:8090/healthz"
    assert calm["predictor"].ready is None
    assert calm["workers"].argv[1:] == ("-m", "workers", "--queue", "all")
    watched = service_specs(SERVICES, settings, {}, watch_redis=True)
    assert all(spec.ready is not None for spec in watched)


def test_a_gateway_has_its_own_grace_to_let_requests_end():
    settings = settings_of(
        HEADSTART_GATEWAY__TIMEOUTS__SHUTDOWN_GRACE_SECONDS="30",
        HEADSTART_ENV="dev",
        HEADSTART_TIME_SCALE="10",
    )
    gateway, workers = service_specs(["gateway", "workers"], settings, {}, watch_redis=False)
    assert gateway.stop_s == pytest.approx(workers.stop_s + 3.0)
