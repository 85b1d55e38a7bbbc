"""Models that were loaded ahead of their use answer something small; nothing else depends on it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contracts.config import ControllerConfig, ModelProfile, WarmUp
from contracts.errors import Transient
from contracts.events import ActionApplied, ActionFailed, LoadCause
from controller.roster import GONE_AFTER_S
from controller.warmups import LIMIT_S
from tests.unit.controller.test_reconciler import Site, load, unload
from tests.worlds import A


@pytest.fixture
async def site():
    site = Site()
    site.server.resident.clear()
    await site.clock.advance(GONE_AFTER_S)
    site.events.clear()
    yield site
    await site.reconciler.close()


def warm_ups(site: Site) -> list[ActionApplied | ActionFailed]:
    return [
        event
        for event in site.events
        if isinstance(event, ActionApplied | ActionFailed) and event.kind == "warm_up"
    ]


def declare(site: Site, how: WarmUp) -> None:
    site.reconciler.reconfigure(
        replace(ControllerConfig(), profiles={A: ModelProfile(model=A, warm_up=how)})
    )


@pytest.mark.parametrize("cause", [LoadCause.PREFETCH, LoadCause.OPERATOR])
async def test_a_load_that_nobody_waits_for_is_followed_by_an_inference(site, cause):
    site.server.warm_s = 3.0
    site.order(load(A, cause=cause))
    await site.clock.advance(5.0)
    assert A in site.server.resident  # resident at once, for whoever comes meanwhile
    assert warm_ups(site) == []
    await site.clock.advance(3.0)
    (done,) = warm_ups(site)
    assert isinstance(done, ActionApplied)
    assert (done.subject, done.took_s, done.action_id) == (A, 3.0, "load-a-warm")
    assert site.server.warmed == [A]


@pytest.mark.parametrize("cause", [LoadCause.DEMAND, LoadCause.GATEWAY])
async def test_who_waits_for_a_load_is_its_first_inference(site, cause):
    site.order(load(A, cause=cause))
    await site.clock.advance(20.0)
    assert site.server.warmed == []


async def test_a_kind_without_a_small_request_stays_loaded_and_that_is_no_fault(site):
    site.server.not_to_warm.add(A)
    site.order(load(A, cause=LoadCause.PREFETCH))
    await site.clock.advance(20.0)
    assert (site.server.warmed, warm_ups(site)) == ([], [])
    assert A in site.server.resident


@pytest.mark.parametrize(("how", "warmed"), [(WarmUp.ALWAYS, [A]), (WarmUp.NEVER, [])])
async def test_what_is_configured_for_a_model_holds(site, how, warmed):
    site.server.not_to_warm.add(A)
    declare(site, how)
    site.order(load(A, cause=LoadCause.PREFETCH))
    await site.clock.advance(20.0)
    assert site.server.warmed == warmed


async def test_a_warm_up_that_fails_is_told_and_the_model_stays(site, monkeypatch):
    async def refuse(model, *, thorough=False):
        raise Transient("disabled for this model")

    monkeypatch.setattr(site.server, "warm", refuse)
    site.order(load(A, cause=LoadCause.PREFETCH))
    await site.clock.advance(5.0)
    (failed,) = warm_ups(site)
    assert isinstance(failed, ActionFailed)
    assert (failed.error, failed.subject) == ("disabled for this model", A)
    assert A in site.server.resident


async def test_one_that_never_ends_is_given_up(site):
    site.server.warm_s = 10_000.0
    site.order(load(A, cause=LoadCause.PREFETCH))
    await site.clock.advance(5.0 + LIMIT_S)
    (failed,) = warm_ups(site)
    assert isinstance(failed, ActionFailed)
    assert failed.error == "no answer within 300 s"


async def test_a_model_that_is_to_go_is_not_kept_by_its_warm_up(site):
    site.server.warm_s = 60.0
    site.order(load(A, cause=LoadCause.PREFETCH))
    await site.clock.advance(6.0)
    site.beat(gateway="gw")
    site.order(unload(A))
    site.beat("drain-a", gateway="gw")
    await site.clock.advance(1.0)
    site.beat("drain-a", gateway="gw")
    await site.clock.advance(1.0)
    assert A not in site.server.resident
    assert warm_ups(site) == []


async def test_who_leads_no_more_warms_nothing(site):
    site.server.warm_s = 60.0
    site.order(load(A, cause=LoadCause.PREFETCH))
    await site.clock.advance(6.0)
    await site.reconciler.close()
    await site.clock.advance(100.0)
    assert site.server.warmed == []
