"""The image and the compose files agree with the code: names, settings, queues, tags."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from adapters.settings import load_settings
from adapters.settings_environment import FILE_SUFFIX, variable_names
from adapters.settings_keys import known_keys
from cli.compose_scaler import bounds_of
from cli.serve import MODULES
from contracts.world import Mode
from workers.queues import QUEUES

ROOT = Path(__file__).parents[2]
COMPOSE = "docker-compose.yaml"
OVERLAYS = tuple(
    f"docker-compose.{name}.yaml"
    for name in ("cuda", "rocm", "vulkan", "several", "secrets", "monitoring", "scale")
)
ADDED = {"localai-2", "localai-3", "prometheus", "grafana", "compose-scaler"}
"""Services that an overlay brings along."""

SOCKET = "/var/run/docker.sock"
CONFIGURED = {"several": "docker-compose.several.yaml", "scale": "docker-compose.scale.yaml"}
"""Overlays that mount a file of ``data/compose``."""


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
    for file in (COMPOSE, *OVERLAYS):
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
    known = set(variable_names()) | {"HEADSTART_CONFIG"}
    secret = {key.variable for key in known_keys().values() if key.is_secret}
    secret |= {name for name, path in variable_names().items() if known_keys()[path].is_secret}
    for name, service in _read(file)["services"].items():
        for variable in service.get("environment", {}):
            if not variable.startswith("HEADSTART_"):
                looks = (name, variable) == ("controller", "NVIDIA_DRIVER_CAPABILITIES")
                theirs = name.startswith("localai") or name in ADDED
                assert theirs or looks, f"{name}: {variable}"
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
def test_overlays_add_to_services_that_there_are_or_bring_whole_ones(file: str):
    overlay = _read(file)
    there = set(_services()) | set(overlay["services"])
    assert set(overlay["services"]) - set(_services()) <= ADDED
    for name, service in overlay["services"].items():
        assert set(service.get("secrets", ())) <= set(overlay.get("secrets", {}))
        assert set(service.get("depends_on", {})) <= there
        if name in ADDED:
            assert service["restart"] == "unless-stopped", name
            assert service["healthcheck"]["test"][0] == "CMD", name
            assert service["logging"]["options"], name
        else:
            assert not {"ports", "restart", "command"} & set(service), name
    for secret in overlay.get("secrets", {}).values():
        assert secret["file"].startswith("./secrets/")


@pytest.mark.parametrize("file", OVERLAYS)
def test_what_an_overlay_mounts_is_there(file: str):
    overlay = _read(file)
    declared = set(overlay.get("volumes", {})) | set(_read(COMPOSE)["volumes"])
    for name, service in overlay["services"].items():
        for volume in service.get("volumes", ()):
            source, *_ = volume.split(":")
            if source.startswith("./"):
                assert (ROOT / source).exists(), volume
                assert volume.endswith(":ro"), volume
            else:
                assert source in declared or (name, source) == ("compose-scaler", SOCKET), volume


@pytest.mark.parametrize("file", OVERLAYS)
def test_what_an_overlay_publishes_is_for_this_machine_alone(file: str):
    for name, service in _read(file)["services"].items():
        for port in service.get("ports", ()):
            assert name in ("prometheus", "grafana")
            assert port.startswith("127.0.0.1:"), port


@pytest.mark.parametrize("file", [COMPOSE, *OVERLAYS])
def test_dockers_socket_is_in_one_container_that_others_reach_by_a_network_of_its_own(file: str):
    document = _read(file)
    for name, service in document["services"].items():
        has_it = any(SOCKET in volume for volume in service.get("volumes", ()))
        assert has_it == (name == "compose-scaler"), name
        assert not service.get("privileged"), name
        if has_it:
            assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
            assert service["networks"] == ["scaling"]
    reached = {
        name
        for name, service in document["services"].items()
        if "scaling" in service.get("networks", ())
    }
    assert reached == ({"compose-scaler", "controller"} if "scale" in file else set())


@pytest.mark.parametrize("name", sorted(CONFIGURED))
def test_with_its_files_each_of_ours_starts_without_a_complaint(name: str, tmp_path: Path):
    token = tmp_path / "token"
    token.write_text("x" * 32)
    folder = tmp_path / "etc"
    folder.mkdir()
    shutil.copy(ROOT / f"data/compose/{name}.yaml", folder)
    overlay = _read(CONFIGURED[name])["services"]
    for ours, service in _ours().items():
        assert (
            f"./data/compose/{name}.yaml:/etc/headstart/{name}.yaml:ro" in overlay[ours]["volumes"]
        )
        environ = {**service["environment"], **overlay[ours]["environment"]}
        assert environ["HEADSTART_CONFIG"] == "/etc/headstart"
        environ |= {"HEADSTART_CONFIG": folder, "HEADSTART_DATA_DIR": tmp_path}
        if "HEADSTART_COMPOSE_SCALER__TOKEN_FILE" in environ:
            environ["HEADSTART_COMPOSE_SCALER__TOKEN_FILE"] = token
        settings = load_settings({key: str(value) for key, value in environ.items()})
        assert settings.notices == (), ours
        assert settings.active_by_default


def test_the_list_of_several_is_what_is_started():
    backends = YAML(typ="safe").load(ROOT / "data/compose/several.yaml")["localai"]["backends"]
    started = {"localai"} | set(_read("docker-compose.several.yaml")["services"]) & ADDED
    assert {backend["name"] for backend in backends} == started
    for backend in backends:
        assert backend["url"] == f"http://{backend['name']}:8080"
    environment = _services()["localai"]["environment"]
    for name in started - {"localai"}:
        assert _read("docker-compose.several.yaml")["services"][name]["environment"] == environment


def test_targets_stay_within_what_the_scaler_may_do():
    command = _read("docker-compose.scale.yaml")["services"]["compose-scaler"]["command"]
    bounds = bounds_of([word for word in command if "=" in word])
    targets = YAML(typ="safe").load(ROOT / "data/compose/scale.yaml")["autoscaling"]
    assert set(targets) == set(bounds)
    for name, target in targets.items():
        assert (target["min"], target["max"]) == bounds[name]
    assert not {"ports", "container_name"} & set(_services()["localai"])


@pytest.mark.parametrize("file", OVERLAYS)
def test_compose_itself_reads_each_overlay_where_it_is_installed(file: str):
    compose = _compose()
    if compose is None:
        return  # the tests above hold all the same
    said = subprocess.run(
        [*compose, "--file", COMPOSE, "--file", file, "config"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr


def _compose() -> list[str] | None:
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    plugin = ["docker", "compose"]
    if shutil.which("docker") is None:
        return None
    asked = subprocess.run([*plugin, "version"], capture_output=True, check=False)
    return plugin if asked.returncode == 0 else None


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
