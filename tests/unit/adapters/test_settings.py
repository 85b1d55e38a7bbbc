"""``load_settings``: which file, what each process is told, and nothing secret in what is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.settings import Settings, load_settings
from adapters.settings_files import find_files
from adapters.settings_types import MIB
from contracts.config import (
    BalancingConfig,
    ControlConfig,
    ControllerConfig,
    GatewayConfig,
    ModelProfile,
    NodeConfig,
    PredictorConfig,
    TimeoutConfig,
    WorkersConfig,
)
from contracts.errors import Invalid
from contracts.events import PriorityClass
from contracts.ids import ModelId, NodeId

HOME = {"HOME": "/home/op"}


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(text: str, name: str = "headstart.yaml") -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def loaded(text: str) -> Settings:
    write(text)
    return load_settings(HOME)


def test_without_anything_the_contracts_own_defaults_hold() -> None:
    settings = load_settings(HOME)
    node = NodeConfig(node=NodeId("localai"), url="http://127.0.0.1:8081")
    gateway = settings.gateway_config()
    assert gateway == GatewayConfig(nodes=(node,), control_url="http://127.0.0.1:8090")
    assert settings.control_config() == ControlConfig()
    assert settings.controller_config() == ControllerConfig(nodes=(node,))
    assert settings.predictor_config() == PredictorConfig()
    assert not settings.active_by_default
    assert settings.redis_url is None
    assert settings.admin_key is None
    assert settings.data_dir == Path("/home/op/.local/share/headstart")
    assert settings.time_scale == 1.0
    assert settings.file is None
    assert settings.log_level == "info"
    assert settings.log_json is None
    assert settings.notices == ()


def test_what_the_gateway_is_told() -> None:
    write("""
gateway:
  host: localhost
  port: 9000
  keys: [one, two]
  max_body_mb: 16
  spool_mb: 2
  keepalive_comments: no
  keepalive_seconds: 7
  expose_topology: yes
  timeouts:
    connect_seconds: 1
    first_byte_seconds: 2
    between_bytes_seconds: 3
    load_answer_seconds: 4
    min_load_budget_seconds: 5
    shutdown_grace_seconds: 6
localai: {url: "https://localai/inner/", api_key: three, accelerator: cpu}
queue_config: {realtime_capacity: 1, batch_capacity: 2, background_capacity: 3, timeout_seconds: 10}
models:
  a: {slots: 4, timeouts: {first_byte_seconds: 900}}
  b: {}
load_balancing: {strategy: weighted_round_robin, weights: {cpu: 1}, circuit_failures: 0}
""")
    gateway = load_settings(HOME).gateway_config()
    assert gateway == GatewayConfig(
        host="localhost",
        port=9000,
        nodes=(
            NodeConfig(
                node=NodeId("localai"),
                url="https://localai/inner",
                api_key="three",
                accelerator="cpu",
            ),
        ),
        keys=("one", "two"),
        queue=gateway.queue,
        max_body_bytes=16 * MIB,
        spool_bytes=2 * MIB,
        keepalive_comments=False,
        keepalive_s=7.0,
        expose_topology=True,
        connect_timeout_s=1.0,
        first_byte_timeout_s=2.0,
        between_bytes_timeout_s=3.0,
        load_answer_timeout_s=4.0,
        min_load_budget_s=5.0,
        slots={ModelId("a"): 4},
        shutdown_grace_s=6.0,
        control_url="http://127.0.0.1:8090",
        balancing=BalancingConfig(
            strategy="weighted-round-robin",
            weights={**BalancingConfig().weights, "cpu": 1.0},
            circuit_failures=0,
        ),
        timeouts={ModelId("a"): TimeoutConfig(first_byte_s=900.0)},
    )
    assert gateway.nodes[0].api_key == "three"
    assert list(gateway.queue.capacity.values()) == [1, 2, 3]
    assert gateway.queue.timeout_s == {
        PriorityClass.REALTIME: 10.0,
        PriorityClass.BATCH: 40.0,
        PriorityClass.BACKGROUND: 200.0,
    }


@pytest.mark.parametrize("word", ["score", "resource_aware", "resource-aware"])
def test_there_are_several_words_for_one_strategy(word: str) -> None:
    write(f"load_balancing: {{strategy: {word}}}")
    assert load_settings(HOME).gateway_config().balancing.strategy == "resource-aware"


def test_each_class_may_have_a_time_limit_of_its_own() -> None:
    write("queue_config: {batch_timeout_seconds: 7, background_timeout_seconds: 8}")
    assert list(load_settings(HOME).gateway_config().queue.timeout_s.values()) == [30.0, 7.0, 8.0]


def test_what_the_control_api_is_told() -> None:
    write("control: {host: '::1', port: 9001, admin_key: hush, open_reads: false}")
    control = load_settings(HOME).control_config()
    assert control == ControlConfig(host="::1", port=9001, admin_key="hush", open_reads=False)
    assert control.admin_key == "hush"


def test_what_the_controller_is_told() -> None:
    write("""
scheduler:
  mode: active
  policy: idle_timeout
  window_seconds: 30
  parallel_loads: 3
  prefetch_horizon_seconds: 45
  prefetch_margin: 2
  prefetch_waste_target: 0.1
  min_residency_seconds: 0
  idle_timeout_seconds: 60
  default_target_seconds: 3
  tick_seconds: 0.5
  lease_seconds: 20
  load_timeout_seconds: 100
  drain_timeout_seconds: 4
optimization: {prefetch_enabled: false}
memory: {gpu_budget_mb: 24000, reserve_ratio: 0}
""")
    controller = load_settings(HOME).controller_config()
    planner = controller.planner
    assert controller.active_by_default
    assert (controller.lease_s, controller.load_timeout_s) == (20.0, 100.0)
    assert controller.drain_timeout_s == 4.0
    assert (planner.policy, planner.window_s, planner.parallel_loads) == ("idle-timeout", 30.0, 3)
    assert (planner.prefetch, planner.prefetch_horizon_s) == (False, 45.0)
    assert (planner.prefetch_margin, planner.prefetch_waste_target) == (2.0, 0.1)
    assert (planner.min_residency_s, planner.idle_timeout_s) == (0.0, 60.0)
    assert (planner.default_target_s, planner.tick_s) == (3.0, 0.5)
    assert (planner.budget_bytes, planner.reserve_ratio) == (24000 * MIB, 0.0)


def test_resource_aware_means_active_with_the_default_policy() -> None:
    write("scheduler: {mode: resource_aware, policy: lru}")
    settings = load_settings(HOME)
    assert settings.active_by_default
    assert settings.controller_config().planner.policy == "headstart"
    assert settings.notices == (
        "scheduler.policy = lru is not used: mode resource-aware is active with the default "
        "policy; write mode: active",
    )


def test_looking_at_localai_follows_the_monitoring_interval_unless_set() -> None:
    write("resource_monitoring: {interval_seconds: 9}")
    assert load_settings(HOME).controller_config().poll_s == 9.0
    write("resource_monitoring: {interval_seconds: 9}\nscheduler: {poll_seconds: 2}")
    assert load_settings(HOME).controller_config().poll_s == 2.0


def test_the_prefetch_window_bounds_how_far_ahead_a_prefetch_aims() -> None:
    write("optimization: {prefetch_window_minutes: 0.5}")
    settings = load_settings(HOME)
    assert settings.controller_config().planner.prefetch_horizon_s == 30.0
    assert settings.notices == ()
    write("optimization: {prefetch_window_minutes: 15}")
    settings = load_settings(HOME)
    assert settings.controller_config().planner.prefetch_horizon_s == 45.0
    assert settings.notices == (
        "optimization.prefetch_window_minutes is more than a prefetch uses: it aims 45 s ahead "
        "(scheduler.prefetch_horizon_seconds); weights are read ahead for all of it",
    )


def test_several_backends_and_the_primary_one() -> None:
    text = """
localai:
  backends:
  - {name: gpu, url: "http://gpu:8080", api_key: hush}
  - {name: small, url: "http://small:8080", accelerator: cpu%s}
"""
    write(text % "")
    nodes = load_settings(HOME).controller_config().nodes
    assert [(node.node, node.accelerator, node.primary) for node in nodes] == [
        ("gpu", "cuda", True),
        ("small", "cpu", False),
    ]
    assert [node.api_key for node in nodes] == ["hush", None]
    write(text % ", primary: true")
    nodes = load_settings(HOME).controller_config().nodes
    assert [node.primary for node in nodes] == [False, True]


def test_models_as_a_mapping_or_as_a_list() -> None:
    expected = ModelProfile(
        model=ModelId("org/a.b"),
        footprint_bytes=6500 * MIB,
        target_s=0.5,
        priority=PriorityClass.BACKGROUND,
        preload=True,
        preferred_backend="rocm",
        pinned=True,
    )
    entry = (
        "preload: true, pinned: true, scheduling_profile: {memory_footprint_mb: 6500, "
        "priority_class: background, max_acceptable_latency_ms: 500, preferred_backend: ROCm}"
    )
    for text in (f"models: {{org/a.b: {{{entry}}}}}", f"models: [{{name: org/a.b, {entry}}}]"):
        write(text)
        assert load_settings(HOME).controller_config().profiles == {"org/a.b": expected}


@pytest.mark.parametrize(
    ("word", "priority"),
    [
        ("high", PriorityClass.REALTIME),
        ("medium", PriorityClass.BATCH),
        ("Low", PriorityClass.BACKGROUND),
        ("realtime", PriorityClass.REALTIME),
        ("batch", PriorityClass.BATCH),
    ],
)
def test_both_namings_of_the_classes(word: str, priority: PriorityClass) -> None:
    write(f"models: {{a: {{scheduling_profile: {{priority_class: {word}}}}}}}")
    profiles = load_settings(HOME).controller_config().profiles
    assert profiles[ModelId("a")].priority is priority


def test_what_the_predictor_is_told() -> None:
    write("predictor: {publish_seconds: 5, expires_seconds: 50, max_models: 10}")
    expected = PredictorConfig(publish_s=5.0, expires_s=50.0, max_models=10)
    assert load_settings(HOME).predictor_config() == expected


@pytest.mark.parametrize(("form", "as_json"), [("auto", None), ("JSON", True), ("text", False)])
def test_logging(form: str, as_json: bool | None) -> None:
    write(f"logging: {{level: DEBUG, format: {form}}}")
    settings = load_settings(HOME)
    assert settings.log_level == "debug"
    assert settings.log_json is as_json


def test_sections_whose_keys_are_all_commented_out() -> None:
    write("gateway:\n  # port: 1\nlocalai:\n  backends:\nmodels:\n  a:\nresources:\nscheduler:\n")
    settings = load_settings(HOME)
    assert settings.gateway_config().port == 8080
    assert list(settings.controller_config().profiles) == ["a"]
    assert settings.notices == ()


def test_a_file_that_sets_nothing_is_noticed() -> None:
    write("# gateway:\n")
    assert load_settings(HOME).notices == ("headstart.yaml: sets nothing, so all defaults hold",)


def test_the_notices_are_bounded() -> None:
    write("models:\n" + "".join(f"  m{n}: {{backend: x}}\n" for n in range(500)))
    notices = load_settings(HOME).notices
    assert len(notices) == 101
    assert notices[-1] == "… and 400 more"


def test_which_file_is_read(tmp_path: Path) -> None:
    own = tmp_path / "home/.config/headstart/headstart.yaml"
    environ = {"HOME": str(tmp_path / "home")}
    assert find_files(environ).main is None
    write("", str(own))
    assert find_files(environ).main == own
    xdg = write("", str(tmp_path / "xdg/headstart/headstart.yaml"))
    assert find_files(environ | {"XDG_CONFIG_HOME": str(tmp_path / "xdg")}).main == xdg
    write("")
    assert find_files(environ).main == Path("headstart.yaml")
    assert find_files(environ | {"HEADSTART_CONFIG": "x.yaml"}).main == Path("x.yaml")
    assert find_files(environ | {"HEADSTART_CONFIG": "x.yaml"}, Path("y.yaml")).main == Path(
        "y.yaml"
    )


def test_where_the_data_is_kept(tmp_path: Path) -> None:
    config = write("data_dir: state", "etc/headstart.yaml")
    assert load_settings(HOME, config).data_dir == tmp_path / "etc/state"
    environ = HOME | {"HEADSTART_DATA_DIR": "state"}
    assert load_settings(environ, config).data_dir == tmp_path / "state"
    assert load_settings(environ).data_dir == tmp_path / "state"
    config = write("data_dir: ~/state")
    assert load_settings(HOME, config).data_dir == Path("/home/op/state")
    config = write("data_dir: '~'")
    assert load_settings(HOME, config).data_dir == Path("/home/op")
    config = write("data_dir: /srv/x")
    assert load_settings(HOME, config).data_dir == Path("/srv/x")


def test_without_a_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "home", lambda: Path("/nobody"))
    assert load_settings({}).data_dir == Path("/nobody/.local/share/headstart")

    def homeless() -> Path:
        raise RuntimeError

    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(Invalid, match="set HEADSTART_DATA_DIR"):
        load_settings({})
    assert load_settings({"HEADSTART_DATA_DIR": "/srv"}).data_dir == Path("/srv")


def test_keys_are_in_no_repr() -> None:
    write("""
gateway: {keys: [hush-1]}
control: {admin_key: hush-2}
localai: {backends: [{name: a, url: "http://a", api_key: hush-3}]}
redis: {url: "redis://:hush-4@redis"}
""")
    settings = load_settings(HOME)
    parts = (
        settings,
        settings.document,
        settings.gateway_config(),
        settings.control_config(),
        settings.controller_config(),
    )
    assert "hush" not in "".join(map(repr, parts))


def test_settings_do_not_change() -> None:
    write("models: {a: {}}\nresources: {b: {}}")
    settings = load_settings(HOME)
    with pytest.raises(TypeError):
        settings.document.models["b"] = settings.document.models["a"]  # type: ignore[index] # the point
    with pytest.raises(ValueError, match="frozen"):
        settings.document.gateway.port = 1


def test_where_batches_are_served() -> None:
    def control_url(text: str) -> str | None:
        return loaded(text).gateway_config().control_url

    assert control_url("control: {port: 9999}") == "http://127.0.0.1:9999"
    assert control_url("gateway: {control_url: http://control:8090}") == "http://control:8090"
    assert control_url("gateway: {serve_batches: false}") is None


def test_what_the_workers_are_told() -> None:
    assert loaded("{}").workers_config() == WorkersConfig()
    said = loaded(
        "workers: {gateway_key: k, max_processes: 7, webhook_secret: s, "
        "webhooks_to_private: true, files_max_gb: 2}"
    ).workers_config()
    assert said == WorkersConfig(
        gateway_key="k",
        max_processes=7,
        webhook_secret="s",
        webhooks_to_private=True,
        files_max_bytes=2 * 1024**3,
    )
    assert loaded("gateway: {keys: [first, second]}").workers_config().gateway_key == "first"


def test_what_is_kept_ready_and_what_is_warmed(tmp_path):
    file = tmp_path / "headstart.yaml"
    file.write_text(
        "models:\n  a: {standby: true, warm_up: always}\n  b: {warm_up: never}\n  c: {}\n"
    )
    config = load_settings({"HEADSTART_CONFIG": str(file)}).controller_config()
    assert config.planner.standby == {"a"}
    assert [config.profiles[ModelId(name)].warm_up.value for name in "abc"] == [
        "always", "never", "auto",
    ]  # fmt: skip
