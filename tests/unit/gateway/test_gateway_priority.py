from __future__ import annotations

import doctest

import pytest

import api.gateway.priority as priority
from api.gateway.priority import efficiency, model_standing_s, score, standing_s, user_share
from contracts.config import PriorityWeights, QueueConfig
from contracts.events import PriorityClass

WEIGHTS = PriorityWeights()


def test_the_worked_examples_are_true():
    assert doctest.testmod(priority).failed == 0


def test_the_order_by_standing_is_the_order_by_score_at_any_time():
    requests = [
        (PriorityClass.BACKGROUND, 0.0, 0),
        (PriorityClass.BATCH, 20.0, 3),
        (PriorityClass.REALTIME, 30.0, 4),
        (PriorityClass.REALTIME, 61.0, 0),
    ]
    stands = sorted(
        range(len(requests)),
        key=lambda n: standing_s(
            WEIGHTS, requests[n][0], arrived_at_s=requests[n][1], others=requests[n][2]
        ),
    )
    for now_s in (61.0, 100.0, 10_000.0):
        scores = sorted(
            range(len(requests)),
            key=lambda n: (
                -score(
                    WEIGHTS,
                    requests[n][0],
                    waited_s=now_s - requests[n][1],
                    others=requests[n][2],
                    latency_s=1.0,
                    model_efficiency=1.0,
                )
            ),
        )
        assert scores == stands


def test_the_whole_spread_of_head_starts_lets_ageing_keep_its_promise():
    """What a background request lacks at most, and how long a realtime one can have waited."""
    config = QueueConfig()
    most = WEIGHTS.user + WEIGHTS.service_level + WEIGHTS.efficiency
    most += WEIGHTS.latency / priority.MIN_LATENCY_S
    realtime_s = config.timeout_s[PriorityClass.REALTIME]
    assert most / WEIGHTS.ageing <= config.longest_wait_s - realtime_s


def test_a_client_with_much_here_counts_for_less_and_a_key_may_weigh_less():
    assert user_share(0) == 1.0
    assert user_share(3) == 0.25
    assert user_share(0, 0.5) == 0.5
    assert user_share(-1, 7.0) == 1.0


def test_models_go_by_their_first_request_and_by_what_it_costs_to_serve_them():
    cheap = model_standing_s(WEIGHTS, 100.0, latency_s=2.0, efficiency=1.0)
    dear = model_standing_s(WEIGHTS, 100.0, latency_s=60.0, efficiency=0.1)
    assert cheap < dear
    assert model_standing_s(WEIGHTS, 100.0, latency_s=0.0, efficiency=0.0) == pytest.approx(90.0)


def test_what_is_resident_is_all_work():
    assert efficiency(1, 2.0, 0.0) == 1.0
    assert efficiency(0, 2.0, 10.0) == 0.0
