"""What people are told when ``headstart.yaml`` is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.settings import Settings, load_settings
from adapters.settings_problems import MAX_PROBLEMS
from contracts.errors import Invalid

HOME = {"HOME": "/home/op"}


@pytest.fixture(name="folder")
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def load(text: str, environ: dict[str, str] | None = None) -> Settings:
    Path("headstart.yaml").write_text(text, encoding="utf-8")
    return load_settings(HOME | (environ or {}))


def refused(text: str, environ: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(Invalid) as caught:
        load(text, environ)
    return str(caught.value).splitlines()


def test_the_line_says_file_line_key_value_and_what_is_allowed(folder: Path) -> None:
    text = "# capacity\n\nqueue_config:\n  realtime_capacity: ten\n"
    assert refused(text) == [
        'headstart.yaml:4: queue_config.realtime_capacity = "ten": '
        "must be a whole number from 1 to 10000"
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("gateway: {port: 0}", "gateway.port = 0: must be a whole number from 1 to 65535"),
        ("gateway: {port: true}", "gateway.port = true: must be a whole number from 1 to 65535"),
        ("gateway: {port: 80.5}", "gateway.port = 80.5: must be a whole number from 1 to 65535"),
        ("gateway: {port: null}", "gateway.port = null: must be a whole number from 1 to 65535"),
        ("gateway: {host: 'a b'}", 'gateway.host = "a b": must be a host name or address'),
        (
            "gateway: {timeouts: {connect_seconds: 0}}",
            "gateway.timeouts.connect_seconds = 0: must be a number above 0, at most 86400",
        ),
        (
            "scheduler: {idle_timeout_seconds: 5m}",
            'scheduler.idle_timeout_seconds = "5m": must be a number above 0, at most 31622400',
        ),
        (
            "scheduler: {idle_timeout_seconds: -1}",
            "scheduler.idle_timeout_seconds = -1: must be a number above 0, at most 31622400",
        ),
        (
            "scheduler: {mode: shadow}",
            'scheduler.mode = "shadow": must be one of observe, active, resource-aware',
        ),
        (
            "scheduler: {mode: [active]}",
            'scheduler.mode = ["active"]: must be one of observe, active, resource-aware',
        ),
        (
            "memory: {reserve_ratio: 1}",
            "memory.reserve_ratio = 1: must be a number from 0, below 1",
        ),
        (
            "memory: {reserve_ratio: .nan}",
            "memory.reserve_ratio = NaN: must be a number from 0, below 1",
        ),
        (
            "optimization: {prefetch_enabled: maybe}",
            'optimization.prefetch_enabled = "maybe": must be true or false',
        ),
        (
            "resource_monitoring: {gpu_metrics: [utilization, humidity]}",
            'resource_monitoring.gpu_metrics[1] = "humidity": must be a list of utilization, '
            "memory.used, memory.free, memory.total, temperature, power",
        ),
        (
            "resource_monitoring: {gpu_metrics: utilization}",
            'resource_monitoring.gpu_metrics = "utilization": must be a list of utilization, '
            "memory.used, memory.free, memory.total, temperature, power",
        ),
        (
            "memory: 24",
            "memory = 24: must be a mapping with the keys gpu_budget_mb, host_budget_mb, "
            "reserve_ratio",
        ),
        ("models: 3", "models = 3: must be a mapping of model names, or a list of entries with"),
        ("models: {'': {}}", 'models[""]: a name must be text of 1 to 4096 printable char'),
        (
            "resources: {text: {memory_limit: lots}}",
            'resources.text.memory_limit = "lots": must be memory such as "8Gi"',
        ),
        (
            "resources: {text: {cpu_limit: true}}",
            'resources.text.cpu_limit = true: must be cores such as "2"',
        ),
        ("data_dir: ' '", 'data_dir = " ": must be a path'),
        (
            "load_balancing: {weights: {cuda: 0, rocm: 0, vulkan: 0, sycl: 0, metal: 0, cpu: 0}}",
            "load_balancing.weights: at least one must be above 0",
        ),
        (
            "predictor: {publish_seconds: 60}",
            "predictor.expires_seconds = 60: must be above predictor.publish_seconds, which is 60",
        ),
        ("control: {port: 8080}", "control.port = 8080: is the gateway's port; they must differ"),
        ("gateway: {port: 8090}", "control.port = 8090: is the gateway's port; they must differ"),
        (
            "gateway: {port: 8081}",
            'localai.url = "http://127.0.0.1:8081": is the gateway\'s own address; one of the two',
        ),
    ],
)
def test_values_that_are_refused(folder: Path, text: str, line: str) -> None:
    (said,) = refused(text)
    assert said.startswith("headstart.yaml:1: " + line)


@pytest.mark.parametrize(
    "url",
    [
        "localai:8080",
        "ftp://a",
        "http://",
        "http://a:0",
        "http://a:x",
        "http://u:p@a",
        "http://a?b",
        "http://a#b",
    ],
)
def test_addresses_that_are_refused(folder: Path, url: str) -> None:
    (said,) = refused(f"localai: {{url: '{url}'}}")
    assert said.startswith("headstart.yaml:1: localai.url = ")
    assert 'must be an address such as "http://localai:8080", without user' in said


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("gateway: {prot: 1}", "gateway.prot: unknown key, did you mean gateway.port?"),
        ("gatway: {}", "gatway: unknown key, did you mean gateway?"),
        ("load-balancing: {}", "load-balancing: unknown key, did you mean load_balancing?"),
        (
            "realtime-capacity: 1",
            "realtime-capacity: unknown key, did you mean queue_config.realtime_capacity?",
        ),
        (
            "memory: {humidity: 1}",
            "memory.humidity: unknown key; known here: gpu_budget_mb, host_budget_mb, "
            "reserve_ratio",
        ),
        ("scheduler: {humidity: 1}", "scheduler.humidity: unknown key; known here: mode, policy"),
        (
            "models: {a.b: {prelod: true}}",
            'models["a.b"].prelod: unknown key, did you mean models["a.b"].preload?',
        ),
        (
            "localai: {backends: [{name: a, url: 'http://a', prmary: true}]}",
            "localai.backends[0].prmary: unknown key, did you mean localai.backends[0].primary?",
        ),
    ],
)
def test_unknown_keys_get_the_nearest_known_name(folder: Path, text: str, line: str) -> None:
    (said,) = refused(text)
    assert said.startswith("headstart.yaml:1: " + line)


def test_a_long_section_does_not_list_all_its_keys(folder: Path) -> None:
    assert refused("scheduler: {humidity: 1}")[0].endswith(", …")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "localai:\n  url: http://a\n  backends: [{name: a, url: 'http://b'}]",
            "headstart.yaml:3: localai.backends: takes the place of localai.url; write one",
        ),
        (
            "localai:\n  backends:\n  - {name: a}\n",
            "headstart.yaml:3: localai.backends[0]: has no url, which must be an address such as",
        ),
        (
            "localai:\n  backends:\n  - {name: a, url: 'http://a'}\n  - {name: a, url: 'http://b'}",
            'headstart.yaml:4: localai.backends[1].name = "a": stands twice',
        ),
        (
            "localai:\n  backends:\n  - {name: a, url: 'http://a', primary: true}\n"
            "  - {name: b, url: 'http://b', primary: true}",
            "headstart.yaml:4: localai.backends[1].primary = true: only one backend can be primary",
        ),
        (
            "localai:\n  backends:\n  - {name: a, url: 'http://localhost:8080'}",
            'headstart.yaml:3: localai.backends[0].url = "http://localhost:8080": is the gateway',
        ),
        ("models:\n- preload: true\n", "headstart.yaml:2: models[0]: must be a mapping with a na"),
        ("models:\n- 3\n", "headstart.yaml:2: models[0]: must be a mapping with a name"),
        ("models:\n- name: a\n- name: a\n", 'headstart.yaml:3: models[1].name = "a": stands twice'),
        ("models:\n  a:\n    name: b\n", 'headstart.yaml:3: models.a.name = "b": must be "a"'),
        (
            "models:\n- name: a\n- name: b\n  preload: 7\n",
            "headstart.yaml:4: models.b.preload = 7: must be true or false",
        ),
    ],
)
def test_lists_are_checked_entry_by_entry(folder: Path, text: str, line: str) -> None:
    (said,) = refused(text)
    assert said.startswith(line)


def test_all_errors_come_together_in_the_order_of_the_file(folder: Path) -> None:
    text = "memory: {reserve_ratio: 2}\nmemory: {}\ngateway: {prot: 1}\ncontrol: {port: x}\n"
    environ = {"HEADSTART_QUEUE_CONFIG__TIMEOUT_SECONDS": "soon", "HEADSTART_TIME_SCALE": "30"}
    said = refused(text, environ)
    assert [line.split(" ")[0].rstrip(":") for line in said] == [
        "HEADSTART_TIME_SCALE",
        "HEADSTART_QUEUE_CONFIG__TIMEOUT_SECONDS",
        "headstart.yaml:1",
        "headstart.yaml:2",
        "headstart.yaml:3",
        "headstart.yaml:4",
    ]


def test_a_broken_file_is_reported_beside_a_broken_environment(folder: Path) -> None:
    assert refused("a: [", {"HEADSTART_GATEWAY_PORT": "x"})[0].startswith("HEADSTART_GATEWAY_PORT")
    assert len(refused("a: [", {"HEADSTART_GATEWAY_PORT": "x"})) == 2


def test_no_more_than_twenty_lines(folder: Path) -> None:
    said = refused("".join(f"key{number}: 1\n" for number in range(500)))
    assert len(said) == MAX_PROBLEMS + 1
    assert said[-1] == f"… and {500 - MAX_PROBLEMS} more"


@pytest.mark.parametrize(
    "text",
    [
        "control: {admin_key: 12345678}",
        "control: {admin_key: 'hush hush'}",
        "control: {admin_key: [hush]}",
        "control: hush",
        "gateway: {keys: hush}",
        "gateway: {keys: [{hush: 1}]}",
        "gateway: {keys: ['']}",
        "redis: 'redis://u:hush@h'",
        "redis: {url: 'http://u:hush@h'}",
        "redis: {url: 'redis://u:hush@h:x'}",
        "redis: {url: 'redis://u:hush@:6379'}",
        "localai: {api_key: {hush: 1}}",
        "localai: hush",
        "localai: {backends: hush}",
        "localai: {backends: [hush]}",
        "localai: {backends: [{name: a, url: 'http://a', api_key: 'hush hush'}]}",
    ],
)
def test_keys_never_show_in_errors(folder: Path, text: str) -> None:
    (said,) = refused(text)
    assert "hush" not in said
    assert "12345678" not in said
    assert " = ***: must be " in said


def test_a_file_that_is_named_must_be_there(folder: Path) -> None:
    with pytest.raises(Invalid, match=r"^other\.yaml: there is no such file$"):
        load_settings(HOME | {"HEADSTART_CONFIG": "other.yaml"})
    with pytest.raises(Invalid, match=r"^third\.yaml: there is no such file$"):
        load_settings(HOME, Path("third.yaml"))
