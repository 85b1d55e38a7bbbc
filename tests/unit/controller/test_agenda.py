"""What is declared ahead of time gets into the world: groups, schedules, models to preload."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contracts.config import ControllerConfig, ModelProfile, PlannerConfig, WarmUpSchedule
from contracts.groups import GroupConfig
from contracts.ids import ModelId
from contracts.world import Residency, ScheduledUse
from controller.agenda import Agenda
from tests.worlds import A, B, C, model, world

NOON_S = 1_777_982_400.0  # 2026-05-05 12:00 UTC
RULE = WarmUpSchedule(cron="30 12 * * *", models=("a",), keep_s=600.0)
QUIET = WarmUpSchedule(cron="0 12 * * *", models=(), keep_s=600.0, yields=True)


def config(preload: bool | tuple[ModelId, ...] = True, **fields: object) -> ControllerConfig:
    planner = replace(PlannerConfig(), **fields)  # type: ignore[arg-type]  # the test's own
    return ControllerConfig(planner=planner, preload=preload)


def marked(*names: ModelId):
    return {name: ModelProfile(model=name, preload=True) for name in names}


def test_a_world_of_which_nothing_is_declared_stays_as_it_is():
    w = world(model(A))
    assert Agenda().prepared(w, {}, config()) is w


def test_groups_come_and_go_with_the_configuration():
    agenda, group = Agenda(), {"all": GroupConfig(name="all", models=("*",))}
    w = agenda.prepared(world(model(A)), {}, config(groups=group))
    assert w.models[A].group == "all"
    profiles: dict[ModelId, ModelProfile] = {}
    plain = config()
    after = agenda.prepared(w, profiles, plain)
    assert after.models[A].group == ""
    assert agenda.prepared(after, profiles, plain) is after


def test_a_model_that_its_file_puts_on_the_cpu_is_there_while_it_says_so():
    agenda = Agenda()
    w = agenda.prepared(world(model(A)), {A: ModelProfile(model=A, on_host=True)}, config())
    assert w.models[A].on_host
    assert not agenda.prepared(w, {A: ModelProfile(model=A)}, config()).models[A].on_host


def test_schedules_are_looked_up_anew_when_a_window_begins_or_the_clock_was_set():
    agenda, own = Agenda(), config(schedules=(RULE, QUIET))
    w = agenda.prepared(world(model(A), model(B), now_s=NOON_S), {}, own)
    use = ScheduledUse(starts_at_s=NOON_S + 1800.0, ends_at_s=NOON_S + 2400.0)
    assert w.scheduled == {A: use}
    assert w.quiet_until_s == NOON_S + 600.0
    w = agenda.prepared(replace(w, taken_at_s=NOON_S + 1800.0), {}, own)
    assert (w.scheduled, w.quiet_until_s) == ({A: use}, None)
    w = agenda.prepared(replace(w, taken_at_s=NOON_S + 2400.0), {}, own)
    assert w.scheduled[A].starts_at_s == NOON_S + 1800.0 + 86_400.0
    back = agenda.prepared(replace(w, taken_at_s=NOON_S), {}, own)
    assert back.scheduled == {A: use}


def test_schedules_that_are_taken_out_hold_no_more():
    agenda = Agenda()
    w = agenda.prepared(world(model(A), now_s=NOON_S), {}, config(schedules=(RULE, QUIET)))
    w = agenda.prepared(w, {}, config())
    assert (w.scheduled, w.quiet_until_s) == ({}, None)


@pytest.mark.parametrize(
    ("allowed", "expected"),
    [(True, {A}), (False, set()), ((B, C), {B}), ((), set())],
    ids=["all that is marked", "none", "these", "an empty list"],
)
def test_which_marked_models_are_loaded_at_start(allowed, expected):
    w = Agenda().prepared(world(model(A), model(B)), marked(A), config(allowed))
    assert w.preloads == expected


def test_a_model_is_asked_for_once_when_it_is_known_and_not_where_it_is_there():
    agenda = Agenda()
    assert agenda.prepared(world(model(B)), marked(A), config()).preloads == set()
    w = agenda.prepared(world(model(A)), marked(A), config())
    assert w.preloads == {A}
    loaded_and_evicted = replace(w, preloads=frozenset())
    assert agenda.prepared(loaded_and_evicted, marked(A), config()).preloads == set()
    there = world(model(A, Residency.HOT))
    assert Agenda().prepared(there, marked(A), config()).preloads == set()
