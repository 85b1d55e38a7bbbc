"""Made-up traffic: the same hours give the same requests, however they are asked for."""

from __future__ import annotations

from itertools import islice, pairwise
from typing import Any

import pytest

from contracts.errors import Invalid
from contracts.events import PriorityClass
from contracts.ids import ModelId
from simulator import recipe as module
from simulator.recipe import parse_recipe

HOUR = 3600.0
STEP = {"model": "m", "service_s": 2}


def recipe(*callers: dict[str, Any], seed: int = 7):
    return parse_recipe({"seed": seed, "callers": list(callers)})


def people(**changes: Any) -> dict[str, Any]:
    return {"name": "people", "per_hour": 30, "rounds": 2, "steps": [STEP]} | changes


def job(**changes: Any) -> dict[str, Any]:
    return {"name": "job", "every_s": 600, "offset_s": 40, "steps": [STEP]} | changes


def test_a_job_keeps_to_the_wall_clock():
    times = [r.at_s for r in recipe(job()).requests(10 * HOUR, 11 * HOUR)]
    assert times == [10 * HOUR + 40 + 600 * n for n in range(6)]


def test_a_job_is_late_by_its_jitter_and_never_early():
    for request in recipe(job(jitter_s=5)).requests(0.0, 24 * HOUR):
        assert 0.0 <= (request.at_s - 40) % 600 <= 5.0


def test_a_job_goes_through_its_items_one_after_the_other():
    requests = list(recipe(job(every_s=3600, rounds=4)).requests(5 * HOUR, 6 * HOUR))
    assert len(requests) == 4
    for before, after in pairwise(requests):
        assert after.at_s == pytest.approx(before.at_s + before.service_s, abs=0.001)


def test_people_come_about_as_often_as_said_for_one_to_three_turns():
    count = len(list(recipe(people()).requests(0.0, 100 * HOUR)))
    assert 100 * 30 * 2 * 0.85 < count < 100 * 30 * 2 * 1.15


def test_a_chain_asks_its_models_in_turn():
    steps = [
        {"model": "ear", "service_s": 1, "after_s": 5},
        {"model": "head", "service_s": 1},
        {"model": "mouth", "service_s": 1},
    ]
    requests = recipe(job(steps=steps, rounds=2)).requests(0.0, 600.0)
    assert [r.model for r in requests] == ["ear", "head", "mouth"] * 2


def test_outside_its_hours_a_caller_rests():
    hours = {int(r.at_s // HOUR) for r in recipe(job(hours=[8, 10])).requests(0.0, 48 * HOUR)}
    assert hours == {8, 9, 32, 33}


def test_nobody_comes_at_no_rate():
    assert list(recipe(people(per_hour=0)).requests(0.0, 10 * HOUR)) == []


def test_pieces_give_the_same_as_the_whole_in_order():
    both = recipe(people(), job(jitter_s=9))
    whole = list(both.requests(0.0, 6 * HOUR))
    pieces = [*both.requests(0.0, 2.5 * HOUR), *both.requests(2.5 * HOUR, 6 * HOUR)]
    assert pieces == whole == sorted(whole)


def test_another_seed_gives_other_people_at_other_times():
    one = list(recipe(people()).requests(0.0, HOUR))
    assert one != list(recipe(people(), seed=8).requests(0.0, HOUR))


def test_without_an_end_it_goes_on():
    requests = list(islice(recipe(job()).requests(0.0), 1000))
    assert requests[-1].at_s > 100 * HOUR


def test_the_class_and_the_caller_are_told():
    (request, *_) = recipe(job(**{"class": "background"})).requests(0.0, HOUR)
    assert (request.priority, request.client) == (PriorityClass.BACKGROUND, "job")
    assert request.model == ModelId("m")


def test_an_hour_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "MAX_REQUESTS_PER_HOUR", 10)
    assert len(list(recipe(job(every_s=1)).requests(HOUR, 2 * HOUR))) == 10


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({}, "`callers`"),
        ({"seed": "x", "callers": [job()]}, "`seed`"),
        ({"callers": ["x"]}, "a `name`"),
        ({"callers": [{"name": "n"}]}, "'n'"),
        ({"callers": [job(every_s="often")]}, "'job'"),
        ({"callers": [job(every_s=0)]}, "must be above 0"),
        ({"callers": [job(hours=[1])]}, "'job'"),
        ({"callers": [job(**{"class": "vip"})]}, "'job'"),
    ],
)
def test_what_is_wrong_is_named(document: dict[str, Any], said: str):
    with pytest.raises(Invalid, match=said):
        parse_recipe(document)
