"""The product's own fold, predictor and planner against the rules, on traffic with a rhythm."""

from __future__ import annotations

import pytest

from contracts.config import PlannerConfig, PredictorConfig
from contracts.errors import Invalid
from contracts.ids import ModelId
from predictor.engine import PredictorEngine
from simulator.comparison import compare, known_policies, summed_up
from simulator.product import ProductDriver
from simulator.rules import RULES
from simulator.simulation import Simulation
from simulator.workloads import Arrival, Workload, WorkloadModel

pytestmark = pytest.mark.simulation

CAPACITY_MB = 20_000
MINUTE_S = 60.0


def cron_jobs(*, hours=2.0):
    """Five jobs of 8 GB where two fit, each every five minutes, a minute apart: LRU's worst."""
    names = [ModelId(f"job{number}") for number in range(5)]
    models = {
        name: WorkloadModel(model=name, size_mb=8_000, load_s=10.0, parallel=4, slo_s=2.0)
        for name in names
    }
    arrivals = sorted(
        Arrival(5 * MINUTE_S * turn + MINUTE_S * number, name, 2.0)
        for turn in range(int(12 * hours))
        for number, name in enumerate(names)
    )
    return Workload(name="cron", models=models, arrivals=tuple(arrivals))


def play(policy, workload, *, engine):
    config = PlannerConfig(policy=policy, reserve_ratio=0.0)
    simulation = Simulation(workload, CAPACITY_MB, ProductDriver(policy, engine, config))
    simulation.run()
    return simulation


@pytest.fixture(scope="module")
def jobs():
    return cron_jobs()


@pytest.fixture(scope="module")
def headstart(jobs):
    return compare("headstart", jobs, CAPACITY_MB)


def test_a_rhythm_is_learned_and_met_before_it_comes(jobs, headstart):
    lru = compare("lru", jobs, CAPACITY_MB)
    assert lru.cold == 1.0
    assert headstart.cold < 0.5
    assert headstart.slo > 0.5
    assert headstart.mean_wait_s < lru.mean_wait_s / 2


def test_loading_ahead_is_not_paid_for_with_more_loads(jobs, headstart):
    assert headstart.prefetches > headstart.n / 2
    assert headstart.loads <= 1.2 * compare("lru", jobs, CAPACITY_MB).loads
    assert headstart.wasted_prefetches <= 0.1 * headstart.prefetches


def test_it_does_the_same_twice(jobs, headstart):
    assert compare("headstart", jobs, CAPACITY_MB) == headstart


def test_what_was_before_helps_from_the_first_request_on(jobs, headstart):
    from simulator.history import history_events

    day = cron_jobs(hours=4.0)
    before = [a for a in day.arrivals if a.at_s < 7200.0]
    later = Workload(name="later", models=day.models, arrivals=tuple(day.arrivals[len(before) :]))
    past = history_events((a.at_s, a.model, a.service_s, "trace") for a in before)
    warmed = compare("headstart", later, CAPACITY_MB, history=past)
    assert warmed.n == headstart.n
    assert warmed.cold < headstart.cold


def mixed():
    """Sizes that differ, several at a time, some in bursts."""
    sizes = {"a": 3_000, "b": 7_000, "c": 9_000, "d": 12_000, "e": 5_000}
    models = {
        ModelId(name): WorkloadModel(
            model=ModelId(name), size_mb=mb, load_s=1 + mb / 1000, parallel=1, slo_s=2.0
        )
        for name, mb in sizes.items()
    }
    arrivals = [
        Arrival(float(7 * turn + 13 * number % 40), ModelId(name), 1.0 + number)
        for turn in range(60)
        for number, name in enumerate(sizes)
        if (turn * (number + 2)) % 5 < 2
    ]
    return Workload(name="mixed", models=models, arrivals=tuple(sorted(arrivals)))


def test_without_a_predictor_it_is_lru():
    alone = play("headstart", mixed(), engine=None)
    lru = play("lru", mixed(), engine=None)
    assert [o.wait_s for o in alone.outcomes] == [o.wait_s for o in lru.outcomes]
    assert alone.tally == lru.tally
    assert alone.tally.unloads > 10
    assert alone.tally.prefetches == 0


def test_a_predictor_that_knows_nothing_yet_changes_no_eviction_rule_of_looking_back():
    engine = PredictorEngine(PredictorConfig())
    assert play("lru", mixed(), engine=engine).tally == play("lru", mixed(), engine=None).tally


@pytest.mark.parametrize("policy", ["lru", "gdsf", "idle-timeout", "localai-lru"])
def test_where_loads_come_one_at_a_time_the_products_rules_are_the_rules(policy):
    # with equal sizes nothing is evicted in vain and nothing is given back
    jobs = cron_jobs(hours=1.0)
    theirs = Simulation(
        jobs,
        CAPACITY_MB,
        RULES[policy](jobs, CAPACITY_MB),
        check_memory=policy != "localai-lru",
    )
    theirs.run()
    ours = play(policy, jobs, engine=None)
    assert summed_up(policy, ours) == summed_up(policy, theirs)


def test_one_that_goes_may_let_two_start_at_once():
    a, b, c = (ModelId(name) for name in "abc")
    models = {
        name: WorkloadModel(model=name, size_mb=mb, load_s=10.0, parallel=1, slo_s=2.0)
        for name, mb in ((a, 20_000), (b, 10_000), (c, 10_000))
    }
    arrivals = (Arrival(0.0, a, 30.0), Arrival(11.25, b, 1.0), Arrival(12.25, c, 1.0))
    played = play("lru", Workload(name="two", models=models, arrivals=arrivals), engine=None)
    assert [outcome.wait_s for outcome in played.outcomes] == [10.0, 38.75, 37.75]


def test_every_known_policy_plays():
    jobs = cron_jobs(hours=0.5)
    for name in known_policies():
        row = compare(name, jobs, CAPACITY_MB)
        assert (row.policy, row.n) == (name, len(jobs.arrivals))


def test_an_unknown_policy_is_refused(jobs):
    with pytest.raises(Invalid, match="unknown policy 'lfu'; known are localai-lru, lru"):
        compare("lfu", jobs, CAPACITY_MB)


def test_a_reserve_is_memory_that_is_not_there():
    jobs = cron_jobs(hours=0.5)
    halved = compare("headstart", jobs, 2 * CAPACITY_MB, reserve_ratio=0.5)
    assert halved == compare("headstart", jobs, CAPACITY_MB)
    assert compare("lru", jobs, CAPACITY_MB, reserve_ratio=0.5) == compare("lru", jobs, CAPACITY_MB)
