"""The accounts of one node: what is possible, and what is refused."""

from __future__ import annotations

import pytest

from contracts.world import Residency
from simulator.cluster import Cluster, ModelSpec


def spec(name: str, footprint_bytes: int = 10, load_s: float = 4.0, parallel: int = 2) -> ModelSpec:
    return ModelSpec(name=name, footprint_bytes=footprint_bytes, load_s=load_s, parallel=parallel)


def node(capacity_bytes: int | None = 25, load_slots: int | None = None) -> Cluster[str]:
    return Cluster(
        [spec("a"), spec("b"), spec("c")], capacity_bytes=capacity_bytes, load_slots=load_slots
    )


def hot(cluster: Cluster[str], model: str, at_s: float) -> None:
    cluster.begin_load(model)
    cluster.end_load(model, at_s)


@pytest.mark.parametrize(
    ("footprint_bytes", "load_s", "parallel"), [(-1, 1.0, 1), (1, -1.0, 1), (1, 1.0, 0)]
)
def test_a_model_that_makes_no_sense_is_refused(footprint_bytes, load_s, parallel):
    with pytest.raises(ValueError, match="must not be negative"):
        spec("x", footprint_bytes, load_s, parallel)


def test_a_load_holds_its_memory_from_its_start():
    cluster = node()
    assert cluster.free_bytes == 25
    assert cluster.is_cold("a")
    cluster.begin_load("a")
    assert cluster.residency("a") is Residency.LOADING
    assert not cluster.is_cold("a")
    assert (cluster.used_bytes, cluster.free_bytes) == (10, 15)
    assert cluster.loading() == ("a",)
    assert cluster.resident() == ()
    cluster.end_load("a", 4.0)
    assert cluster.residency("a") is Residency.HOT
    assert cluster.used_bytes == 10
    assert cluster.loading() == ()
    assert cluster.resident() == ("a",)
    assert cluster.last_used_s("a") == 4.0


def test_a_load_that_was_given_up_frees_its_memory():
    cluster = node()
    cluster.begin_load("a")
    cluster.abort_load("a")
    assert cluster.residency("a") is Residency.COLD
    assert cluster.used_bytes == 0
    assert cluster.last_used_s("a") is None


def test_what_does_not_fit_is_not_loaded():
    cluster = node()
    cluster.begin_load("a")
    cluster.begin_load("b")
    assert not cluster.fits("c")
    with pytest.raises(ValueError, match="does not fit: 5 bytes are free"):
        cluster.begin_load("c")


def test_memory_of_others_leaves_less_and_never_less_than_nothing():
    cluster = node()
    cluster.set_others_bytes(20)
    assert cluster.others_bytes == 20
    assert cluster.free_bytes == 5
    assert not cluster.fits("a")
    cluster.set_others_bytes(100)
    assert cluster.free_bytes == 0
    with pytest.raises(ValueError, match="must not be negative"):
        cluster.set_others_bytes(-1)


def test_without_a_capacity_there_is_always_room():
    cluster = node(capacity_bytes=None)
    cluster.set_others_bytes(10**12)
    assert cluster.free_bytes is None
    assert cluster.fits("a")
    with pytest.raises(ValueError, match="must not be negative"):
        Cluster([], capacity_bytes=-1)


def test_only_so_many_loads_run_at_once():
    cluster = node(load_slots=1)
    before = cluster.load_slot_free
    cluster.begin_load("a")
    assert (before, cluster.load_slot_free) == (True, False)
    with pytest.raises(ValueError, match="1 loads run already"):
        cluster.begin_load("b")
    cluster.end_load("a", 1.0)
    cluster.begin_load("b")


def test_a_step_out_of_order_is_refused():
    cluster = node()
    with pytest.raises(ValueError, match="is cold, not loading"):
        cluster.end_load("a", 1.0)
    with pytest.raises(ValueError, match="is cold, not hot"):
        cluster.kill("a")
    with pytest.raises(ValueError, match="not idle"):
        cluster.unload("a")
    cluster.begin_load("a")
    with pytest.raises(ValueError, match="is loading, not cold"):
        cluster.begin_load("a")
    with pytest.raises(KeyError):
        cluster.residency("nobody")


def test_requests_wait_in_their_order_until_the_model_is_hot():
    cluster = node()
    for number, request in enumerate(("r1", "r2", "r3")):
        cluster.arrive("a", request, float(number))
    assert cluster.start_ready("a") == ()
    assert cluster.waiting("a") == 3
    hot(cluster, "a", 5.0)
    assert cluster.start_ready("a") == ("r1", "r2")  # parallel is 2
    assert cluster.start_ready("a") == ()
    assert (cluster.in_flight("a"), cluster.waiting("a")) == (2, 1)
    assert cluster.requests("a") == ("r1", "r2", "r3")
    cluster.end_request("a", "r2", 6.0)
    assert cluster.last_used_s("a") == 6.0
    assert cluster.start_ready("a") == ("r3",)
    assert cluster.requests("a") == ("r1", "r3")


def test_a_request_that_waits_can_leave():
    cluster = node()
    cluster.arrive("a", "r1", 0.0)
    cluster.withdraw("a", "r1")
    assert cluster.waiting("a") == 0
    with pytest.raises(ValueError, match="r1"):
        cluster.withdraw("a", "r1")


def test_a_busy_model_is_neither_idle_nor_unloaded():
    cluster = node()
    hot(cluster, "a", 1.0)
    assert cluster.is_idle("a")
    cluster.arrive("a", "r1", 2.0)
    assert not cluster.is_idle("a")  # it waits
    cluster.start_ready("a")
    assert not cluster.is_idle("a")  # it runs
    with pytest.raises(ValueError, match="not idle"):
        cluster.unload("a")
    cluster.end_request("a", "r1", 3.0)
    cluster.unload("a")
    assert cluster.residency("a") is Residency.COLD
    assert cluster.used_bytes == 0


def test_idle_models_come_least_recently_used_first():
    cluster = node(capacity_bytes=None)
    hot(cluster, "a", 1.0)
    hot(cluster, "b", 2.0)
    hot(cluster, "c", 3.0)
    assert cluster.idle() == ("a", "b", "c")
    cluster.arrive("a", "r1", 4.0)
    assert cluster.idle() == ("b", "c")
    cluster.start_ready("a")
    cluster.end_request("a", "r1", 5.0)
    assert cluster.idle() == ("b", "c", "a")


def test_a_process_that_dies_breaks_its_requests_off():
    cluster = node()
    hot(cluster, "a", 1.0)
    for request in ("r1", "r2", "r3"):
        cluster.arrive("a", request, 2.0)
    cluster.start_ready("a")
    assert cluster.kill("a") == ("r1", "r2", "r3")
    assert cluster.residency("a") is Residency.COLD
    assert cluster.requests("a") == ()
    assert cluster.used_bytes == 0


def test_models_come_and_go():
    cluster = node()
    assert "d" not in cluster
    cluster.add(spec("d", footprint_bytes=7))
    assert "d" in cluster
    assert len(cluster) == 4
    cluster.add(spec("d", footprint_bytes=9))  # cold: its cost may change
    assert cluster.spec("d").footprint_bytes == 9
    hot(cluster, "d", 1.0)
    with pytest.raises(ValueError, match="is hot, not cold"):
        cluster.add(spec("d", footprint_bytes=1))
    with pytest.raises(ValueError, match="is hot, not cold"):
        cluster.remove("d")
    cluster.unload("d")
    cluster.arrive("d", "r1", 2.0)
    with pytest.raises(ValueError, match="requests wait"):
        cluster.remove("d")
    cluster.withdraw("d", "r1")
    cluster.remove("d")
    assert "d" not in cluster
