"""Who publishes forecasts, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from contracts.predictors import PredictorBeat, Standing
from tests.control_server import RunningControl

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def control() -> Iterator[RunningControl]:
    control = RunningControl(seeded=False).start()
    yield control
    control.stop()


def tell(control: RunningControl, name: str, standing: Standing) -> None:
    now_s = control.lively.clock.now_s()
    beat = PredictorBeat(
        name=name,
        host=f"host-{name}",
        standing=standing,
        at_s=now_s,
        since_s=now_s,
        token=7 if standing is Standing.OWNER else None,
        models=3,
    )
    control.do(control.predictors.beat(beat))


async def test_the_owner_comes_first_and_readyz_names_it(control: RunningControl):
    tell(control, "a", Standing.STANDBY)
    tell(control, "b", Standing.OWNER)
    control.do(control.refresh())

    status, body = await control.got("/v1/predictors")
    assert status == 200
    assert (body["owner"], body["standbys"], body["stale"]) == ("b", 1, False)
    assert [(one["name"], one["is_owner"]) for one in body["data"]] == [("b", True), ("a", False)]
    assert body["data"][0]["models"] == 3
    _, ready = await control.got("/readyz")
    check = next(one for one in ready["checks"] if one["name"] == "predictor")
    assert (check["owner"], check["standbys"]) == ("b", 1)


async def test_between_two_owners_there_is_none(control: RunningControl):
    control.do(control.predictors.leave("b"))
    tell(control, "a", Standing.STANDBY)
    control.do(control.refresh())

    _, body = await control.got("/v1/predictors")
    assert (body["owner"], body["standbys"]) == (None, 1)
