"""Figures that people see are those of what really happened, from gateway to page."""

from __future__ import annotations

from typing import Any

import pytest

from tests.acceptance.deployment import Deployment

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240)]


async def get(office: Deployment, path: str) -> Any:
    answer = await office.control("GET", path)
    assert answer.status == 200, answer.text
    return answer.json


async def test_a_request_can_be_looked_up_by_its_id_and_its_load_is_part_of_its_time(
    office: Deployment,
):
    answer = await office.chat("chat-b", request_id="looked-up-later", stream=True)
    assert answer.status == 200, answer.text

    async def ended() -> bool:
        found = await office.control("GET", "/v1/requests/looked-up-later")
        return found.status == 200 and found.json["outcome"] == "completed"

    await office.until(ended, "the request has ended in the log")
    found = await get(office, "/v1/requests/looked-up-later")
    assert (found["model"], found["class"], found["status"]) == ("chat-b", "realtime", 200)
    whole = sum(phase["seconds"] for phase in found["phases"])
    assert whole == pytest.approx(found["duration_s"], rel=0.05)
    assert found["cold"] is answer.is_cold
    assert not found["cold"] or found["load_s"] > 0.0
    said = await office.control(
        "POST", "/v1/feedback", {"request_id": "looked-up-later", "rating": "good"}
    )
    assert said.status == 201, said.text

    async def counted() -> bool:
        kpis = await get(office, "/v1/kpis?window=1h&model=chat-b")
        return bool(kpis["models"][0]["traffic"]["feedback"])

    await office.until(counted, "the feedback is counted")


async def test_queues_tell_what_they_hold_and_planning_how_long_it_takes(office: Deployment):
    async def told() -> bool:
        queues = (await get(office, "/v1/queues"))["data"]
        return len(queues) == 3 and all(queue["capacity"] is not None for queue in queues)

    await office.until(told, "gateways have told the capacity of their queues")
    kpis = await get(office, "/v1/kpis")
    assert kpis["deciding"]["runs"] > 0
    assert 0.0 < kpis["deciding"]["p95_s"] < 5.0
    why = await get(office, "/v1/explain/chat-b")
    assert why["sentences"][0].startswith("chat-b is")
    settings = {one["id"]: one for one in (await get(office, "/v1/settings"))["data"]}
    assert "control.port" in settings
    assert settings["control.port"]["origin"] != "default"
    metrics = (await office.control("GET", "/metrics")).text
    assert 'headstart_workers{queue="background"}' in metrics
    assert 'headstart_queue_capacity_requests{class="realtime"}' in metrics
