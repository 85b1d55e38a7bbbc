"""Each key that operators of LocalAI plan with does what it says: from the text to what is decided.

The files are those of ``data/examples``; ``docs/configuration.md`` lists these tests by key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from adapters.model_profiles import parse_scheduling_profile
from adapters.probes.wiring import options_for
from adapters.settings import Settings, load_settings
from api.gateway.admission import Admission, Ticket, Verdict
from api.gateway.fallback import rung_service_s
from api.gateway.group_shares import GroupShares
from api.gateway.router import WEIGHTED_ROUND_ROBIN, Place, choose
from api.gateway.slots import SlotBook
from contracts.config import ModelProfile, PlannerConfig
from contracts.errors import Invalid
from contracts.events import LoadCause, PriorityClass
from contracts.forecasts import ModelForecast
from contracts.ids import ModelId, NodeId, RequestId
from contracts.modalities import Modality
from contracts.plan import LoadModel, PlannerState, PlanResult, WarmFile
from contracts.readings import ProbeReading
from contracts.reasons import Reason
from contracts.variants import RungKind
from contracts.world import (
    HostMemory,
    LoadTime,
    NodeStatus,
    Residency,
    Tier,
    Warmth,
    WorldSnapshot,
    tier_of,
)
from controller.agenda import Agenda
from controller.catalogue import declared_slas
from controller.footprints import told_footprint
from controller.groups import with_groups
from controller.homes import rehomed
from controller.ladders import all_ladders
from controller.planner import plan
from controller.routes import routing_table
from controller.strains import with_strains
from tests.worlds import MIB, NODE, A, B, C, curve, model, world

EXAMPLES = Path(__file__).parents[3] / "data" / "examples"
HOME = {"HOME": "/home/op"}
GIB = 1024 * MIB
HOT, COLD = Residency.HOT, Residency.COLD
CHAT, UPSCALER = ModelId("chat-large"), ModelId("upscaler")
REALTIME = PriorityClass.REALTIME


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def example(name: str) -> Settings:
    settings = load_settings(HOME, EXAMPLES / name)
    assert [n for n in settings.notices if "no effect" in n] == []
    return settings


def said(text: str, **environ: str) -> Settings:
    Path("headstart.yaml").write_text(text, encoding="utf-8")
    return load_settings(HOME | environ)


def planner(settings: Settings, **fields: object) -> PlannerConfig:
    return replace(settings.controller_config().planner, **fields)  # type: ignore[arg-type]  # the test's own


def decide(w: WorldSnapshot, config: PlannerConfig, *forecasts: ModelForecast) -> PlanResult:
    told = {forecast.model: forecast for forecast in forecasts}
    return plan(world=w, forecasts=told, state=PlannerState(), config=config)


def loads(result: PlanResult) -> list[tuple[ModelId, LoadCause]]:
    return [(a.model, a.cause) for a in result.plan.actions if isinstance(a, LoadModel)]


def warmed(result: PlanResult) -> list[ModelId]:
    return [action.model for action in result.plan.actions if isinstance(action, WarmFile)]


def ticket(number: int, name: ModelId, priority: PriorityClass = REALTIME) -> Ticket:
    return Ticket(
        request_id=RequestId(f"r{number}"), model=name, priority=priority, arrived_at_s=0.0
    )


# scheduler.yaml


def test_scheduler_mode():
    settings = example("scheduler.yaml")
    assert settings.controller_config().active_by_default
    assert planner(settings).policy == "headstart"
    assert not said("scheduler: {mode: observe}").controller_config().active_by_default


def test_scheduler_parallel_loads():
    waiting = [model(name, waiting=1, wanted_since_s=99.0) for name in (A, B, C)]
    settings = example("scheduler.yaml")
    assert len(loads(decide(world(*waiting), planner(settings, reserve_ratio=0.0)))) == 2


def test_monitoring_interval_seconds():
    config = example("scheduler.yaml").controller_config()
    assert (config.poll_s, config.monitoring.interval_s) == (10.0, 10.0)


@pytest.mark.parametrize(
    ("text", "gpu", "cpu"),
    [
        ("gpu_metrics: [utilization]", {"utilization"}, None),
        ("gpu_metrics: [temperature, memory.used]", {"temperature", "memory.used"}, None),
        ("cpu_metrics: [context_switches]", None, {"context_switches"}),
    ],
)
def test_monitoring_metrics(text: str, gpu: set[str] | None, cpu: set[str] | None):
    config = said(f"resource_monitoring: {{{text}}}").controller_config()
    metrics = options_for(config.monitoring, config.nodes, config.nodes[0], {}).metrics
    assert gpu is None or metrics.gpu == gpu
    assert cpu is None or metrics.cpu == cpu


@pytest.mark.parametrize(
    ("priority", "capacity"), list(zip(PriorityClass, (12, 60, 120), strict=True))
)
def test_queue_capacities(priority: PriorityClass, capacity: int):
    gate = Admission(example("scheduler.yaml").gateway_config().queue, SlotBook({}))
    told = Counter(
        gate.arrive(ticket(number, A, priority), ready=False) for number in range(capacity + 5)
    )
    assert told == {Verdict.WAIT: capacity, Verdict.FULL: 5}


def test_queue_timeout_seconds():
    settings = example("scheduler.yaml")
    limits = settings.gateway_config().queue.timeout_s
    assert list(limits.values()) == [20.0, 80.0, 400.0]
    short = said("queue_config: {timeout_seconds: 3}").gateway_config().queue
    assert Admission(short, SlotBook({})).retry_after_s(REALTIME, 0.0) == 3.0


def test_balancing_strategy_and_weights():
    balancing = example("scheduler.yaml").gateway_config().balancing
    assert balancing.strategy == WEIGHTED_ROUND_ROBIN
    places = [
        Place(node=NodeId(kind), accelerator=kind, is_resident=True)
        for kind in ("cuda", "rocm", "cpu")
    ]
    turns, shares = None, Counter[str]()
    for _ in range(100):
        choice = choose(
            places, REALTIME, strategy=balancing.strategy, weights=balancing.weights, turns=turns
        )
        assert choice is not None
        turns = choice.turns
        shares[choice.node] += 1
    assert shares == {"cuda": 50, "rocm": 30, "cpu": 20}


def files(*names: ModelId, gib: int = 1, **cached: int) -> Mapping[ModelId, Warmth]:
    return {
        name: Warmth(
            model=name, weights_bytes=gib * GIB, cached_bytes=cached.get(name, 0) * gib * GIB
        )
        for name in names
    }


def house(*names: ModelId, available_gib: int = 100, gib: int = 1) -> WorldSnapshot:
    memory = HostMemory(total_bytes=128 * GIB, available_bytes=available_gib * GIB)
    return world(
        *(model(name, used_s=float(10 * place)) for place, name in enumerate(names)),
        warmth=files(*names, gib=gib),
        hosts={NODE: memory},
    )


def test_caching_is_switched_on_and_off():
    on = planner(example("scheduler.yaml"), prefetch=False)
    off = planner(said("optimization: {enable_model_caching: false}"), prefetch=False)
    w = house(A)
    assert warmed(decide(w, on)) == [A]
    assert warmed(decide(w, off)) == []


def test_cache_size_gb():
    config = planner(example("scheduler.yaml"), prefetch=False)
    assert warmed(decide(house(A, gib=16), config)) == [A]
    assert warmed(decide(house(A, gib=17), config)) == []
    none = planner(said("optimization: {cache_size_gb: 0}"), prefetch=False)
    assert warmed(decide(house(A), none)) == []


def test_cache_read_mb_per_second():
    warm = planner(example("warm-tier.yaml")).warm
    assert warm is not None
    assert warm.read_bytes_per_s == 300 * MIB


def test_prefetch_enabled():
    told = curve(A, {20.0: 3.0})
    on = planner(example("scheduler.yaml"), reserve_ratio=0.0)
    off = planner(said("optimization: {prefetch_enabled: false}"), reserve_ratio=0.0)
    assert loads(decide(world(model(A)), on, told)) == [(A, LoadCause.PREFETCH)]
    assert loads(decide(world(model(A)), off, told)) == []


def test_prefetch_window_minutes():
    # Due in half a minute: a window of six seconds does not see it.
    told = curve(A, {34.0: 3.0})
    wide = planner(example("scheduler.yaml"), reserve_ratio=0.0)
    narrow = planner(said("optimization: {prefetch_window_minutes: 0.1}"), reserve_ratio=0.0)
    assert loads(decide(world(model(A)), wide, told)) == [(A, LoadCause.PREFETCH)]
    assert loads(decide(world(model(A)), narrow, told)) == []
    # For weights that are read ahead it reaches as far as it says.
    later = curve(A, {1300.0: 3.0})
    never_used = replace(house(A), models={A: model(A)})
    assert warmed(decide(never_used, replace(wide, prefetch=False), later)) == [A]
    assert warmed(decide(never_used, replace(narrow, prefetch=False), later)) == []


# thresholds.yaml


def strained(settings: Settings, **figures: float) -> list[Reason]:
    config, w = planner(settings), world(model(A))
    for at_s in (100.0, 120.0, 140.0):
        reading = replace(ProbeReading(at_s=at_s), **figures)  # type: ignore[arg-type]  # ratios
        node = replace(w.nodes[NODE], reading=reading)
        w = with_strains(replace(w, taken_at_s=at_s, nodes={NODE: node}), config)
    return [strain.reason for strain in w.nodes[NODE].strains]


def test_gpu_utilization_threshold():
    settings = example("thresholds.yaml")
    assert strained(settings, gpu_utilization_ratio=0.91) == [Reason.GPU_BUSY]
    assert strained(settings, gpu_utilization_ratio=0.89) == []
    assert strained(said("control: {}"), gpu_utilization_ratio=0.89) == [Reason.GPU_BUSY]


def test_cpu_utilization_threshold():
    settings = example("thresholds.yaml")
    assert strained(settings, cpu_utilization_ratio=0.81) == [Reason.CPU_BUSY]
    assert strained(settings, cpu_utilization_ratio=0.79) == []


def test_vram_usage_threshold():
    def full(settings: Settings, used: int) -> list[Reason]:
        reading = ProbeReading(at_s=100.0, gpu_memory_total_bytes=100, gpu_memory_used_bytes=used)
        w = world(model(A))
        w = replace(w, nodes={NODE: replace(w.nodes[NODE], reading=reading)})
        return [strain.reason for strain in with_strains(w, planner(settings)).nodes[NODE].strains]

    assert full(example("thresholds.yaml"), 96) == [Reason.VRAM_FULL]
    assert full(example("thresholds.yaml"), 93) == []
    assert full(said("control: {}"), 93) == [Reason.VRAM_FULL]


def slow(settings: Settings, ended_s: float, *times_s: float) -> list[Reason]:
    recent = tuple(
        LoadTime(model=A, node=NODE, ended_at_s=ended_s, load_s=time_s, expected_s=10.0)
        for time_s in times_s
    )
    w = with_strains(world(model(A), recent_loads=recent), planner(settings))
    return [strain.reason for strain in w.nodes[NODE].strains]


def test_model_load_latency_window():
    assert slow(example("thresholds.yaml"), 50.0, 50.0) == [Reason.LOADS_SLOW]
    assert slow(example("thresholds.yaml"), 30.0, 50.0) == []
    assert slow(said("control: {}"), 50.0, 50.0) == []  # 30 s


def test_inference_latency_percentile():
    one_slow = (10.0,) * 11 + (50.0,)
    assert slow(example("thresholds.yaml"), 99.0, *one_slow) == []
    assert slow(said("control: {}"), 99.0, *one_slow) == [Reason.LOADS_SLOW]  # the 95th


def test_model_caching_strategy():
    by_use = planner(example("thresholds.yaml"), prefetch=False)
    by_forecast = planner(said("control: {}"), prefetch=False)
    told = curve(A, {60.0: 5.0}), curve(B, {60.0: 0.1})
    assert warmed(decide(house(A, B), by_use, *told)) == [B]
    assert warmed(decide(house(A, B), by_forecast, *told)) == [A]
    nobody = planner(said("memory_optimization: {model_caching_strategy: none}"), prefetch=False)
    assert warmed(decide(house(A, B), nobody, *told)) == []


def test_swap_threshold_mb():
    config = planner(example("thresholds.yaml"), prefetch=False)
    assert warmed(decide(house(B, A, available_gib=3), config)) == [A]
    assert warmed(decide(house(B, A, available_gib=2), config)) == []
    # All of it is in the tier that the API shows.
    assert tier_of(model(A), files(A, a=1)[A]) is Tier.WARM


PROFILES = {A: ModelProfile(model=A, weights=("chat-Q8_0.gguf",), gpu_layers=40)}


def rungs(text: str) -> list[RungKind]:
    config = said(text).controller_config()
    ladders = all_ladders(
        config.ladders, config.ladder_options, PROFILES, [A], ["chat-Q4_K_M.gguf"]
    )
    return [rung.kind for rung in ladders[A].rungs] if A in ladders else []


def test_partial_loading():
    assert rungs("memory_optimization: {partial_loading: true}") == [RungKind.PARTIAL]
    assert rungs("memory_optimization: {partial_loading: false}") == []


def test_memory_compression():
    assert rungs("memory_optimization: {memory_compression: quantization}") == [RungKind.QUANTISED]
    assert rungs("memory_optimization: {memory_compression: none}") == []


# groups.yaml


def grouped(settings: Settings, w: WorldSnapshot, **kinds: Modality) -> WorldSnapshot:
    profiles = {ModelId(n): ModelProfile(model=ModelId(n), modality=k) for n, k in kinds.items()}
    return with_groups(w, profiles, planner(settings).groups)


def test_group_memory_limit():
    settings = example("groups.yaml")
    w = world(
        model(A, waiting=1, wanted_since_s=99.0, mb=6 * 1024), model(B, HOT, mb=6 * 1024), mb=99_999
    )
    w = grouped(settings, w, a=Modality.IMAGE, b=Modality.IMAGE)
    result = decide(w, planner(settings, reserve_ratio=0.0))
    (unload, load) = result.plan.actions
    assert (unload.model, load.model) == (B, A)  # type: ignore[union-attr]  # an unload and a load
    alone = grouped(settings, w, a=Modality.CHAT, b=Modality.IMAGE)
    assert len(decide(alone, planner(settings, reserve_ratio=0.0)).plan.actions) == 1


def test_group_gpu_limit():
    settings = example("groups.yaml")
    # Half of a GPU of 16 GB: two image models of 5 GB have no room together.
    w = world(model(A, waiting=1, wanted_since_s=99.0, mb=5000), model(B, HOT, mb=5000), mb=16_000)
    w = grouped(settings, w, a=Modality.IMAGE, b=Modality.IMAGE)
    assert len(decide(w, planner(settings, reserve_ratio=0.0)).plan.actions) == 2
    on_cpu = grouped(settings, world(model(A)), a=Modality.TRANSCRIPTION)
    assert on_cpu.models[A].on_host


def test_group_cpu_limit():
    settings = example("groups.yaml")
    config = settings.gateway_config()
    w = grouped(settings, world(model(A)), a=Modality.TRANSCRIPTION)
    table = routing_table(
        w,
        token=1,
        config=planner(settings),
        profiles={A: ModelProfile(model=A, threads=1)},
        draining={},
        aliases={},
    )
    gate = Admission(config.queue, SlotBook({}), GroupShares(config.groups))
    gate.tell(table.models.values())
    told = [gate.arrive(ticket(number, A), ready=True) for number in range(3)]
    assert told == [Verdict.GO, Verdict.GO, Verdict.WAIT]


def test_group_concurrency_and_models():
    config = example("groups.yaml").gateway_config()
    gate = Admission(config.queue, SlotBook({}), GroupShares(config.groups))
    agents = [ModelId(f"agent-{name}") for name in "abc"]
    told = [gate.arrive(ticket(n, name), ready=True) for n, name in enumerate(agents)]
    assert told == [Verdict.GO, Verdict.GO, Verdict.WAIT]
    assert gate.arrive(ticket(9, A), ready=True) is Verdict.GO


def test_group_queue():
    settings = example("groups.yaml")
    config = settings.gateway_config()
    shares = GroupShares(config.groups)
    shares.tell({A: "image_generation"}, {})
    gate = Admission(config.queue, SlotBook({}), shares)
    told = [
        gate.arrive(ticket(number, A, PriorityClass.BATCH), ready=False) for number in range(11)
    ]
    assert told == [Verdict.WAIT] * 10 + [Verdict.FULL]


def test_group_precedence():
    settings = example("groups.yaml")
    w = world(
        model(A, waiting=1, wanted_since_s=99.0),
        model(B, HOT, used_s=98.0),
        model(C, HOT, used_s=1.0, mb=20),
    )
    w = grouped(settings, w, a=Modality.CHAT, b=Modality.IMAGE, c=Modality.CHAT)
    config = planner(settings, reserve_ratio=0.0, policy="lru")
    assert decide(w, config).plan.actions[0].model == B  # type: ignore[union-attr]  # an unload
    plain = replace(config, groups={})
    assert decide(w, plain).plan.actions[0].model == C  # type: ignore[union-attr]  # an unload


# model-with-profile.yaml


def profile() -> ModelProfile:
    return parse_scheduling_profile((EXAMPLES / "model-with-profile.yaml").read_bytes())


def test_profile_memory_footprint_mb():
    footprint = told_footprint(None, profile())
    assert footprint is not None
    assert footprint[0] == 11_500 * MIB


def test_profile_gpu_acceleration_factor():
    text = f"models: {{{CHAT}: {{scheduling_profile: {{gpu_acceleration_factor: 9}}}}}}"
    ladder = said(text).controller_config().ladders[CHAT]
    taken = [
        rung_service_s(RungKind.CPU, measured_s=None, own_s=2.0, cpu_factor=factor)
        for factor in (ladder.cpu_factor, 4.0)
    ]
    assert taken == [18.0, 8.0]


def test_profile_priority_class_and_latency():
    own = profile()
    assert declared_slas({CHAT: own})[CHAT].target_s == 0.8
    batch = replace(own, priority=PriorityClass.BATCH, target_s=None)
    table = routing_table(
        world(model(CHAT)),
        token=1,
        config=PlannerConfig(),
        profiles={CHAT: batch},
        draining={},
        aliases={},
    )
    assert table.classes == {CHAT: PriorityClass.BATCH}


def test_profile_preferred_backend():
    w = world(model(CHAT, used_s=1.0))
    rocm = replace(w.nodes[NODE], accelerator="rocm", lists=(CHAT,))
    cuda = NodeStatus(node=NodeId("cuda"), alive=True, accelerator="cuda", lists=(CHAT,))
    w = replace(w, nodes={NODE: rocm, NodeId("cuda"): cuda})
    assert rehomed(w, PlannerConfig(), {CHAT: profile()})[0].models[CHAT].node == "cuda"
    assert rehomed(w, PlannerConfig(), {})[0].models[CHAT].node == NODE


# models-preload.yaml and environment.txt


def preloaded(settings: Settings, profiles: Mapping[ModelId, ModelProfile]) -> set[ModelId]:
    w = world(*(model(name) for name in profiles), mb=900)
    config = settings.controller_config()
    prepared = Agenda().prepared(w, profiles, config)
    causes = loads(decide(prepared, replace(config.planner, parallel_loads=9)))
    return {name for name, _ in causes}


def test_preload():
    settings = example("models-preload.yaml")
    assert preloaded(settings, settings.controller_config().profiles) == {CHAT, UPSCALER}
    assert settings.notices == (
        "models.upscaler: LocalAI's own keys are not read here: backend, parameters",
    )


def test_pinned():
    config = example("models-preload.yaml").controller_config()
    assert [name for name, own in config.profiles.items() if own.pinned] == [CHAT]


def environment() -> dict[str, str]:
    lines = (EXAMPLES / "environment.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("true", {CHAT}),
        ("false", set()),
        ("chat-large,upscaler", {CHAT, UPSCALER}),
        ("upscaler", {UPSCALER}),
    ],
)
def test_environment_preload_models(value: str, expected: set[ModelId]):
    settings = said("control: {}", LOCALAI_PRELOAD_MODELS=value)
    files_say = {CHAT: profile(), UPSCALER: ModelProfile(model=UPSCALER)}
    assert preloaded(settings, files_say) == expected


def test_environment_model_cache_size():
    settings = said("optimization: {cache_size_gb: 1}", **environment())
    warm = planner(settings).warm
    assert warm is not None
    assert warm.budget_bytes == 24 * GIB  # over the file
    own = environment() | {"HEADSTART_OPTIMIZATION__CACHE_SIZE_GB": "5"}
    ours = planner(said("control: {}", **own)).warm
    assert ours is not None
    assert ours.budget_bytes == 5 * GIB


def test_environment_parallel_load():
    settings = said("scheduler: {parallel_loads: 1}", **environment())
    waiting = [model(name, waiting=1, wanted_since_s=99.0, mb=1) for name in (A, B, C)]
    assert len(loads(decide(world(*waiting), planner(settings)))) == 3


# schedules.yaml and warm-tier.yaml


def test_schedules():
    rules = planner(example("schedules.yaml")).schedules
    assert [(rule.models, rule.keep_s, rule.until, rule.yields) for rule in rules] == [
        (("chat-large",), None, "18:00", False),
        (("report-*",), 5400.0, None, False),
        ((), 10_800.0, None, True),
    ]
    monday_8_berlin_s = 1_777_874_400.0
    w = world(model(CHAT), now_s=monday_8_berlin_s)
    config = example("schedules.yaml").controller_config()
    prepared = Agenda().prepared(w, {}, config)
    assert loads(decide(prepared, config.planner)) == [(CHAT, LoadCause.SCHEDULE)]


def test_models_path():
    (node,) = example("warm-tier.yaml").controller_config().nodes
    assert node.models_path == "/models"


def test_every_example_loads_and_is_right():
    for path in sorted(EXAMPLES.glob("*.yaml")):
        if path.name != "model-with-profile.yaml":
            example(path.name)


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ('{cron: "0 8 * *", models: [a], keep_minutes: 3}', 'schedules[0].cron = "0 8 * *": must'),
        ('{cron: "0 25 * * *", models: [a], keep_minutes: 3}', "schedules[0].cron = "),
        (
            '{cron: "0 8 * * *", timezone: Mars/X, models: [a], keep_minutes: 3}',
            'schedules[0].timezone = "Mars/X": must be a zone',
        ),
        ('{cron: "0 8 * * *", models: [a], until: "24:00"}', "schedules[0].until = "),
        ('{cron: "0 8 * * *", models: [a], until: 9:00, keep_minutes: 3}', "needs either"),
        ('{cron: "0 8 * * *", models: [a]}', "needs either keep_minutes or until"),
        ('{cron: "0 8 * * *", keep_minutes: 3}', "schedules[0]: names no models"),
    ],
)
def test_schedules_that_cannot_be_kept_are_refused_with_their_line(entry: str, says: str):
    with pytest.raises(Invalid) as error:
        said(f"schedules:\n  - {entry}\n")
    assert ":2: schedules[0]" in str(error.value)
    assert says in str(error.value)
