"""What the control API says and takes: resources read, orders and settings written."""

from __future__ import annotations

import pytest

from contracts.ids import ModelId
from contracts.messages import LoadRequested, SettingsChanged, UnloadRequested
from contracts.world import Mode
from tests.control_server import RunningControl
from tests.integration.control_api.control_caller import COLD, HOT, SLASHED, Caller, sent

pytestmark = pytest.mark.integration


async def test_models_are_listed_by_name_in_pages(ask: Caller):
    first = await ask.get("/v1/models?limit=2")
    assert [one["id"] for one in first["data"]] == sorted([COLD, SLASHED])
    assert (first["object"], first["has_more"], first["stale"]) == ("list", True, False)
    second = await ask.get(f"/v1/models?limit=2&after={first['last_id'].replace('/', '%2F')}")
    assert [one["id"] for one in second["data"]] == [HOT]
    assert not second["has_more"]
    model = second["data"][0]
    assert model["residency"] == "hot"
    assert model["footprint_bytes"] == 6_600_000_000
    assert (model["target_s"], model["sla"]["class"]) == (1.5, "realtime")


@pytest.mark.parametrize("name", ["org/coder:33b", "org%2Fcoder:33b", "org%2fcoder%3A33b"])
@pytest.mark.parametrize("resource", ["models", "forecasts", "slas"])
async def test_a_slash_in_a_name_is_taken_escaped_and_unescaped(ask: Caller, resource, name):
    assert (await ask.get(f"/v1/{resource}/{name}"))["id"] == SLASHED


async def test_an_unknown_model_names_the_nearest_known(ask: Caller):
    status, body, _ = await ask("GET", "/v1/models/qwen3")
    assert status == 404
    assert body["error"]["code"] == "model_not_found"
    assert f"nearest known: {HOT}" in body["error"]["message"]
    status, body, _ = await ask("POST", "/v1/models/zzzzzzz/load")
    assert status == 404
    assert "GET /v1/models" in body["error"]["message"]
    status, _, _ = await ask("GET", "/v1/models/" + "x" * 2000)
    assert status == 404


async def test_a_forecast_has_quantiles_next_use_and_its_score_against_the_floor(ask: Caller):
    page = await ask.get("/v1/forecasts")
    assert [one["model"] for one in page["data"]] == sorted([COLD, SLASHED, HOT])
    forecast = await ask.get(f"/v1/forecasts/{HOT}")
    horizons = forecast["signals"][0]["horizons"]
    assert [one["horizon_s"] for one in horizons] == [60, 300, 900, 3600]
    assert [one["level"] for one in horizons[0]["quantiles"]] == [0.1, 0.5, 0.9, 0.99]
    assert horizons[0]["loss"] < horizons[0]["floor_loss"]
    assert 0 < horizons[0]["skill_ratio"] < 1
    delays = {one["within_s"]: one["probability"] for one in forecast["next_use"]["probabilities"]}
    assert delays[5] < delays[60] <= delays[3600] <= 1
    assert forecast["next_use"]["valid"]


async def test_history_shows_what_came_beside_what_had_been_forecast(ask: Caller):
    history = await ask.get(f"/v1/models/{HOT}/history?minutes=3")
    ended = [one for one in history["data"] if one["end_s"] <= history["now_s"]]
    assert len(ended) == 3
    assert all(one["count"] is not None for one in ended)
    assert sum(one["count"] for one in ended) > 0
    assert any(one["quantiles"] for one in ended)
    current = next(one for one in history["data"] if one["end_s"] > history["now_s"])
    assert current["count"] is None
    longer = await ask.get(f"/v1/models/{HOT}/history?minutes=3&horizon_s=3600")
    assert longer["data"][-1]["end_s"] > longer["now_s"] + 3000
    status, body, _ = await ask("GET", f"/v1/models/{HOT}/history?horizon_s=61")
    assert (status, body["error"]["param"]) == (422, "horizon_s")
    assert "60, 300, 900, 3600" in body["error"]["message"]


async def test_decisions_come_newest_first_with_reasons_and_pages(ask: Caller):
    page = await ask.get("/v1/decisions?limit=10")
    times = [one["made_at_s"] for one in page["data"]]
    assert times == sorted(times, reverse=True)
    assert page["has_more"]
    following = await ask.get(f"/v1/decisions?limit=500&after={page['last_id']}")
    assert len(following["data"]) == 30
    assert not following["has_more"]
    one = page["data"][0]
    assert one["sentence"].endswith(f"{one['explanation']}.")
    again = await ask.get(f"/v1/decisions/{one['id']}")
    assert again["evidence"] == one["evidence"]
    about = await ask.get(f"/v1/decisions?model={COLD}")
    assert {decision["subject"] for decision in about["data"]} == {COLD}
    status, body, _ = await ask("GET", "/v1/decisions/nope")
    assert (status, body["error"]["code"]) == (404, "decision_not_found")


async def test_queues_nodes_comparisons_jobs_and_the_summary(ask: Caller):
    queues = await ask.get("/v1/queues")
    assert {one["id"]: one["waiting"] for one in queues["data"]}["background"] == 17
    (node,) = (await ask.get("/v1/nodes"))["data"]
    assert node["occupied_bytes"] == 6_600_000_000 + 15_000_000_000
    (comparison,) = (await ask.get("/v1/comparisons"))["data"]
    assert comparison["policy"] == "localai-lru"
    expected = comparison["cold_starts"] - comparison["our_cold_starts"]
    assert comparison["avoided_cold_starts"] == expected
    jobs = await ask.get("/v1/jobs")
    assert jobs["data"][0]["counts"] == {"started": 1, "queued": 13}
    assert (await ask.get("/v1/jobs/b0"))["status"]["state"] == "started"
    assert (await ask("GET", "/v1/jobs/nope"))[0] == 404
    summary = await ask.get("/v1/summary")
    assert summary["prefetches"] == {"started": 61, "used": 44, "wasted": 12}
    assert summary["comparison"] == comparison
    assert summary["judged"] > 0
    assert 0 < summary["attainment_ratio"] <= 1


async def test_a_target_is_set_read_and_deleted(control: RunningControl, session):
    ask = Caller(session, control.url)
    body = {"target_s": 3.5, "percentile": 99, "class": "batch", "weight": 2}
    status, answer, _ = await ask("PUT", f"/v1/slas/{COLD}", body)
    assert status == 200
    assert {key: answer[key] for key in body} == body
    assert (await ask.get(f"/v1/slas/{COLD}"))["target_s"] == 3.5
    assert COLD in [one["id"] for one in (await ask.get("/v1/slas"))["data"]]
    assert (await ask.get(f"/v1/models/{COLD}"))["target_s"] == 3.5
    assert any(isinstance(message, SettingsChanged) for message in sent(control))
    status, answer, _ = await ask("DELETE", f"/v1/slas/{COLD}")
    assert (status, answer) == (200, {"id": COLD, "object": "sla.deleted", "deleted": True})
    assert (await ask("DELETE", f"/v1/slas/{COLD}"))[0] == 404
    status, body, _ = await ask("GET", f"/v1/slas/{COLD}")
    assert (status, body["error"]["code"]) == (404, "no_sla")


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        ({"target_s": 0}, "target_s", ["target_s is 0", "greater than 0"]),
        ({"target_s": 1, "percentile": 120}, "percentile", ["120", "99.99"]),
        ({"target_s": 1, "class": "urgent"}, "class", ["'urgent'", "'realtime'", "'batch'"]),
        ({"target_s": 1, "weight": -1}, "weight", ["weight is -1"]),
        ({"target_s": "soon"}, "target_s", ["'soon'", "number"]),
        ({"target_s": 1, "targt": 2}, "targt", ["targt is not a field"]),
        ({}, "target_s", ["target_s is missing"]),
    ],
)
async def test_a_wrong_value_names_field_value_and_what_is_allowed(ask: Caller, body, param, words):
    status, answer, _ = await ask("PUT", f"/v1/slas/{HOT}", body)
    assert (status, answer["error"]["param"]) == (422, param)
    assert all(word in answer["error"]["message"] for word in words), answer


async def test_bodies_that_are_no_json_or_too_large(ask: Caller):
    headers = {"Content-Type": "application/json"}
    path = f"/v1/slas/{HOT}"
    status, answer, _ = await ask("PUT", path, data=b'{"target_s": ', headers=headers)
    assert (status, "not JSON" in answer["error"]["message"]) == (422, True)
    status, answer, _ = await ask("PUT", path, data=b"x" * 70_000, headers=headers)
    assert (status, answer["error"]["code"]) == (413, "body_too_large")
    status, answer, _ = await ask("PUT", path, data=b'{"target_s": NaN}', headers=headers)
    assert status == 422


async def test_loads_and_unloads_are_told_to_the_controller(control: RunningControl, session):
    ask = Caller(session, control.url)
    status, answer, _ = await ask("POST", f"/v1/models/{COLD}/load")
    assert (status, answer["status"]) == (202, "accepted")
    status, answer, _ = await ask("POST", f"/v1/models/{HOT}/load")
    assert (status, answer["status"]) == (200, "already")
    status, answer, _ = await ask("POST", f"/v1/models/{SLASHED}/load")
    assert (status, answer["message"]) == (200, "it is loading already")
    status, answer, _ = await ask("POST", f"/v1/models/{HOT}/unload")
    assert (status, answer["status"]) == (202, "accepted")
    status, answer, _ = await ask("POST", f"/v1/models/{COLD}/unload")
    assert (status, answer["status"]) == (200, "already")
    asked = [m.model for m in sent(control) if isinstance(m, LoadRequested)]
    assert asked == [COLD]
    assert [m.model for m in sent(control) if isinstance(m, UnloadRequested)] == [HOT]


async def test_while_observing_a_load_is_refused_since_nobody_would_do_it(
    control: RunningControl, session
):
    ask = Caller(session, control.url)
    await ask("PUT", "/v1/mode", {"mode": "observe"})
    told = len(sent(control))
    for path in (f"/v1/models/{COLD}/load", f"/v1/models/{HOT}/unload"):
        status, answer, _ = await ask("POST", path)
        assert (status, answer["error"]["code"]) == (409, "observe_only")
        assert "set the mode to active" in answer["error"]["message"]
    assert (await ask("POST", f"/v1/models/{HOT}/load"))[0] == 200  # nothing would be done
    assert len(sent(control)) == told
    await ask("PUT", "/v1/mode", {"mode": "active"})
    assert (await ask("POST", f"/v1/models/{COLD}/load"))[0] == 202


async def test_a_pin_is_kept_told_and_guards_against_an_unload(control: RunningControl, session):
    ask = Caller(session, control.url)
    status, answer, _ = await ask("POST", f"/v1/models/{HOT}/pin")
    assert (status, answer["status"]) == (200, "done")
    assert control.do(control.lively.settings.pins()) == {HOT}
    assert (await ask.get(f"/v1/models/{HOT}"))["pinned"]
    assert (await ask("POST", f"/v1/models/{HOT}/pin"))[1]["status"] == "already"
    status, answer, _ = await ask("POST", f"/v1/models/{HOT}/unload")
    assert (status, answer["error"]["code"]) == (409, "model_pinned")
    status, answer, _ = await ask("POST", f"/v1/models/{HOT}/unpin")
    assert (status, answer["status"]) == (200, "done")
    assert control.do(control.lively.settings.pins()) == frozenset()
    assert not (await ask.get(f"/v1/models/{HOT}"))["pinned"]


async def test_a_pin_of_the_configuration_is_not_undone_here(control: RunningControl, session):
    ask = Caller(session, control.url)
    control.lively.set(ModelId(HOT), pinned=True)
    control.do(control.lively.snapshots.put_world(control.lively.world))
    control.do(control.refresh())
    status, answer, _ = await ask("POST", f"/v1/models/{HOT}/unpin")
    assert (status, answer["error"]["code"]) == (409, "pinned_by_configuration")


async def test_the_mode_is_read_and_set(control: RunningControl, session):
    ask = Caller(session, control.url)
    assert (await ask.get("/v1/mode"))["mode"] == "active"
    status, answer, _ = await ask("PUT", "/v1/mode", {"mode": "observe"})
    assert (status, answer["wanted"]) == (200, "observe")
    assert control.do(control.lively.settings.mode()) is Mode.OBSERVE
    status, answer, _ = await ask("PUT", "/v1/mode", {"mode": "turbo"})
    assert (status, answer["error"]["param"]) == (422, "mode")
    assert "'observe'" in answer["error"]["message"]
