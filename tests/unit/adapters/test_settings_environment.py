from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from adapters.settings import Settings, load_settings
from adapters.settings_environment import MAX_NOTICES, variable_names
from adapters.settings_keys import Key, find_key, known_keys
from contracts.errors import Invalid


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def load(text: str = "", **environ: str) -> Settings:
    if text:
        Path("headstart.yaml").write_text(text, encoding="utf-8")
    return load_settings({"HOME": "/home/op"} | environ)


def refused(text: str = "", **environ: str) -> str:
    with pytest.raises(Invalid) as caught:
        load(text, **environ)
    return str(caught.value)


def test_the_short_names() -> None:
    settings = load(
        HEADSTART_DATA_DIR="/srv/headstart",
        HEADSTART_GATEWAY_HOST="localhost",
        HEADSTART_GATEWAY_PORT="9080",
        HEADSTART_CONTROL_HOST="127.0.0.1",
        HEADSTART_CONTROL_PORT="9090",
        HEADSTART_LOCALAI_URL="http://localai:8080/",
        HEADSTART_REDIS_URL="redis://:pw@redis/1",
        HEADSTART_ADMIN_KEY="hush",
        HEADSTART_ENV="dev",
        HEADSTART_TIME_SCALE="30",
    )
    assert settings.data_dir == Path("/srv/headstart")
    gateway, control = settings.gateway_config(), settings.control_config()
    assert (gateway.host, gateway.port) == ("localhost", 9080)
    assert (control.host, control.port) == ("127.0.0.1", 9090)
    assert settings.gateway_config().nodes[0].url == "http://localai:8080"
    assert settings.redis_url == "redis://:pw@redis/1"
    assert settings.admin_key == settings.control_config().admin_key == "hush"
    assert settings.time_scale == 30.0
    assert settings.environment == "dev"
    assert settings.notices == ()


def test_every_plain_key_has_a_variable_that_sets_it() -> None:
    samples: dict[str, tuple[str, Any]] = {}
    for key in known_keys().values():
        if key.variable is not None:
            if key.allowed.startswith(("a whole number", "a number")):
                samples[key.variable] = ("1", 1) if "below 1" not in key.allowed else ("0.5", 0.5)
            elif key.allowed == "true or false":
                samples[key.variable] = ("no", False)
            elif key.allowed.startswith("one of"):
                word = key.allowed.removeprefix("one of ").split(", ")[-1]
                samples[key.variable] = (word.replace("-", "_"), word)
    del samples["HEADSTART_CONTROL__PORT"]  # must differ from the gateway's
    del samples["HEADSTART_LOCALAI__DISCOVERY"]  # would look up a name
    samples["HEADSTART_PREDICTOR__EXPIRES_SECONDS"] = ("2", 2)
    document = load(**{name: text for name, (text, _) in samples.items()}).document
    paths = variable_names()
    for name, (_, expected) in samples.items():
        value: Any = document
        for part in paths[name]:
            value = getattr(value, part)
        assert value == expected, name


def test_lists_are_separated_by_commas() -> None:
    settings = load(
        HEADSTART_GATEWAY__KEYS="one, two,,",
        HEADSTART_RESOURCE_MONITORING__GPU_METRICS="temperature",
    )
    assert settings.gateway_config().keys == ("one", "two")
    assert settings.document.resource_monitoring.gpu_metrics == ("temperature",)


def test_ours_over_theirs_over_the_file_over_the_default() -> None:
    text = "scheduler: {parallel_loads: 3}\nredis: {url: 'redis://file'}\n"
    assert load().controller_config().planner.parallel_loads == 2
    assert load(text).controller_config().planner.parallel_loads == 3
    assert load(text, LOCALAI_PARALLEL_LOAD="4").controller_config().planner.parallel_loads == 4
    both = load(text, LOCALAI_PARALLEL_LOAD="4", HEADSTART_SCHEDULER__PARALLEL_LOADS="5")
    assert both.controller_config().planner.parallel_loads == 5
    assert load(text).redis_url == "redis://file"
    assert load(text, REDIS_URL="redis://plain").redis_url == "redis://plain"
    both = load(text, REDIS_URL="redis://plain", HEADSTART_REDIS_URL="redis://ours")
    assert both.redis_url == "redis://ours"


def test_an_empty_variable_counts_as_not_set() -> None:
    assert load("gateway: {port: 9000}", HEADSTART_GATEWAY_PORT=" ").gateway_config().port == 9000


def test_a_list_takes_the_place_of_the_files_list() -> None:
    settings = load("gateway:\n  keys:\n  - a\n  - b\n", HEADSTART_GATEWAY__KEYS="c")
    assert settings.gateway_config().keys == ("c",)
    assert ("gateway", "keys", "0") not in settings.source.origins
    assert settings.source.origins["gateway", "keys"] == "HEADSTART_GATEWAY__KEYS"


def test_an_address_takes_the_place_of_the_files_backends() -> None:
    text = "localai:\n  backends:\n  - {name: a, url: 'http://a'}\n"
    settings = load(text, HEADSTART_LOCALAI_URL="http://b:1")
    assert [node.url for node in settings.gateway_config().nodes] == ["http://b:1"]
    assert settings.notices == (
        "localai.backends is not used: HEADSTART_LOCALAI_URL takes its place",
    )
    assert load("localai:\n", HEADSTART_LOCALAI_URL="http://b:1").notices == ()


def test_two_names_of_one_key_must_agree() -> None:
    agreed = load(HEADSTART_GATEWAY_PORT="9000", HEADSTART_GATEWAY__PORT="9000")
    assert agreed.gateway_config().port == 9000
    assert refused(HEADSTART_GATEWAY_PORT="9000", HEADSTART_GATEWAY__PORT="9001") == (
        "HEADSTART_GATEWAY__PORT: says something else than HEADSTART_GATEWAY_PORT; set one of them"
    )


def test_errors_name_the_variable() -> None:
    assert refused(HEADSTART_QUEUE_CONFIG__REALTIME_CAPACITY="ten") == (
        'HEADSTART_QUEUE_CONFIG__REALTIME_CAPACITY: queue_config.realtime_capacity = "ten": '
        "must be a whole number from 1 to 10000"
    )
    assert refused(HEADSTART_LOCALAI_URL="http://127.0.0.1:8080").startswith(
        "HEADSTART_LOCALAI_URL: localai.url"
    )
    assert refused(HEADSTART_ADMIN_KEY="hush hush") == (
        "HEADSTART_ADMIN_KEY: control.admin_key = ***: must be text without spaces, in quotes "
        "where it looks like a number"
    )


def test_errors_between_keys_name_the_one_that_was_set() -> None:
    assert refused(HEADSTART_PREDICTOR__PUBLISH_SECONDS="60").startswith(
        "HEADSTART_PREDICTOR__PUBLISH_SECONDS: predictor.expires_seconds = 60: must be above"
    )
    weights = ("CUDA", "ROCM", "VULKAN", "SYCL", "METAL", "CPU")
    names = {f"HEADSTART_LOAD_BALANCING__WEIGHTS__{weight}": "0" for weight in weights}
    assert refused(**names) == (
        "HEADSTART_LOAD_BALANCING__WEIGHTS__CUDA: load_balancing.weights: at least one must be "
        "above 0"
    )


def test_a_section_that_is_wrong_in_the_file_stays_wrong() -> None:
    assert refused("gateway: 3", HEADSTART_GATEWAY__HOST="localhost").startswith(
        "headstart.yaml:1: gateway = ***: must be a mapping"
    )


def test_secrets_from_files(tmp_path: Path) -> None:
    (tmp_path / "admin").write_text("hush\n")
    (tmp_path / "keys").write_text("one\ntwo\n\n")
    settings = load(
        HEADSTART_ADMIN_KEY_FILE=str(tmp_path / "admin"),
        HEADSTART_GATEWAY__KEYS_FILE=str(tmp_path / "keys"),
    )
    assert settings.admin_key == "hush"
    assert settings.gateway_config().keys == ("one", "two")
    assert settings.notices == ()


def test_secret_files_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "binary").write_bytes(b"\xff")
    (tmp_path / "good").write_text("a")
    name = "HEADSTART_ADMIN_KEY_FILE"
    assert refused(**{name: "missing"}) == f"{name}: missing: there is no such file"
    assert refused(**{name: "empty"}) == f"{name}: empty: is empty"
    assert refused(**{name: "binary"}) == f"{name}: binary: is not UTF-8 text"
    assert refused(**{name: "good"}, HEADSTART_ADMIN_KEY="b") == (
        f"HEADSTART_ADMIN_KEY: says something else than {name}; set one of them"
    )
    assert load(**{name: "good"}, HEADSTART_ADMIN_KEY="a").admin_key == "a"


def test_a_key_without_effect_is_noticed_once_whoever_set_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def find(path: tuple[str, ...]) -> Key | None:
        key = find_key(path)
        is_it = path == ("memory_optimization", "swap_threshold_mb")
        return replace(key, no_effect="another one") if key and is_it else key

    monkeypatch.setattr("adapters.settings_notices.find_key", find)
    settings = load(
        "memory_optimization:\n  swap_threshold_mb: 1\n",
        HEADSTART_MEMORY_OPTIMIZATION__SWAP_THRESHOLD_MB="2",
    )
    assert settings.document.memory_optimization.swap_threshold_mb == 2
    (notice,) = settings.notices
    assert notice == "memory_optimization.swap_threshold_mb has no effect yet: another one"


def test_variables_that_are_not_known_are_noticed() -> None:
    settings = load(
        HEADSTART_GATEWY_PORT="1",
        HEADSTART_MODELS__A__PRELOAD="true",
        HEADSTART_XYZZY="1",
        OTHER="1",
    )
    assert settings.notices == (
        "HEADSTART_GATEWY_PORT is not known: did you mean HEADSTART_GATEWAY_PORT?",
        "HEADSTART_MODELS__A__PRELOAD is not known: models and resources are set in the file",
        "HEADSTART_XYZZY is not known: it has no effect",
    )
    many = load(**{f"HEADSTART_{number}": "1" for number in range(100)})
    assert len(many.notices) == MAX_NOTICES


def preloaded(text: str, names: str) -> list[str]:
    profiles = load(text, LOCALAI_PRELOAD_MODELS=names).controller_config().profiles
    return sorted(name for name, profile in profiles.items() if profile.preload)


def test_models_to_preload() -> None:
    text = "models:\n  a: {preload: true}\n  b: {preload: false}\n  c: {}\n"
    assert preloaded(text, "") == ["a"]
    assert preloaded(text, "true") == ["a"]
    assert preloaded(text, "False") == []
    assert preloaded(text, "b, c/d, b") == ["b", "c/d"]
    settings = load(text, LOCALAI_PRELOAD_MODELS="b")
    assert settings.source.origins["models", "b", "preload"] == "LOCALAI_PRELOAD_MODELS"
    assert settings.notices == ()
    assert load("models:\n", LOCALAI_PRELOAD_MODELS="true").notices == (
        "LOCALAI_PRELOAD_MODELS = true loads what LocalAI's own files mark: no model here has "
        "preload: true",
    )


def test_models_to_preload_beside_wrong_models() -> None:
    assert refused("models: 3", LOCALAI_PRELOAD_MODELS="a").startswith("headstart.yaml:1: models")
    assert refused("models: {a: 3}", LOCALAI_PRELOAD_MODELS="a").startswith(
        "headstart.yaml:1: models.a = 3: must be a mapping"
    )
