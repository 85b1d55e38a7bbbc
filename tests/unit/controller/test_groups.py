"""Groups by kind of work in the plan. Memory is 30 MB, a model takes 10 MB unless it says else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contracts.config import ModelProfile
from contracts.groups import GroupConfig, group_of
from contracts.ids import ModelId, NodeId
from contracts.memory import HOST, PlaceId, PlaceKind, PlaceStatus
from contracts.modalities import Modality
from contracts.plan import LoadModel, Outcome, PlannerState
from contracts.reasons import Reason
from contracts.world import NodeStatus, Residency
from controller.groups import (
    limit_bytes,
    precedence,
    said_to_be_on_host,
    with_groups,
)
from controller.homes import rehomed
from controller.planner import plan
from controller.routes import load_answer, routing_table
from tests.worlds import MIB, NODE, A, B, C, D, config, curve, model, world

COLD, HOT = Residency.COLD, Residency.HOT
TEXT = GroupConfig(name="text_generation", precedence=0)
IMAGE = GroupConfig(name="image_generation", precedence=2)


def groups(*named: GroupConfig):
    return {group.name: group for group in named}


def decide(w, *forecasts, policy="lru", **fields):
    return plan(
        world=w,
        forecasts={forecast.model: forecast for forecast in forecasts},
        state=PlannerState(),
        config=config(policy, **fields),
    )


def orders(result):
    return [
        ("load", action.model, action.after)
        if isinstance(action, LoadModel)
        else ("unload", action.model)
        for action in result.plan.actions
    ]


def held(result):
    return {d.subject: d.reason for d in result.plan.decisions if d.outcome is Outcome.HOLD}


def text(name, residency=HOT, **fields):
    return model(name, residency, group=TEXT.name, **fields)


def image(name, residency=HOT, **fields):
    return model(name, residency, group=IMAGE.name, **fields)


def waits(status, since_s=99.0):
    return replace(status, waiting=1, wanted_since_s=since_s)


class TestMemoryLimit:
    def test_a_group_makes_its_room_in_itself_although_there_is_room(self):
        limited = groups(replace(IMAGE, memory_bytes=15 * MIB))
        result = decide(
            world(waits(image(A, COLD)), image(B, used_s=90.0), text(C, used_s=1.0), mb=90),
            groups=limited,
        )
        assert orders(result) == [("unload", B), ("load", A, (B,))]

    def test_a_group_that_has_room_takes_it_from_whom_the_policy_says(self):
        limited = groups(replace(IMAGE, memory_bytes=25 * MIB, precedence=1), TEXT)
        result = decide(
            world(waits(image(A, COLD)), image(B, used_s=90.0), model(C, HOT), model(D, HOT)),
            groups=limited,
        )
        assert orders(result) == [("unload", C), ("load", A, (C,))]

    def test_a_group_at_its_limit_that_cannot_give_waits_and_holds_up_nobody(self):
        limited = groups(replace(IMAGE, memory_bytes=15 * MIB), TEXT)
        busy = image(B, in_flight=1)
        result = decide(
            world(waits(image(A, COLD)), busy, waits(text(C, COLD), 99.5), mb=90), groups=limited
        )
        assert orders(result) == [("load", C, ())]
        assert held(result)[A] is Reason.NO_ROOM

    def test_a_model_that_is_larger_than_its_group_is_refused(self):
        limited = groups(replace(IMAGE, memory_bytes=15 * MIB))
        w = world(waits(image(A, COLD, mb=20)), image(B), mb=90)
        result = decide(w, groups=limited)
        assert orders(result) == []
        assert held(result) == {A: Reason.GROUP_LIMIT}
        answer = load_answer(w, result.state, A)
        assert (answer.accepted, answer.reason) == (False, Reason.GROUP_LIMIT)
        assert "larger than what its group may take" in answer.message

    def test_a_group_over_its_limit_gives_first(self):
        limited = groups(replace(IMAGE, memory_bytes=5 * MIB, precedence=0), TEXT)
        result = decide(
            world(waits(text(A, COLD)), text(B, used_s=1.0), image(C, used_s=98.0), model(D, HOT)),
            groups=limited,
        )
        assert orders(result) == [("unload", C), ("load", A, (C,))]

    def test_a_prefetch_stays_within_its_group_too(self):
        limited = groups(replace(IMAGE, memory_bytes=15 * MIB))
        w = world(image(A, COLD), image(B, used_s=1.0), text(C, used_s=1.0), mb=90)
        told = curve(A, {20.0: 3.0}), curve(B, {3600.0: 0.1}), curve(C, {3600.0: 0.01})
        result = decide(w, *told, policy="headstart", groups=limited, just_in_time=False)
        assert orders(result) == [("unload", B), ("load", A, (B,))]

    def test_a_prefetch_takes_nothing_from_groups_that_go_before_its_own(self):
        w = world(image(A, COLD, mb=25), text(C, used_s=1.0))
        told = curve(A, {20.0: 3.0}), curve(C, {3600.0: 0.01})
        fields = {"policy": "headstart", "just_in_time": False}
        assert orders(decide(w, *told, **fields)) == [("unload", C), ("load", A, (C,))]
        assert orders(decide(w, *told, groups=groups(TEXT, IMAGE), **fields)) == []


class TestGpuLimit:
    def test_a_share_of_the_gpus_bounds_what_is_filled_of_them(self):
        node = NodeStatus(node=NODE)
        assert limit_bytes(replace(IMAGE, gpus=0.5), node, 30) == 15
        assert limit_bytes(replace(IMAGE, gpus=1.0), node, 30) is None
        assert limit_bytes(replace(IMAGE, gpus=0.5, memory_bytes=10), node, 30) == 10
        assert limit_bytes(replace(IMAGE, gpus=0.5), node, None) is None
        cards = tuple(
            PlaceStatus(place=PlaceId(name), kind=PlaceKind.GPU) for name in ("GPU-1", "GPU-2")
        )
        host = PlaceStatus(place=HOST, kind=PlaceKind.HOST)
        two = replace(node, places=(*cards, host))
        assert limit_bytes(replace(IMAGE, gpus=1.0), two, 30) == 15
        assert limit_bytes(replace(IMAGE, gpus=0.0), two, 30) is None

    def test_half_of_a_gpu_holds_one_of_two_models(self):
        half = groups(replace(IMAGE, gpus=0.5))
        result = decide(world(waits(image(A, COLD)), image(B), text(C)), groups=half)
        assert orders(result) == [("unload", B), ("load", A, (B,))]

    def test_without_a_gpu_nothing_on_a_gpu_goes_for_it(self):
        audio = GroupConfig(name="audio_processing", gpus=0.0)
        w = world(waits(model(A, COLD)), model(B, HOT), model(C, HOT), model(D, HOT))
        node = replace(w.nodes[NODE], accelerator="cuda")
        w = replace(w, nodes={NODE: node})
        assert orders(decide(w)) == [("unload", B), ("load", A, (B,))]
        profiles = {A: ModelProfile(model=A, modality=Modality.TRANSCRIPTION)}
        grouped = with_groups(w, profiles, groups(audio))
        assert grouped.models[A].on_host
        assert orders(decide(grouped, groups=groups(audio))) == [("load", A, ())]

    def test_without_a_gpu_a_node_of_cpus_is_its_home(self):
        cpu = NodeId("cpu")
        w = world(model(A, COLD, on_host=True, used_s=1.0))
        here = replace(w.nodes[NODE], accelerator="cuda", lists=(A,))
        there = NodeStatus(node=cpu, alive=True, accelerator="cpu", lists=(A,))
        w = replace(w, nodes={NODE: here, cpu: there})
        moved, _ = rehomed(w, config(), {})
        assert moved.models[A].node == cpu
        stays, _ = rehomed(
            replace(w, models={A: replace(w.models[A], on_host=False)}), config(), {}
        )
        assert stays.models[A].node == NODE


class TestTextBeforeImage:
    def test_idle_image_models_go_for_text_although_text_was_used_longer_ago(self):
        w = world(waits(text(A, COLD)), text(B, used_s=1.0), image(C, used_s=98.0), model(D, HOT))
        assert orders(decide(w, groups=groups(TEXT, IMAGE)))[0] == ("unload", C)
        assert orders(decide(w))[0] == ("unload", D)

    def test_text_goes_for_an_image_only_where_nothing_else_can(self):
        w = world(waits(image(A, COLD)), text(B, used_s=1.0), image(C, used_s=98.0), text(D))
        assert orders(decide(w, groups=groups(TEXT, IMAGE)))[0] == ("unload", C)
        w = world(waits(image(A, COLD)), text(B), text(C, used_s=98.0), text(D))
        assert orders(decide(w, groups=groups(TEXT, IMAGE)))[0] == ("unload", B)

    def test_the_load_of_text_is_first_unless_an_image_has_waited_much_longer(self):
        both = waits(image(A, COLD), 85.0), waits(text(B, COLD), 99.0)
        fields = {"parallel_loads": 1, "groups": groups(TEXT, IMAGE)}
        assert orders(decide(world(*both), **fields)) == [("load", B, ())]
        both = waits(image(A, COLD), 70.0), waits(text(B, COLD), 99.0)
        assert orders(decide(world(*both), **fields)) == [("load", A, ())]

    def test_of_what_is_more_than_needed_the_group_that_goes_first_still_goes(self):
        w = world(
            waits(text(A, COLD, mb=35)),
            image(B, used_s=98.0),
            text(C, used_s=98.0),
            text(D, mb=20, used_s=98.0),
            mb=50,
        )
        told = curve(B, {20.0: 3.0}), curve(C, {20.0: 0.1}), curve(D, {20.0: 0.5})
        fields = {"policy": "headstart", "guard": False}
        plain = orders(decide(w, *told, **fields))
        assert plain == [("unload", C), ("unload", D), ("load", A, (C, D))]
        grouped = orders(decide(w, *told, groups=groups(TEXT, IMAGE), **fields))
        assert {one[1] for one in grouped if one[0] == "unload"} == {B, D}


class TestMembership:
    @pytest.mark.parametrize(
        ("name", "modality", "expected"),
        [
            ("chat-a", None, "chats"),
            ("chat-image", None, "images"),
            ("sd", Modality.IMAGE, "image_generation"),
            ("sd", None, ""),
            ("whisper", Modality.TRANSCRIPTION, ""),
        ],
    )
    def test_by_name_then_by_pattern_then_by_kind_of_work(self, name, modality, expected):
        known = groups(
            GroupConfig(name="chats", models=("chat-*",)),
            GroupConfig(name="images", models=("chat-image",)),
            IMAGE,
        )
        assert group_of(ModelId(name), modality, known) == expected
        assert group_of(ModelId(name), modality, {}) == ""

    def test_models_are_put_into_their_groups_and_out_again(self):
        profiles = {A: ModelProfile(model=A, modality=Modality.IMAGE)}
        w = with_groups(world(model(A), model(B)), profiles, groups(IMAGE))
        assert (w.models[A].group, w.models[B].group) == (IMAGE.name, "")
        assert with_groups(w, profiles, groups(IMAGE)) is w
        assert with_groups(w, profiles, {}).models[A].group == ""

    def test_a_model_is_on_the_host_while_its_file_or_its_group_says_so(self):
        cpu = groups(GroupConfig(name="cpu", models=("a",), gpus=0.0))
        w = world(model(A), model(B), model(C, on_host=True))
        profiles = {B: ModelProfile(model=B, on_host=True)}
        told = said_to_be_on_host(w, profiles, cpu)
        assert told == {A, B}
        w = with_groups(w, profiles, cpu)
        assert [w.models[name].on_host for name in (A, B, C)] == [True, True, True]
        # Nobody says so any more: what was measured of C stands.
        w = with_groups(w, {}, {}, before=told)
        assert [w.models[name].on_host for name in (A, B, C)] == [False, False, True]

    def test_models_of_no_group_stand_in_the_middle(self):
        named = groups(TEXT, IMAGE)
        assert [precedence(s, named) for s in (text(A), model(B), image(C))] == [0, 1, 2]


class TestRoutes:
    def table(self, w, *profiles):
        return routing_table(
            w,
            token=1,
            config=config(),
            profiles={profile.model: profile for profile in profiles},
            draining={},
            aliases={},
        )

    def test_gateways_are_told_the_group_and_the_cores_of_what_runs_on_cpus(self):
        w = world(text(A), model(B, on_host=True), model(C, on_host=True))
        table = self.table(w, ModelProfile(model=B, threads=4), ModelProfile(model=A, threads=8))
        assert table.models[A].group == TEXT.name
        assert [table.models[name].cores for name in (A, B, C)] == [None, 4.0, 1.0]

    def test_on_a_node_of_cpus_everything_takes_cores(self):
        w = world(text(A))
        w = replace(w, nodes={NODE: replace(w.nodes[NODE], accelerator="cpu")})
        assert self.table(w, ModelProfile(model=A, threads=8)).models[A].cores == 8.0
