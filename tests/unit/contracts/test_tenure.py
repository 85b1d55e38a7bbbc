"""Whether a lease is ours, and which predictor is the owner."""

from __future__ import annotations

from contracts.predictors import HEARD_WITHIN_S, PredictorBeat, Standing, owner_of, present
from contracts.tenure import Tenure


def test_a_tenure_ends_by_the_holders_own_clock() -> None:
    tenure = Tenure().answered(7, asked_s=100.0, lease_s=5.0)

    assert tenure.token == 7
    assert tenure.holds(104.9)
    assert not tenure.holds(105.0)
    assert not Tenure().holds(0.0)


def test_a_renewal_prolongs_it_and_a_refusal_ends_it_at_once() -> None:
    tenure = Tenure().answered(7, asked_s=100.0, lease_s=5.0)

    assert tenure.answered(7, asked_s=104.0, lease_s=5.0).holds(108.0)
    assert not tenure.answered(None, asked_s=101.0, lease_s=5.0).holds(101.0)


def beat(
    name: str, standing: Standing, at_s: float = 100.0, token: int | None = None
) -> PredictorBeat:
    return PredictorBeat(
        name=name, host="h", standing=standing, at_s=at_s, since_s=0.0, token=token
    )


def test_the_owner_is_the_living_one_with_the_greatest_token() -> None:
    stopped = beat("a", Standing.OWNER, token=7)
    owner = beat("c", Standing.OWNER, token=8)
    standby = beat("b", Standing.STANDBY)
    gone = beat("d", Standing.OWNER, at_s=100.0 - HEARD_WITHIN_S - 1.0, token=9)

    assert present((stopped, standby, owner, gone), 100.0) == (owner, stopped, standby)
    assert owner_of((stopped, standby, owner, gone), 100.0) == owner


def test_without_an_owner_there_is_none() -> None:
    standby = beat("b", Standing.STANDBY)

    assert owner_of((standby,), 100.0) is None
    assert owner_of((), 100.0) is None
    assert present((standby, beat("a", Standing.CATCHING_UP)), 100.0)[0].name == "a"
