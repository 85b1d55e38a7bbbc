"""Ladders in a gateway and a controller over an emulated LocalAI."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from cli.fallback_stack import FallbackStack
from contracts.events import RequestCompleted, RequestDispatched
from contracts.ids import ModelId
from contracts.variants import Fallback, Ladder, LadderOptions, Rung, RungKind, made_name
from contracts.world import Residency

pytestmark = pytest.mark.integration

SCALE = 30.0
NAME = ModelId("llama")
LLAMA = {
    "name": "llama",
    "footprint_mb": 5000,
    "load_s": 4.0,
    "first_token_s": 0.2,
    "answer_tokens": 20,
    "cpu_factor": 4.0,
    "aliases": ["gpt-4o"],
}
CPU = Rung(
    model=made_name("llama", "cpu"),
    kind=RungKind.CPU,
    is_made=True,
    gpu_layers=0,
    threads=4,
    context_size=2048,
)
LADDER = Ladder(model=NAME, rungs=(CPU,), cpu_factor=4.0)


def stack_of(*models: Mapping[str, Any], ladder: Ladder | None = LADDER, **more: Any):
    ladders = [] if ladder is None else [ladder]
    settings = {"capacity_mb": 8000, "scale": SCALE, "ladders": ladders, **more}
    return FallbackStack(models or (LLAMA,), **settings)


async def chat(stack: FallbackStack, path: str = "/v1/chat/completions", **more: Any):
    headers = {
        f"X-Headstart-{name.title()}": more.pop(name)
        for name in ("fallback", "deadline-ms")
        if name in more
    }
    raw = more.pop("raw", None)
    body = {"model": "llama", "messages": [{"role": "user", "content": "Hi"}], **more}
    data = json.dumps(body).encode() if raw is None else raw
    async with stack.session.post(
        path, data=data, headers={"content-type": "application/json", **headers}
    ) as said:
        return said.status, said.headers, await said.read()


async def held(stack: FallbackStack) -> None:
    """Another program takes the GPU, and the rung is made."""
    await stack.until(lambda: stack.table is not None and "llama" in stack.table.ladders)
    await stack.hold_memory(6000)
    await stack.clock.sleep(2.5)


@pytest.mark.case("P016")
async def test_without_room_a_cpu_answers_under_the_name_that_was_asked_for():
    async with stack_of() as stack:
        await held(stack)
        status, headers, body = await chat(stack)
        assert status == 200
        assert headers["X-Headstart-Model"] == "llama--headstart-cpu"
        assert headers["X-Headstart-Decision"] == "cpu_fallback"
        assert int(headers["Content-Length"]) == len(body)
        assert json.loads(body)["model"] == "llama"
        assert b"headstart" not in body
        # Again, when the rung is there, and as a stream; an alias stays what it was.
        raw = b'{"stream":true,  "messages":[{"role":"user","content":"\\"model\\":\\"llama\\""}],'
        status, headers, body = await chat(stack, raw=raw + b'"model" : "gpt-4o"}')
        assert (status, headers["X-Headstart-Cold"]) == (200, "false")
        assert headers["X-Headstart-Decision"] == "cpu_fallback"
        chunks = [json.loads(line[6:]) for line in body.splitlines() if line.startswith(b"data: {")]
        assert {chunk["model"] for chunk in chunks} == {"gpt-4o"}
        assert body.endswith(b"data: [DONE]\n\n")
        # Its events say what was asked for, and who served it.
        events = [entry.value for entry in await stack.events.read_after("0", count=1000)]
        sent = [event for event in events if isinstance(event, RequestDispatched)]
        assert {(event.model, event.served_by) for event in sent} == {("llama", CPU.model)}
        ended = [event for event in events if isinstance(event, RequestCompleted)]
        assert {event.served_by for event in ended} == {CPU.model}
        # Both are resident at once when the memory is back, and the GPU answers.
        await stack.hold_memory(0)
        routes = lambda: stack.table.models  # noqa: E731
        await stack.until(lambda: routes()["llama"].residency is Residency.HOT)
        assert routes()[CPU.model].residency is Residency.HOT
        status, headers, _ = await chat(stack)
        assert (headers["X-Headstart-Model"], headers["X-Headstart-Decision"]) == (
            "llama",
            "resident",
        )


@pytest.mark.parametrize(
    ("path", "more", "name"),
    [
        ("/v1/messages", {"max_tokens": 8}, lambda said: said["model"]),
        ("/v1/messages", {"max_tokens": 8, "stream": True}, None),
        ("/v1/responses", {"input": "Hi"}, lambda said: said["model"]),
        ("/v1/completions", {"prompt": "Hi"}, lambda said: said["model"]),
        ("/api/chat", {"stream": True}, None),
    ],
)
async def test_each_api_says_the_name_that_was_asked_for(path, more, name):
    async with stack_of() as stack:
        await held(stack)
        status, headers, body = await chat(stack, path, **more)
        assert (status, headers["X-Headstart-Model"]) == (200, CPU.model)
        assert b"headstart" not in body
        assert b'"model":"llama"' in body.replace(b": ", b":")
        if name is not None:
            assert name(json.loads(body)) == "llama"


async def test_an_upload_is_answered_from_the_ladder_too():
    whisper = {**LLAMA, "name": "whisper", "kind": "transcription", "aliases": []}
    cpu = replace(CPU, model=made_name("whisper", "cpu"))
    ladder = Ladder(model=ModelId("whisper"), rungs=(cpu,), cpu_factor=4.0)
    async with stack_of(whisper, ladder=ladder) as stack:
        await stack.until(lambda: stack.table is not None and "whisper" in stack.table.ladders)
        await stack.hold_memory(6000)
        await stack.clock.sleep(2.5)
        form = aiohttp.FormData()
        form.add_field("file", b"RIFF" * 50_000, filename="a.wav", content_type="audio/wav")
        form.add_field("model", "whisper")
        path = "/v1/audio/transcriptions"
        async with stack.session.post(path, data=form) as said:
            assert said.status == 200, await said.text()
            assert said.headers["X-Headstart-Model"] == cpu.model
            assert said.headers["X-Headstart-Decision"] == "cpu_fallback"


@pytest.mark.case("P016")
async def test_nothing_of_it_for_those_who_refuse():
    async with stack_of() as stack:
        await held(stack)
        status, headers, body = await chat(stack, fallback="deny")
        assert (status, headers["X-Headstart-Decision"]) == (503, "never_fits")
        assert json.loads(body)["error"]["type"] == "no_backend"
        await stack.hold_memory(0)
        await stack.clock.sleep(2.5)
        status, headers, _ = await chat(stack, fallback="deny")
        assert (status, headers["X-Headstart-Model"]) == (200, "llama")


@pytest.mark.parametrize(
    ("rule", "word", "served_by"),
    [
        (Fallback.ASK, "allow", CPU.model),
        (Fallback.ASK, None, None),
        (Fallback.DENY, "allow", None),
    ],
)
async def test_a_model_may_want_to_be_asked(rule, word, served_by):
    ladder = Ladder(model=NAME, rungs=(CPU,), fallback=rule, cpu_factor=4.0)
    async with stack_of(ladder=ladder) as stack:
        await held(stack)
        said = {} if word is None else {"fallback": word}
        status, headers, _ = await chat(stack, **said)
        if served_by is None:
            assert status == 503
        else:
            assert (status, headers["X-Headstart-Model"]) == (200, served_by)


async def test_a_cpu_is_not_asked_where_the_gpu_is_sooner():
    """4 s of load and 0.6 s of answer are less than a load of the CPU's and 2.4 s there."""
    async with stack_of() as stack:
        await stack.until(lambda: stack.table is not None and "llama" in stack.table.ladders)
        status, headers, _ = await chat(stack)
        assert (status, headers["X-Headstart-Model"]) == (200, "llama")
        assert stack.table.models[CPU.model].residency is Residency.COLD


async def test_a_resident_rung_answers_while_the_gpu_loads():
    slow = {**LLAMA, "load_s": 60.0, "first_token_s": 0.1}
    small = {**LLAMA, "name": "small", "footprint_mb": 1000, "load_s": 1.0, "aliases": []}
    ladder = Ladder(model=NAME, rungs=(Rung(model=ModelId("small"), kind=RungKind.QUANTISED),))
    async with stack_of(slow, small, ladder=ladder) as stack:
        await stack.server.load("small")
        await stack.until(lambda: stack.table.models["small"].residency is Residency.HOT)
        status, headers, body = await chat(stack)
        assert (status, headers["X-Headstart-Model"]) == (200, "small")
        assert headers["X-Headstart-Decision"] == "smaller_variant"
        assert json.loads(body)["model"] == "llama"
        # Nobody waits for it, and it is loaded all the same.
        await stack.until(lambda: stack.table.models["llama"].residency is Residency.LOADING)


async def test_a_load_that_fails_for_memory_steps_down_one_rung():
    two = {**LLAMA, "name": "half", "footprint_mb": 2000, "aliases": []}
    ladder = Ladder(
        model=NAME,
        rungs=(Rung(model=ModelId("half"), kind=RungKind.QUANTISED), CPU),
        cpu_factor=4.0,
    )
    async with stack_of(LLAMA, two, ladder=ladder) as stack:
        await stack.until(lambda: CPU.model in stack.table.models)
        fault = {
            "kind": "load_fail",
            "model": "llama",
            "times": 1,
            "message": "failed to load model: CUDA error: out of memory",
        }
        await _arm(stack, fault)
        status, headers, _ = await chat(stack)
        assert (status, headers["X-Headstart-Model"]) == (200, "half")
        # It is remembered: the next one does not try it again.
        status, headers, _ = await chat(stack)
        assert (status, headers["X-Headstart-Model"]) == (200, "half")


async def _arm(stack: FallbackStack, fault: Mapping[str, Any]) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{stack.localai_url}/emulator/faults", json=fault) as said,
    ):
        assert said.status == 200, await said.text()


async def test_lists_leave_ours_out_unless_they_are_asked_for():
    async with stack_of() as stack:
        await stack.until(lambda: stack.table is not None and stack.table.ladders)

        async def names(path: str, **headers: str) -> set[str]:
            async with stack.session.get(path, headers=headers) as said:
                assert said.status == 200
                listed = await said.json()
                entries = listed.get("data", listed.get("models"))
                return {entry.get("id", entry.get("name")) for entry in entries}

        everybodys = {"llama", "gpt-4o"}
        for path in ("/v1/models", "/models"):
            assert await names(path) == everybodys
            assert await names(path + "?variants=show") == {*everybodys, CPU.model}
        assert await names("/v1/models", **{"X-Headstart-Variants": "show"}) > everybodys
        assert await names("/v1/models?variants=show", **{"X-Headstart-Variants": "hide"}) == (
            everybodys
        )
        assert all("headstart" not in name for name in await names("/api/tags"))
        async with stack.session.get("/v1/models", headers={"X-Headstart-Variants": "x"}) as said:
            assert said.status == 400
            assert (await said.json())["error"]["param"] == "X-Headstart-Variants"


async def test_one_that_no_table_knows_of_yet_is_left_out_where_any_could_be_made():
    made = {"name": "x--headstart-cpu", "parameters": {"model": "x.gguf"}}
    for makes, shown in ((True, set()), (False, {made["name"]})):
        gateway = {"makes_variants": makes}
        async with stack_of(ladder=None, gateway=gateway, orders=False) as stack:
            await stack.files.write(made)
            async with stack.session.get("/v1/models") as said:
                listed = {model["id"] for model in (await said.json())["data"]}
            assert listed == {"llama", "gpt-4o"} | shown


async def test_a_list_without_ours_is_not_touched():
    async with stack_of(ladder=None) as stack, stack.session.get("/v1/models") as said:
        assert "Transfer-Encoding" not in said.headers
        assert (await said.json())["object"] == "list"


async def test_nothing_is_made_while_nothing_is_ordered():
    async with stack_of(orders=False) as stack:
        await stack.clock.sleep(5.0)
        assert await stack.files.names() == ("gpt-4o", "llama")


async def test_what_is_made_is_marked_and_can_be_taken_away_without_its_weights():
    file = "llama.Q8_0.gguf"
    other = "llama.Q4_K_M.gguf"
    model = {**LLAMA, "file": file}
    rung = Rung(
        model=made_name("llama", "q4_k_m"),
        kind=RungKind.QUANTISED,
        is_made=True,
        quantisation="q4_k_m",
        file=other,
    )
    async with stack_of(model, ladder=Ladder(model=NAME, rungs=(rung, CPU))) as stack:
        await stack.until(lambda: stack.table is not None and CPU.model in stack.table.models)
        made = await stack.files.read(rung.model)
        assert made["headstart"]["made"] is True
        assert (made["headstart"]["of"], made["headstart"]["kind"]) == ("llama", "quantised")
        assert made["parameters"]["model"] == other
        cpu = await stack.files.read(CPU.model)
        assert (cpu["gpu_layers"], cpu["threads"], cpu["context_size"]) == (0, 4, 2048)
        await stack.files.remove(rung.model)
        await stack.files.remove(CPU.model)
        assert await stack.files.names() == ("gpt-4o", "llama")
        assert stack.emulator.catalog.removed_files == []


async def test_options_give_rungs_to_models_that_name_none():
    model = {**LLAMA, "file": "llama.Q8_0.gguf"}
    small = {**LLAMA, "name": "llama-q4", "file": "llama.Q4_K_M.gguf", "aliases": []}
    options = LadderOptions(partial=True, smaller_files=True)
    async with stack_of(model, small, ladder=None, options=options) as stack:
        partial = made_name("llama", "gpu16")
        assert (await chat(stack))[0] == 200
        await stack.until(lambda: stack.table is not None and partial in stack.table.models)
        ladder = stack.table.ladders["llama"]
        assert [(rung.model, rung.kind) for rung in ladder.rungs] == [
            ("llama-q4", RungKind.QUANTISED),
            (partial, RungKind.PARTIAL),
        ]
