"""Reports on queues, priorities and swaps, replayed through gateway, controller and emulator."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import aiohttp
import pytest

from contracts.config import ModelProfile, QueueConfig
from contracts.events import PriorityClass, RequestCancelled, RequestReceived
from contracts.ids import ModelId
from contracts.messages import LoadRequested
from tests.house import Answer, RunningHouse
from tests.waiting import until

pytestmark = pytest.mark.integration

REALTIME, BATCH, BACKGROUND = PriorityClass
A, B = ModelId("a"), ModelId("b")


def model(name: str, *, load_s: float = 5.0, parallel: int = 8, **fields: Any) -> dict[str, Any]:
    return {
        "name": name,
        "footprint_mb": 8_000,
        "load_s": load_s,
        "parallel": parallel,
        "first_token_s": 0.05,
        **fields,
    }


def one_at_a_time(*models: dict[str, Any], **settings: Any) -> RunningHouse:
    """Room for one of the models."""
    return RunningHouse(models, capacity_mb=10_000, **settings)


def queues(most: int = 100, wait_s: float = 600.0, **fields: Any) -> QueueConfig:
    return QueueConfig(
        capacity=dict.fromkeys(PriorityClass, most),
        timeout_s=dict.fromkeys(PriorityClass, wait_s),
        **fields,
    )


def of_class(priority: PriorityClass, **more: str) -> dict[str, str]:
    return {"X-Headstart-Class": priority.value, **more}


def in_house(house: RunningHouse, work: Any) -> Any:
    """Run ``work(house, session)`` against a house that is up."""

    async def run() -> Any:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            return await work(house, session)

    return asyncio.run(run())


async def at_once(*asked: Coroutine[Any, Any, Answer]) -> list[Answer]:
    return list(await asyncio.gather(*asked))


def statuses(answers: list[Answer]) -> list[int]:
    return [answer.status for answer in answers]


def started(house: RunningHouse, name: str) -> list[str]:
    """Requests of a model in the order in which LocalAI began them."""
    return [event["request_id"] for event in house.emulator.events("request_started", model=name)]


@pytest.mark.case("P013")
def test_a_mixed_queue_is_served_model_by_model():
    names = "abaacabc"

    async def work(house, session):
        asked = []
        for number, name in enumerate(names):
            sent = {"X-Request-ID": f"{name}{number}"}
            asked.append(asyncio.create_task(house.chat(session, name, headers=sent)))
            await asyncio.sleep(0.002)
        return await asyncio.gather(*asked)

    slots = dict.fromkeys("abc", 1)
    models = [model(name) for name in "abc"]
    with one_at_a_time(*models, slots=slots, planner={"turn_s": 30.0}) as house:
        answers = in_house(house, work)
        assert statuses(answers) == [200] * len(names)
        assert sorted(house.loads()) == ["a", "b", "c"]
        for name in "abc":
            order = started(house, name)
            assert order == sorted(order, key=lambda one: int(one[1:]))


@pytest.mark.case("P014")
def test_a_chat_comes_after_the_running_image_and_the_images_go_on():
    async def work(house, session):
        images = [
            asyncio.create_task(
                house.chat(
                    session,
                    "a",
                    service_s=20.0,
                    headers=of_class(BATCH, **{"X-Request-ID": f"i{n}"}),
                )
            )
            for n in range(5)
        ]
        while not house.emulator.events("request_started", model="a"):
            await house.clock.sleep(0.5)
        await house.clock.sleep(5.0)
        chat = await house.chat(session, "b", service_s=0.5)
        return chat, await asyncio.gather(*images)

    config = queues(max_preemptions=0)
    with one_at_a_time(model("a"), model("b"), slots={"a": 1}, queue=config, scale=40.0) as house:
        chat, images = in_house(house, work)
        assert (chat.status, statuses(images)) == (200, [200] * 5)
        assert house.loads() == ["a", "b", "a"]
        kinds = ("request_started", "request_ended", "load_started")
        seen = [(event["kind"], event["model"]) for event in house.emulator.events(*kinds)]
        assert seen.index(("load_started", "b")) == 3, "one image was served before it, whole"


@pytest.mark.case("P048")
def test_those_who_waited_for_a_load_go_by_slots_and_no_more_wait_than_may():
    async def work(house, session):
        return await at_once(*(house.chat(session, "a", service_s=0.5) for _ in range(60)))

    config = queues(20)
    with one_at_a_time(model("a", load_s=10.0), slots={"a": 2}, queue=config) as house:
        answers = in_house(house, work)
        refused = [answer for answer in answers if answer.status == 429]
        assert (len(refused), statuses(answers).count(200)) == (40, 20)
        assert all(int(answer.headers["Retry-After"]) >= 1 for answer in refused)
        assert house.most_at_once("a") == 2
        assert house.loads() == ["a"]


@pytest.mark.case("P142")
def test_an_upstream_that_hangs_collects_no_more_than_may_wait_and_not_for_longer():
    async def work(house, session):
        hanging = asyncio.create_task(house.chat(session, "a", service_s=100_000.0))
        await house.emulator.wait_for("request_started", model="a")
        waiting = [asyncio.create_task(house.chat(session, "a")) for _ in range(50)]
        await until(lambda: house.gateway.service.waiting() == {A: 50})
        more = await at_once(*(house.chat(session, "a") for _ in range(20)))
        waited = await asyncio.gather(*waiting)
        hanging.cancel()
        await asyncio.wait({hanging})
        return more, waited

    with one_at_a_time(model("a"), slots={"a": 1}, queue=queues(50, 60.0), scale=50.0) as house:
        more, waited = in_house(house, work)
        assert statuses(more) == [429] * 20
        assert statuses(waited) == [503] * 50
        assert all(b'"queue_timeout"' in answer.body for answer in waited)
        assert all("Retry-After" in answer.headers for answer in more + waited)
        assert not house.gateway.service.waiting()
        assert len(started(house, "a")) == 1


@pytest.mark.case("P143")
@pytest.mark.parametrize("warm", [True, False])
def test_the_limit_is_the_same_warm_and_cold(warm):
    async def work(house, session):
        if warm:
            await house.chat(session, "a", service_s=0.1)
        asked = [asyncio.create_task(house.chat(session, "a", service_s=3.0)) for _ in range(6)]
        return await asyncio.gather(*asked)

    with one_at_a_time(model("a"), slots={"a": 1}, queue=queues(1)) as house:
        answers = in_house(house, work)
        # Warm one runs and one waits; cold one waits for the load.
        assert statuses(answers).count(200) == (2 if warm else 1)
        assert statuses(answers).count(429) == (4 if warm else 5)
        assert house.most_at_once("a") == 1


@pytest.mark.case("P152")
def test_a_warm_model_never_waits_behind_the_load_of_another():
    async def work(house, session):
        await house.chat(session, "a", service_s=0.1)
        cold = asyncio.create_task(house.chat(session, "b", service_s=0.1))
        warm = []
        for _ in range(20):
            await house.clock.sleep(0.5)
            warm.append(asyncio.create_task(house.chat(session, "a", service_s=0.1)))
        return await asyncio.gather(*warm), await cold

    with RunningHouse([model("a"), model("b", load_s=20.0)], capacity_mb=20_000) as house:
        warm, cold = in_house(house, work)
        assert statuses(warm) == [200] * 20
        assert all(answer.queue_s == 0.0 for answer in warm)
        assert (cold.status, cold.headers["X-Headstart-Cold"]) == (200, "true")
        assert house.loads() == ["a", "b"]


@pytest.mark.case("P034")
def test_the_title_of_a_chat_does_not_swap_its_model_out():
    async def work(house, session):
        first = await house.chat(session, "a", service_s=0.5)
        await house.clock.sleep(2.0)
        title = asyncio.create_task(
            house.chat(session, "b", service_s=0.5, headers=of_class(BACKGROUND))
        )
        await house.clock.sleep(5.0)
        second = await house.chat(session, "a", service_s=0.5)
        return first, second, await title

    with one_at_a_time(model("a"), model("b"), scale=40.0) as house:
        first, second, title = in_house(house, work)
        assert statuses([first, second, title]) == [200] * 3
        assert second.headers["X-Headstart-Cold"] == "false"
        assert house.loads() == ["a", "b"]


@pytest.mark.case("P140")
def test_a_chat_is_told_that_it_waits_for_background_work_and_both_complete():
    async def work(house, session):
        agent = asyncio.create_task(
            house.chat(session, "a", service_s=30.0, headers=of_class(BACKGROUND))
        )
        await house.emulator.wait_for("request_started", model="a")
        chat = await house.chat(session, "a", service_s=0.5, stream=True)
        return chat, await agent

    config = queues(max_preemptions=0)
    with one_at_a_time(model("a"), slots={"a": 1}, queue=config, keepalive_s=5.0) as house:
        chat, agent = in_house(house, work)
        assert statuses([chat, agent]) == [200, 200]
        assert chat.body.startswith(b": headstart ")
        assert chat.body.endswith(b"data: [DONE]\n\n")
        assert house.most_at_once("a") == 1


@pytest.mark.case("P140")
def test_by_default_the_background_work_yields_and_comes_back():
    async def work(house, session):
        async def agent():
            tries: list[Answer] = []
            while not tries or tries[-1].status == 503:
                if tries:
                    await house.clock.sleep(float(tries[-1].headers["Retry-After"]))
                sent = of_class(BACKGROUND)
                tries.append(await house.chat(session, "a", service_s=30.0, headers=sent))
            return tries

        working = asyncio.create_task(agent())
        await house.emulator.wait_for("request_started", model="a")
        chat = await house.chat(session, "a", service_s=0.5)
        return chat, await working

    with one_at_a_time(model("a"), slots={"a": 1}, queue=queues()) as house:
        chat, tries = in_house(house, work)
        assert chat.status == 200
        assert statuses(tries) == [503, 200]
        assert b'"preempted"' in tries[0].body
        assert tries[0].headers["X-Headstart-Decision"] == "preempted"
        (cancelled,) = house.told(RequestCancelled)
        assert cancelled.reason == "preempted"
        assert len(house.emulator.events("caller_left", model="a")) == 1
        received = house.told(RequestReceived)
        assert [event.is_retry for event in received].count(True) == 1, "one demand"


@pytest.mark.case("P141")
def test_a_flood_of_embeddings_does_not_slow_a_chat_and_comes_to_its_end():
    async def work(house, session):
        flood = [
            asyncio.create_task(
                house.chat(
                    session,
                    "a",
                    service_s=0.4,
                    headers={**of_class(BATCH), "Authorization": "Bearer x"},
                )
            )
            for _ in range(120)
        ]
        await house.emulator.wait_for("request_started", model="a")
        chats = []
        for _ in range(5):
            await house.clock.sleep(1.0)
            sent = {"Authorization": "Bearer y"}
            chats.append(await house.chat(session, "a", service_s=0.4, headers=sent))
        return chats, await asyncio.gather(*flood)

    config = queues(200)
    with one_at_a_time(model("a"), slots={"a": 4}, queue=config, scale=10.0) as house:
        chats, flood = in_house(house, work)
        assert statuses(chats) == [200] * 5
        assert statuses(flood) == [200] * 120
        order = [event["request_id"] for event in house.emulator.events("request_received")]
        assert len(order) == 125
        # Each chat had the next slot that got free, and never waited for the whole flood.
        waits = sorted(answer.queue_s for answer in chats)
        assert waits[-1] < max(answer.queue_s for answer in flood) / 4
        assert house.most_at_once("a") == 4


@pytest.mark.case("P141")
def test_what_goes_beyond_the_queue_is_told_when_to_come_again():
    async def work(house, session):
        return await at_once(
            *(house.chat(session, "a", headers=of_class(BATCH)) for _ in range(30))
        )

    with one_at_a_time(model("a"), slots={"a": 4}, queue=queues(10)) as house:
        answers = in_house(house, work)
        refused = [answer for answer in answers if answer.status == 429]
        assert len(refused) == 20
        assert all(int(answer.headers["Retry-After"]) >= 1 for answer in refused)


@pytest.mark.case("P144")
def test_a_client_that_gives_up_and_tries_again_has_one_try_at_a_time():
    async def work(house, session):
        for _ in range(3):
            asked = asyncio.create_task(house.chat(session, "a", headers={"X-Request-ID": "sdk"}))
            await house.clock.sleep(5.0)
            asked.cancel()
            await asyncio.wait({asked})
            await until(lambda: not house.gateway.service.waiting())
        return await house.chat(session, "a", headers={"X-Request-ID": "sdk"})

    with one_at_a_time(model("a", load_s=20.0)) as house:
        last = in_house(house, work)
        assert last.status == 200
        assert house.loads() == ["a"]
        assert len(started(house, "a")) == 1
        assert len(house.told(RequestCancelled)) == 3


@pytest.mark.case("P144")
def test_what_is_refused_and_comes_again_is_one_demand():
    async def work(house, session):
        running = asyncio.create_task(house.chat(session, "a", service_s=10.0))
        await house.emulator.wait_for("request_started", model="a")
        waiting = asyncio.create_task(house.chat(session, "a"))
        await until(house.gateway.service.waiting)
        body = {"seed": 1}
        tries = [await house.chat(session, "a", **body) for _ in range(3)]
        other = await house.chat(session, "a", seed=2)
        await asyncio.gather(running, waiting)
        return [*tries, other]

    with one_at_a_time(model("a"), slots={"a": 1}, queue=queues(1)) as house:
        refused = in_house(house, work)
        assert statuses(refused) == [429] * 4
        assert all(int(answer.headers["Retry-After"]) >= 1 for answer in refused)
        received = house.told(RequestReceived)
        assert [event.is_retry for event in received] == [False, False, False, True, True, False]


@pytest.mark.case("P011")
def test_two_models_at_the_same_moment_are_two_loads():
    async def work(house, session):
        return await at_once(house.chat(session, "a"), house.chat(session, "b"))

    with one_at_a_time(model("a", load_s=3.0), model("b", load_s=3.0)) as house:
        answers = in_house(house, work)
        assert statuses(answers) == [200, 200]
        assert sorted(house.loads()) == ["a", "b"]
        assert len(started(house, "a")) == len(started(house, "b")) == 1


@pytest.mark.case("P012")
def test_a_tool_that_calls_two_models_has_no_connection_cut():
    async def work(house, session):
        architect = asyncio.create_task(house.chat(session, "a"))
        await house.clock.sleep(0.2)
        return await at_once(house.chat(session, "b")), await architect

    with one_at_a_time(model("a"), model("b")) as house:
        (editor,), architect = in_house(house, work)
        assert statuses([architect, editor]) == [200, 200]
        assert len(house.loads()) == 2
        assert house.swaps() == 1
        assert not house.emulator.events("caller_left")


@pytest.mark.case("P022")
def test_many_callers_and_an_operator_at_once_are_one_load():
    async def work(house, session):
        asked = [asyncio.create_task(house.chat(session, "a")) for _ in range(8)]
        wish = LoadRequested(model=A, at_s=house.clock.now_s())
        await asyncio.wrap_future(
            asyncio.run_coroutine_threadsafe(
                house.gateway.to_controller.send(wish), house.gateway._loop
            )
        )
        return await asyncio.gather(*asked)

    with RunningHouse([model("a", load_s=4.0)]) as house:
        answers = in_house(house, work)
        assert statuses(answers) == [200] * 8
        assert house.loads() == ["a"]


@pytest.mark.case("P010")
def test_a_model_that_loads_is_not_sent_away_before_it_has_served():
    async def work(house, session):
        first = asyncio.create_task(house.chat(session, "a"))
        await house.clock.sleep(2.0)
        return await at_once(house.chat(session, "b")), await first

    with one_at_a_time(model("a", load_s=20.0), model("b")) as house:
        (second,), first = in_house(house, work)
        assert statuses([first, second]) == [200, 200]
        assert house.loads() == ["a", "b"]
        kinds = ("request_ended", "unloaded")
        seen = [(event["kind"], event["model"]) for event in house.emulator.events(*kinds)]
        assert seen[:2] == [("request_ended", "a"), ("unloaded", "a")]


def test_a_refusal_for_want_of_a_slot_costs_its_caller_only_time():
    """LocalAI takes three at once, of all models, which nobody has told us."""

    async def work(house, session):
        await house.chat(session, "a", service_s=0.1)
        plain = [house.chat(session, "a", service_s=1.0) for _ in range(6)]
        streams = [house.chat(session, "a", service_s=1.0, stream=True) for _ in range(6)]
        return await at_once(*plain, *streams)

    with one_at_a_time(
        model("a", parallel=16), emulator={"max_concurrent": 3}, queue=queues()
    ) as house:
        answers = in_house(house, work)
        assert statuses(answers) == [200] * 12
        assert all(b"capacity reached" not in answer.body for answer in answers)
        assert house.most_at_once("a") == 3


def test_slots_of_localais_own_file_are_kept():
    async def work(house, session):
        return await at_once(*(house.chat(session, "a", service_s=0.5) for _ in range(8)))

    limited = model("a", parallel=16, limits={"max_concurrent": 2})
    with one_at_a_time(limited, queue=queues()) as house:
        answers = in_house(house, work)
        assert statuses(answers) == [200] * 8
        assert house.most_at_once("a") == 2


def test_realtime_takes_the_place_of_a_model_that_only_workers_use():
    async def work(house, session):
        sent = of_class(BACKGROUND, **{"X-Headstart-Preempt": "anytime", "X-Request-ID": "job"})
        job = asyncio.create_task(house.chat(session, "a", service_s=200.0, headers=sent))
        await house.emulator.wait_for("request_started", model="a")
        chat = await house.chat(session, "b", service_s=0.2)
        return chat, await job

    with one_at_a_time(
        model("a"), model("b"), profiles=[ModelProfile(model=B, footprint_bytes=None)]
    ) as house:
        chat, job = in_house(house, work)
        assert (chat.status, job.status) == (200, 503)
        assert b'"preempted"' in job.body
        assert house.loads() == ["a", "b"]
        reasons = [decision.reason.value for decision in house.decisions()]
        assert "preempted" in reasons
