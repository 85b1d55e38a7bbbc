"""The image and the compose files agree with the code: names, settings, queues, tags."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from adapters.settings import load_settings
from adapters.settings_environment import FILE_SUFFIX, variable_names
from adapters.settings_keys import known_keys
from cli.serve import MODULES
from contracts.world import Mode
from workers.queues import QUEUES

ROOT = Path(__file__).parents[2]
COMPOSE = "docker-compose.yaml"
OVERLAYS = ("docker-compose.cuda.yaml", "docker-compose.secrets.yaml")


def _read(name: str) -> dict[str, Any]:
    # Compose replaces ${NAME:-default} before it reads values; here the defaults are taken.
    text = re.sub(r"\$\{[A-Z_]+:-([^}]*)\}", r"\1", (ROOT / name).read_text())
    assert "${" not in text, "every variable needs a default, so that the file runs as it is"
    document = YAML(typ="safe").load(text)
    assert isinstance(document, dict)
    return document


def _services() -> dict[str, dict[str, Any]]:
    services = _read(COMPOSE)["services"]
    assert isinstance(services, dict)
    return services


def _ours() -> dict[str, dict[str, Any]]:
    return {name: service for name, service in _services().items() if "build" in service}


def test_the_services_are_localai_redis_ours_and_one_worker_for_each_queue():
    workers = {f"worker-{queue}" for queue in QUEUES}
    assert set(_services()) == {
        "localai",
        "redis",
        "gateway",
        "control",
        "predictor",
        "controller",
        *workers,
    }
    assert set(_ours()) == set(_services()) - {"localai", "redis"}


def test_each_of_ours_serves_and_checks_what_its_name_says():
    for name, service in _ours().items():
        verb, module, *options = service["command"]
        assert (verb, module in MODULES) == ("serve", True), name
        asked = service["healthcheck"]["test"]
        assert asked[:4] == ["CMD", "headstart", "health", module], name
        if name.startswith("worker-"):
            queue = name.removeprefix("worker-")
            assert options[:2] == ["--queue", queue]
            assert asked[4:] == ["--queue", queue]
            assert options[2:] == ["--gateway-url", "http://gateway:8080"]
        else:
            assert (module, options, asked[4:]) == (name, [], [])


def test_every_image_has_a_tag_that_is_not_latest():
    for file in (COMPOSE, OVERLAYS[0]):
        for name, service in _read(file)["services"].items():
            if file != COMPOSE and "image" not in service:
                continue  # it adds to one that has its image already
            _, _, tag = service["image"].partition(":")
            assert tag, name
            assert not tag.startswith("latest"), name


def test_every_service_comes_back_after_a_crash_and_says_whether_it_works():
    for name, service in _services().items():
        assert service["restart"] == "unless-stopped", name
        assert service["healthcheck"]["test"][0] == "CMD", name


def test_only_gateway_and_control_are_reached_from_outside():
    published = {
        name: service["ports"] for name, service in _services().items() if "ports" in service
    }
    assert published == {"gateway": ["0.0.0.0:8080:8080"], "control": ["127.0.0.1:8090:8090"]}


def test_our_containers_run_with_little_power():
    for name, service in _ours().items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name


@pytest.mark.parametrize("file", [COMPOSE, *OVERLAYS])
def test_every_variable_is_one_that_the_settings_know(file: str):
    known = set(variable_names())
    secret = {key.variable for key in known_keys().values() if key.is_secret}
    secret |= {name for name, path in variable_names().items() if known_keys()[path].is_secret}
    for name, service in _read(file)["services"].items():
        for variable in service.get("environment", {}):
            if not variable.startswith("HEADSTART_"):
                looks = (name, variable) == ("controller", "NVIDIA_DRIVER_CAPABILITIES")
                assert name == "localai" or looks, f"{name}: {variable}"
            elif variable.endswith(FILE_SUFFIX):
                assert variable.removesuffix(FILE_SUFFIX) in secret, f"{name}: {variable}"
            else:
                assert variable in known, f"{name}: {variable}"


def test_with_its_environment_each_of_ours_starts_active_without_a_complaint(tmp_path: Path):
    for name, service in _ours().items():
        environ = {key: str(value) for key, value in service["environment"].items()}
        settings = load_settings({**environ, "HEADSTART_DATA_DIR": str(tmp_path)})
        assert settings.active_by_default, name
        assert Mode.ACTIVE.value == settings.document.scheduler.mode
        assert settings.redis_url == "redis://redis:6379/0"
        assert [node.url for node in settings.gateway_config().nodes] == ["http://localai:8080"]
        assert settings.notices == (), name


def test_localai_has_no_limit_of_its_own_and_takes_big_uploads():
    environment = _services()["localai"]["environment"]
    assert environment["LOCALAI_MAX_ACTIVE_BACKENDS"] == 0
    off = ("LOCALAI_WATCHDOG_IDLE", "LOCALAI_WATCHDOG_BUSY", "LOCALAI_MEMORY_RECLAIMER")
    assert [environment[name] for name in off] == ["false"] * 3
    gateway = load_settings({}).gateway_config()
    assert environment["LOCALAI_UPLOAD_LIMIT"] * 1024**2 >= gateway.max_body_bytes


def test_redis_keeps_what_it_is_given():
    command = " ".join(_services()["redis"]["command"])
    assert "--appendonly yes" in command
    assert "--maxmemory-policy noeviction" in command
    assert "--maxmemory 1gb" in command
    assert _services()["redis"]["volumes"] == ["redis:/data"]


def test_the_gateway_waits_for_nobody_and_no_one_is_waited_for_that_is_not_there():
    services = _services()
    for name, service in services.items():
        for other, rule in service.get("depends_on", {}).items():
            assert other in services, name
            if rule["condition"] == "service_healthy":
                assert "healthcheck" in services[other], name
    waits = services["gateway"]["depends_on"].values()
    assert {rule["condition"] for rule in waits} == {"service_started"}


def test_running_streams_may_end_before_the_gateway_is_killed():
    grace = str(_services()["gateway"]["stop_grace_period"])
    assert int(grace.removesuffix("s")) > load_settings({}).gateway_config().shutdown_grace_s + 5


@pytest.mark.parametrize("file", OVERLAYS)
def test_overlays_add_to_services_that_there_are(file: str):
    overlay = _read(file)
    assert set(overlay["services"]) <= set(_services())
    for service in overlay["services"].values():
        assert set(service.get("secrets", ())) <= set(overlay.get("secrets", {}))


def test_volumes_that_are_mounted_are_declared():
    document = _read(COMPOSE)
    mounted = {
        volume.partition(":")[0]
        for service in document["services"].values()
        for volume in service.get("volumes", ())
    }
    assert mounted == set(document["volumes"])


def test_the_image_is_pinned_by_hashes_and_runs_as_nobody_in_particular():
    text = (ROOT / "Dockerfile").read_text()
    installs = [line for line in text.splitlines() if "pip install" in line]
    assert all("--require-hashes" in line or "--no-index" in line for line in installs)
    final = text.rsplit("\nFROM ", 1)[1]
    assert "\nUSER 10001:10001\n" in final
    assert 'CMD ["headstart", "health"]' in final
    assert '\nENTRYPOINT ["headstart"]\n' in final
    ports = load_settings({})
    exposed = f"EXPOSE {ports.gateway_config().port} {ports.control_config().port}"
    assert f"\n{exposed}\n" in final
    # What the wheel is built with is taken out of the development lock by name.
    lock = (ROOT / "requirements-dev.lock").read_text()
    for name in ("setuptools", "wheel"):
        assert re.search(rf"^{name}==", lock, re.MULTILINE)


def test_the_image_holds_every_package_and_nothing_else():
    taken = {
        line.removeprefix("!")
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    packages = set(re.findall(r'"([a-z]+)[".]', _packages()))
    assert packages <= taken
    assert taken - packages == {
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "requirements.lock",
        "requirements-s3.lock",
        "requirements-dev.lock",
    }


def _packages() -> str:
    text = (ROOT / "pyproject.toml").read_text()
    match = re.search(r"^packages = \[(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    assert match is not None
    return match[1]
