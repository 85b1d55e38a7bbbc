"""What a chaos run draws: the same from the same seed, every kind, and within its window."""

from __future__ import annotations

import pytest

from tests.chaos.faults import (
    LINKS,
    NODES,
    OF_LINKS,
    OF_MODELS,
    OF_PROCESSES,
    ROLES,
    Fault,
    Kind,
    Schedule,
    draw,
    draw_paced,
    from_json,
    part_of,
    targets_of,
    to_json,
)


def test_a_seed_draws_the_same_faults_again_and_another_one_others():
    assert draw(7, count=200) == draw(7, count=200)
    assert draw(7, count=200).faults != draw(8, count=200).faults
    assert draw_paced(7) == draw_paced(7)


def test_a_thousand_faults_hold_every_kind_and_every_process():
    faults = draw(1, count=1000).faults
    assert [fault.number for fault in faults] == list(range(1, 1001))
    assert {fault.kind for fault in faults} == set(Kind)
    assert {f.target for f in faults if f.kind is Kind.KILL} == set(ROLES)
    assert {f.target for f in faults if f.kind is Kind.STOP} == set(ROLES)
    assert [f.start_s for f in faults] == sorted(f.start_s for f in faults)


@pytest.mark.parametrize("kind", list(Kind))
def test_a_fault_hits_what_its_kind_can_hit(kind: Kind):
    for fault in draw(3, count=1000).faults:
        if fault.kind is kind:
            assert fault.target in targets_of(kind)
            assert bool(fault.model) == (kind in OF_MODELS)


def test_targets_are_processes_links_redis_or_nodes():
    assert targets_of(Kind.KILL) == ROLES
    assert targets_of(Kind.LAG) == LINKS
    assert targets_of(Kind.DISK_FULL) == ("redis",)
    assert targets_of(Kind.GHOST) == NODES


def test_in_a_window_everything_begins_and_ends():
    schedule = draw(5, window_s=60.0)
    assert 20 < len(schedule.faults) < 60
    assert all(0.0 <= fault.start_s < 60.0 for fault in schedule.faults)
    assert all(fault.end_s <= 60.0 for fault in schedule.faults)
    assert len(draw(5, count=3, window_s=60.0).faults) == 3


def test_without_a_bound_nothing_is_drawn():
    with pytest.raises(ValueError, match="a count or a window"):
        draw(5)


def test_paced_has_every_kind_three_times_and_processes_by_part():
    faults = draw_paced(1).faults
    by_label: dict[str, int] = {}
    for fault in faults:
        by_label[fault.label] = by_label.get(fault.label, 0) + 1
    parts = {part_of(role) for role in ROLES}
    assert set(by_label) == {
        *(f"{kind} {part}" for kind in OF_PROCESSES for part in parts),
        *(str(kind) for kind in Kind if kind not in OF_PROCESSES),
    }
    assert set(by_label.values()) == {3}
    assert [fault.number for fault in faults] == list(range(1, len(faults) + 1))
    assert len(draw_paced(1, count=5).faults) == 5
    assert len(draw_paced(1, each=1).faults) == len(by_label)


def test_a_schedule_is_written_and_read_again():
    for schedule in (draw(9, count=50), draw_paced(9, count=5)):
        assert from_json(to_json(schedule)) == schedule


@pytest.mark.parametrize("text", ["{}", "[]", "no", '{"faults": [{"kind": "rain"}], "seed": 1}'])
def test_a_file_that_is_no_schedule_is_refused(text: str):
    with pytest.raises(ValueError):  # noqa: PT011 - whichever of them says it
        from_json(text)


def test_a_fault_says_what_it_is():
    fault = Fault(
        number=3, kind=Kind.LOAD_FAILS, target="localai-1", start_s=1.0, length_s=2.0,
        model="chat-a",
    )  # fmt: skip
    assert str(fault) == "#3 load-fails localai-1 chat-a for 2.0 s"
    assert fault.end_s == 3.0
    killed = Fault(number=1, kind=Kind.KILL, target="workers-batch", start_s=0.0)
    assert killed.label == "kill workers"
    assert str(killed) == "#1 kill workers-batch for 0.0 s"


@pytest.mark.parametrize(
    ("target", "part"),
    [
        ("gateway-2", "gateway"),
        ("workers-batch", "workers"),
        ("clients:gateway-1", "clients:gateway"),
        ("workers-batch:redis", "workers:redis"),
    ],
)
def test_parts_are_told_by_what_they_are(target: str, part: str):
    assert part_of(target) == part


def test_links_of_all_kinds_are_drawn():
    drawn = {f.target for f in draw(2, count=3000).faults if f.kind in OF_LINKS}
    assert drawn == set(LINKS)


def test_schedules_are_values():
    assert Schedule(seed=1, faults=()) == Schedule(seed=1, faults=())
