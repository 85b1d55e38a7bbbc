"""Profiles over the control API: each number with where it comes from; removable."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from prometheus_client.utils import floatToGoString

from contracts.ids import ModelId, NodeId
from contracts.memory import HOST, FootprintSource, PlaceId, PlaceKind, PlaceStatus, UnseenMemory
from contracts.messages import ProfileForgotten
from contracts.profiles import (
    FIRST_TOKEN,
    FIRST_TOKEN_COLD,
    LOAD_COLD,
    LOAD_WARM,
    MeasuredProfile,
    Measures,
    Series,
)
from contracts.world import NodeStatus, Residency
from tests.browser.lively import KINDS
from tests.control_server import RunningControl

pytestmark = pytest.mark.integration

GIB = 1024**3
CARD = PlaceId("GPU-7")
CPU = NodeId("old-server")


@pytest.fixture
def control() -> Iterator[RunningControl]:
    control = RunningControl(kinds=KINDS, minutes=2).start()
    yield control
    control.stop()


def series(*values: float, count: int | None = None, at_s: float = 100.0) -> Series:
    return Series(values=values, count=len(values) if count is None else count, at_s=at_s)


def measured(model: ModelId, node: NodeId, at_s: float) -> MeasuredProfile:
    here = Measures(
        node=node,
        revision="r2",
        footprints=({CARD: 3 * GIB, HOST: GIB}, {CARD: 3 * GIB, HOST: GIB}),
        footprint_count=12,
        footprint_at_s=at_s,
        rejected=2,
        series={
            LOAD_COLD: series(12.0, 12.5, 11.5),
            LOAD_WARM: series(4.0, 4.0),
            FIRST_TOKEN_COLD: series(1.5),
            FIRST_TOKEN: series(0.25),
            "token_s_at_1": series(0.02),
            "token_s_at_4": series(0.04),
        },
        at_s=at_s,
    )
    on_cpu = Measures(node=CPU, series={"token_s_at_1": series(0.2)}, at_s=at_s)
    return MeasuredProfile(model=model, measures=(on_cpu, here))


async def prepare(control: RunningControl) -> ModelId:
    """The first model is measured at its home, and told of beside a node of CPUs."""
    lively = control.lively
    name = min(lively.world.models)
    status = lively.world.models[name]
    places = (
        PlaceStatus(place=CARD, kind=PlaceKind.GPU, total_bytes=24 * GIB, used_bytes=9 * GIB),
    )
    unseen = (UnseenMemory(model=ModelId("gone"), held_bytes=GIB, since_s=50.0, others_bytes=0),)
    home = replace(
        lively.world.nodes[status.node], places=places, unseen=unseen, leaked_bytes=2 * GIB
    )
    lively.world = replace(
        lively.world,
        nodes={**lively.world.nodes, home.node: home, CPU: NodeStatus(node=CPU, accelerator="cpu")},
        models={
            **lively.world.models,
            name: replace(
                status,
                residency=Residency.HOT,
                footprint_bytes=3 * GIB,
                split={CARD: 3 * GIB, HOST: GIB},
                footprint_source=FootprintSource.MEASURED,
            ),
        },
    )
    await control.profiles.put((measured(name, status.node, 100.0),))
    await control.freshen()
    return name


async def ask(
    session: aiohttp.ClientSession, control: RunningControl, method: str, path: str
) -> tuple[int, Any]:
    async with session.request(method, control.url + path) as response:
        return response.status, await response.json()


async def test_each_number_says_where_it_comes_from(control: RunningControl, session):
    name = control.do(prepare(control))
    status, body = await ask(session, control, "GET", f"/v1/models/{name}/profile")
    assert status == 200
    assert (body["footprint_bytes"], body["footprint_source"]) == (3 * GIB, "measured")
    assert body["rejected"] == 2
    numbers = {number["name"]: number for number in body["numbers"]}
    card = numbers[f"footprint_bytes:{CARD}"]
    assert (card["value"], card["unit"], card["source"]) == (3 * GIB, "bytes", "measured")
    assert (card["count"], card["spread"], card["at_s"]) == (2, 0.0, 100.0)
    assert card["age_s"] > 0
    assert numbers["footprint_bytes:host_ram"]["value"] == GIB
    assert numbers["load_cold_s"]["value"] == 12.0
    assert numbers["load_cold_s"]["spread"] == pytest.approx(1.4826 * 0.5)
    assert numbers["file_read_s"]["value"] == 8.0
    assert numbers["file_read_s"]["source"] == "derived"
    assert numbers["first_token_after_load_s"]["value"] == 1.5
    assert numbers["batch_gain_at_4"]["value"] == 2.0
    assert numbers["gpu_over_cpu"]["value"] == 10.0
    assert [one["node"] for one in body["configurations"]] == [CPU, body["node"]]


async def test_the_list_of_models_and_nodes_tells_of_places(control: RunningControl, session):
    name = control.do(prepare(control))
    _, body = await ask(session, control, "GET", f"/v1/models/{name}")
    assert body["footprint_source"] == "measured"
    assert body["footprint_places"] == {CARD: 3 * GIB, HOST: GIB}
    assert body["needs_more_than_bytes"] is None
    _, listed = await ask(session, control, "GET", "/v1/nodes")
    node = next(one for one in listed["data"] if one["id"] == body["node"])
    assert node["leaked_bytes"] == 2 * GIB
    (place,) = node["places"]
    assert (place["id"], place["kind"], place["occupied_bytes"]) == (CARD, "gpu", 3 * GIB)
    assert node["unseen"] == [{"model": "gone", "held_bytes": GIB, "since_s": 50.0}]
    async with session.get(control.url + "/metrics") as response:
        text = await response.text()
    home = body["node"]
    assert f'headstart_node_memory_leaked_bytes{{node="{home}"}} {floatToGoString(2 * GIB)}' in text
    assert f'headstart_node_memory_unseen_bytes{{node="{home}"}} {floatToGoString(GIB)}' in text
    assert f'headstart_place_occupied_bytes{{node="{home}",place="{CARD}"}}' in text


async def test_a_profile_is_removed_and_the_controller_told(control: RunningControl, session):
    name = control.do(prepare(control))
    status, body = await ask(session, control, "DELETE", f"/v1/models/{name}/profile")
    assert (status, body["deleted"]) == (200, True)
    assert control.do(control.profiles.get(name)) is None
    _, messages = control.do(control.lively.mailbox.receive("0", block_s=0))
    assert [m.model for m in messages if isinstance(m, ProfileForgotten)] == [name]
    status, body = await ask(session, control, "DELETE", f"/v1/models/{name}/profile")
    assert (status, body["error"]["code"]) == (404, "no_profile")
    status, body = await ask(session, control, "GET", f"/v1/models/{name}/profile")
    assert status == 200
    assert body["numbers"] == []


async def test_what_is_only_told_says_by_whom(control: RunningControl, session):
    async def tell() -> ModelId:
        lively = control.lively
        name = sorted(lively.world.models)[1]
        told = replace(
            lively.world.models[name],
            footprint_bytes=5 * GIB,
            footprint_source=FootprintSource.ESTIMATED,
        )
        lively.world = replace(lively.world, models={**lively.world.models, name: told})
        await control.freshen()
        return name

    name = control.do(tell())
    _, body = await ask(session, control, "GET", f"/v1/models/{name}/profile")
    (number,) = body["numbers"]
    assert (number["name"], number["source"]) == ("footprint_bytes", "localai_estimate")
    assert (number["value"], number["count"]) == (5 * GIB, None)
    status, _ = await ask(session, control, "GET", "/v1/models/nobody/profile")
    assert status == 404


async def test_without_a_store_nothing_is_kept(session):
    control = RunningControl(kinds=KINDS, minutes=2, jobs=False).start()
    try:
        name = min(control.lively.world.models)
        control.do(control.freshen())
        status, _ = await ask(session, control, "GET", f"/v1/models/{name}/profile")
        assert status == 200
        status, body = await ask(session, control, "DELETE", f"/v1/models/{name}/profile")
        assert (status, body["error"]["code"]) == (503, "no_profiles")
    finally:
        control.stop()
