"""What Headstart is for: models are loaded by its controller, within memory, and it says why."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from contracts.reasons import Reason
from tests.acceptance.deployment import Deployment, Event, of_kind

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240)]

MIB = 1024**2


def most_bytes_held(log: list[Event], footprints: dict[str, int], at_first: set[str]) -> int:
    """The peak of what LocalAI held, from its own log."""
    held = set(at_first)
    most = sum(footprints[model] for model in held)
    for event in log:
        if event["kind"] == "load_started":
            held.add(event["model"])
        elif event["kind"] in ("unloaded", "load_failed", "load_cancelled"):
            held.discard(event["model"])
        most = max(most, sum(footprints[model] for model in held))
    return most


async def decisions(deployment: Deployment, **query: Any) -> list[dict[str, Any]]:
    """All decisions that are kept, page by page, newest first."""
    found: list[dict[str, Any]] = []
    after = ""
    while True:
        words = "&".join(f"{name}={value}" for name, value in query.items())
        answer = await deployment.control("GET", f"/v1/decisions?limit=100&{words}{after}")
        assert answer.status == 200, answer.text
        page = answer.json
        found += page["data"]
        if not page["has_more"]:
            return found
        after = f"&after={page['last_id']}"


async def set_mode(deployment: Deployment, mode: str) -> None:
    """Change the mode and wait until controller and gateway both know."""
    answer = await deployment.control("PUT", "/v1/mode", {"mode": mode})
    assert answer.status == 200
    assert answer.json["wanted"] == mode

    async def holds() -> bool:
        seen = (await deployment.control("GET", "/v1/mode")).json["mode"]
        ready = await deployment.ask("GET", deployment.stack.gateway_url + "/headstart/readyz")
        return bool(seen == mode and ready.json["routing"]["mode"] == mode)

    await deployment.until(holds, f"the mode is {mode} everywhere")


async def is_resident(deployment: Deployment, model: str, *, wanted: bool = True) -> None:
    async def so() -> bool:
        return (await deployment.residency(model) == "hot") is wanted

    await deployment.until(so, f"{model} is {'resident' if wanted else 'not resident'} in LocalAI")


async def in_world(deployment: Deployment, model: str, **wanted: Any) -> None:
    """Wait until the control API shows the model so."""

    async def so() -> bool:
        shown = await deployment.model(model)
        return all(shown.get(name) == value for name, value in wanted.items())

    await deployment.until(so, f"{model} is shown as {wanted}")


async def unload(deployment: Deployment, model: str) -> None:
    """Have an operator unload it, wherever it is now."""

    async def gone() -> bool:
        asked = await deployment.control("POST", f"/v1/models/{model}/unload")
        return asked.json["status"] == "already" and await deployment.residency(model) == "cold"

    await deployment.until(gone, f"{model} is unloaded")


@pytest_asyncio.fixture(loop_scope="session")
async def tidy(office: Deployment) -> AsyncIterator[None]:
    """Whatever a test leaves, the next finds the office active and without pins."""
    yield
    for model in (await office.control("GET", "/v1/models")).json["data"]:
        if model["pinned"]:
            await office.control("POST", f"/v1/models/{model['id']}/unpin")
            await in_world(office, model["id"], pinned=False)
    await set_mode(office, "active")


async def test_a_cold_request_is_answered_by_one_load_of_the_controller_and_the_next_is_warm(
    office: Deployment,
):
    start = await office.mark()

    first = await office.chat("small-e")
    assert first.status == 200, first.text
    assert first.json["model"] == "small-e"
    assert first.is_cold
    assert first.headers["X-Headstart-Decision"] == "demand"
    assert first.headers["X-Headstart-Model"] == "small-e"
    second = await office.chat("small-e")
    assert second.status == 200, second.text
    assert not second.is_cold
    assert second.headers["X-Headstart-Decision"] == "resident"

    log = await office.events(start)
    assert len(of_kind(log, "load_started", "small-e")) == 1
    assert len(of_kind(log, "request_started", "small-e")) == 2
    assert not any(event["cold"] for event in of_kind(log, "request_started", "small-e"))


async def test_a_cold_stream_begins_when_its_model_is_there(office: Deployment):
    start = await office.mark()
    answer = await office.chat("small-d", stream=True)
    assert answer.status == 200, answer.text
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    events = [line for line in answer.text.split("\n\n") if line.startswith("data: ")]
    assert events[-1] == "data: [DONE]"
    assert '"error"' not in answer.text
    assert len(of_kind(await office.events(start), "load_started", "small-d")) == 1


async def test_five_models_that_do_not_fit_together_are_served_in_turn_within_memory(
    office: Deployment, tidy: None
):
    state = await office.state()
    footprints = {name: model["footprint_bytes"] for name, model in state["models"].items()}
    held = {name for name, model in state["models"].items() if model["residency"] != "cold"}
    asked = [f"chat-{letter}" for letter in "abcdeabcde"]

    for model in asked:
        answer = await office.chat(model)
        assert answer.status == 200, (model, answer.text)

    log = await office.events(state["last_seq"])
    assert not of_kind(log, "load_failed"), "LocalAI was asked for more than it has"
    assert most_bytes_held(log, footprints, held) <= state["capacity_bytes"]
    assert {event["model"] for event in of_kind(log, "load_started")} >= set(asked) - held
    for event in of_kind(log, "unloaded"):
        assert event["cause"] == "shutdown", "LocalAI's own rules have nothing to do here"


async def test_models_that_do_not_fit_together_are_served_when_they_are_asked_for_at_once(
    office: Deployment, tidy: None
):
    state = await office.state()
    footprints = {name: model["footprint_bytes"] for name, model in state["models"].items()}
    held = {name for name, model in state["models"].items() if model["residency"] != "cold"}

    answers = await asyncio.gather(
        *(office.chat(f"chat-{letter}", service_s=2.0) for letter in "abcde" * 2)
    )
    assert [answer.status for answer in answers] == [200] * 10, [a.text for a in answers]

    log = await office.events(state["last_seq"])
    assert not of_kind(log, "load_failed")
    assert most_bytes_held(log, footprints, held) <= state["capacity_bytes"]


async def test_every_decision_has_a_reason_and_evidence(office: Deployment, tidy: None):
    for letter in "fgha":
        assert (await office.chat(f"chat-{letter}")).status == 200

    async def said() -> bool:
        found = await decisions(office, model="chat-h")
        return any(d["outcome"] == "change" and d["reason"] == "demand" for d in found)

    await office.until(said, "the load of chat-h is in the journal")
    found = await decisions(office)
    reasons = {reason.value for reason in Reason}
    for decision in found:
        assert decision["reason"] in reasons
        assert decision["sentence"]
        assert decision["explanation"]
        assert decision["policy"] == "headstart"
        assert decision["outcome"] in ("change", "hold", "abstain")
    without = {(d["outcome"], d["reason"], d["subject"]) for d in found if not d["evidence"]}
    assert not without
    loads = [d for d in found if d["reason"] == "demand" and d["subject"] == "chat-h"]
    evicting = [d for d in found if "room_for" in {e["name"] for e in d["evidence"]}]
    assert loads
    assert evicting, "three of four do not fit, so something was evicted for another"
    one = await office.control("GET", f"/v1/decisions/{loads[0]['id']}")
    assert one.status == 200
    assert one.json["evidence"] == loads[0]["evidence"]
    newest_first = [d["made_at_s"] for d in found]
    assert newest_first == sorted(newest_first, reverse=True)


async def test_forecasts_and_history_are_there_for_a_model_that_was_used(office: Deployment):
    for _ in range(3):
        assert (await office.chat("small-b")).status == 200

    async def forecast() -> bool:
        answer = await office.control("GET", "/v1/forecasts/small-b")
        return (
            answer.status == 200
            and answer.json["next_use"] is not None
            and "arrivals" in {signal["signal"] for signal in answer.json["signals"]}
        )

    await office.until(forecast, "use and arrivals are forecast for small-b")
    shown = (await office.control("GET", "/v1/forecasts/small-b")).json
    assert shown["model"] == "small-b"
    chances = [row["probability"] for row in shown["next_use"]["probabilities"]]
    assert chances == sorted(chances)
    assert all(0.0 <= chance <= 1.0 for chance in chances)
    arrivals = next(signal for signal in shown["signals"] if signal["signal"] == "arrivals")
    assert [row["horizon_s"] for row in arrivals["horizons"]] == [60.0, 300.0, 900.0, 3600.0]
    for row in arrivals["horizons"]:
        values = [quantile["value"] for quantile in row["quantiles"]]
        assert values == sorted(values)
        assert values[0] >= 0.0
    listed = (await office.control("GET", "/v1/forecasts")).json["data"]
    assert "small-b" in {row["model"] for row in listed}

    async def counted() -> bool:
        # The minute in which counting began does not count, so somebody has to come later.
        assert (await office.chat("small-b")).status == 200
        answer = await office.control("GET", "/v1/models/small-b/history?horizon_s=60&minutes=240")
        return sum(row["count"] or 0 for row in answer.json["data"]) >= 3

    await office.until(counted, "the history of small-b counts its requests")


async def test_a_target_is_set_shown_and_taken_away(office: Deployment):
    body = {"target_s": 1.5, "percentile": 99, "class": "realtime", "weight": 3}
    put = await office.control("PUT", "/v1/slas/small-b", body)
    assert put.status == 200, put.text
    got = await office.control("GET", "/v1/slas/small-b")
    assert got.status == 200
    shown = {name: got.json[name] for name in ("target_s", "percentile", "class", "weight")}
    assert shown == {"target_s": 1.5, "percentile": 99.0, "class": "realtime", "weight": 3.0}
    assert "small-b" in {
        row["model"] for row in (await office.control("GET", "/v1/slas")).json["data"]
    }
    await in_world(office, "small-b", target_s=1.5)

    gone = await office.control("DELETE", "/v1/slas/small-b")
    assert gone.status == 200, gone.text
    assert (await office.control("GET", "/v1/slas/small-b")).status == 404
    assert (await office.control("DELETE", "/v1/slas/small-b")).status == 404
    await in_world(office, "small-b", target_s=2.0)


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/slas/small-b", {"target_s": -1}, 422),
        ("/v1/slas/small-b", {"target_s": 1, "classs": "realtime"}, 422),
        ("/v1/slas/nobody-ever-asked-for-this", {"target_s": 1}, 404),
        ("/v1/mode", {"mode": "turbo"}, 422),
    ],
)
async def test_a_wrong_setting_is_refused_in_the_usual_shape(
    office: Deployment, path: str, body: dict[str, Any], status: int
):
    # Which names there are is known once the first world has come.
    await in_world(office, "small-b", pinned=False)
    answer = await office.control("PUT", path, body)
    assert answer.status == status, answer.text
    assert set(answer.json["error"]) == {"message", "type", "param", "code"}


async def test_a_pinned_model_stays_resident_under_pressure(office: Deployment, tidy: None):
    assert (await office.chat("chat-b")).status == 200
    pinned = await office.control("POST", "/v1/models/chat-b/pin")
    assert pinned.status == 200, pinned.text
    await in_world(office, "chat-b", pinned=True)
    await is_resident(office, "chat-b")
    start = await office.mark()

    for letter in "acdefgh":
        assert (await office.chat(f"chat-{letter}")).status == 200

    assert not of_kind(await office.events(start), "unloaded", "chat-b")
    assert await office.residency("chat-b") == "hot"
    refused = await office.control("POST", "/v1/models/chat-b/unload")
    assert refused.status == 409
    assert refused.json["error"]["code"] == "model_pinned"


async def test_a_pin_loads_a_cold_model(office: Deployment, tidy: None):
    await unload(office, "small-b")
    assert (await office.control("POST", "/v1/models/small-b/pin")).status == 200
    await is_resident(office, "small-b")


async def test_operators_load_and_unload(office: Deployment, tidy: None):
    assert (await office.chat("small-c")).status == 200
    await unload(office, "small-c")
    start = await office.mark()

    asked = await office.control("POST", "/v1/models/small-c/load")
    assert asked.status == 202, asked.text
    await in_world(office, "small-c", residency="hot", load_cause="operator")
    assert await office.residency("small-c") == "hot"
    again = await office.control("POST", "/v1/models/small-c/load")
    assert (again.status, again.json["status"]) == (200, "already")
    warm = await office.chat("small-c")
    assert (warm.status, warm.is_cold) == (200, False)

    assert (await office.control("POST", "/v1/models/small-c/unload")).status == 202
    await is_resident(office, "small-c", wanted=False)
    log = await office.events(start)
    assert len(of_kind(log, "load_started", "small-c")) == 1
    assert len(of_kind(log, "unloaded", "small-c")) == 1

    # A forecast does not bring back what an operator sent away; a request does.
    await in_world(office, "small-c", residency="cold")
    assert (await office.chat("small-a")).status == 200
    assert await office.residency("small-c") == "cold"
    again = await office.chat("small-c")
    assert (again.status, again.is_cold) == (200, True)


async def test_observing_orders_nothing_and_active_again_does(office: Deployment, tidy: None):
    for model in ("small-b", "small-c"):
        await unload(office, model)
    await set_mode(office, "observe")
    start = await office.mark()

    answer = await office.chat("small-b", request_id="seen-only")
    assert answer.status == 200, answer.text
    assert answer.headers["X-Headstart-Decision"] == "observe_only"
    await in_world(office, "small-b", residency="hot", load_cause="external")
    log = await office.events(start)
    assert not of_kind(log, "unloaded")
    assert [event["request_id"] for event in of_kind(log, "load_started")] == ["seen-only"]

    await set_mode(office, "active")
    answer = await office.chat("small-c", request_id="ordered")
    assert answer.status == 200, answer.text
    assert answer.headers["X-Headstart-Decision"] == "demand"
    loads = of_kind(await office.events(start), "load_started", "small-c")
    assert len(loads) == 1
    assert loads[0]["request_id"] != "ordered", "loaded by the controller, not by the request"


async def test_the_dashboard_is_served(office: Deployment):
    page = await office.ask("GET", office.stack.control_url + "/")
    assert page.status == 200
    assert "text/html" in page.headers["Content-Type"]
    assert "http://" not in page.text.replace("http://www.w3.org", ""), "it works offline"
    summary = await office.control("GET", "/v1/summary")
    assert summary.status == 200
    assert summary.json["requests"] > 0 or summary.json["models_known"] > 0


async def test_a_model_that_is_added_later_is_served_and_then_scheduled_like_the_others(
    office: Deployment,
):
    config = {
        "name": "newcomer",
        "backend": "emulated",
        "parameters": {"model": "newcomer.gguf"},
        "emulator": {"footprint_mb": 10, "load_s": 1},
    }
    added = await office.ask("POST", office.stack.gateway_url + "/models/import", json=config)
    assert added.status == 200, added.text
    answer = await office.chat("newcomer")
    assert answer.status == 200, answer.text
    await in_world(office, "newcomer", residency="hot")

    assert (await office.control("POST", "/v1/models/newcomer/unload")).status == 202
    await is_resident(office, "newcomer", wanted=False)
    await in_world(office, "newcomer", residency="cold")
    again = await office.chat("newcomer")
    assert (again.status, again.is_cold) == (200, True)
    assert again.headers["X-Headstart-Decision"] == "demand"


async def test_models_are_listed_as_localai_lists_them(office: Deployment):
    mine = await office.ask("GET", office.stack.gateway_url + "/v1/models")
    theirs = await office.ask("GET", office.stack.emulator_url + "/v1/models")
    assert mine.status == theirs.status == 200
    assert {row["id"] for row in mine.json["data"]} == {row["id"] for row in theirs.json["data"]}
