"""What carries scaling out: LocalAI's distributed mode, and containers of a compose project."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web
from structlog.testing import capture_logs

from adapters.clock import ScaledClock
from adapters.compose_scaler import ComposeScaler
from adapters.docker_engine import (
    NUMBER_LABEL,
    PROJECT_LABEL,
    SERVICE_LABEL,
    DockerServices,
)
from adapters.localai_calls import LocalAICalls
from adapters.localai_replicas import LocalAIReplicas
from cli.compose_scaler import bounds_of, scaler_app
from contracts.config import NodeConfig
from contracts.errors import Invalid, Permanent, Transient
from contracts.ids import NodeId
from contracts.scaling import Replicas
from tests.waiting import until

pytestmark = pytest.mark.integration

TOKEN = "a-token-of-some-length"


class Docker:
    """The part of the Docker Engine that scaling asks: containers with their labels."""

    def __init__(self) -> None:
        self.containers: dict[str, dict[str, Any]] = {}
        self.created: list[dict[str, Any]] = []
        self.refuse: int | None = None
        self.networks: dict[str, Any] = {"p_default": {"IPAddress": "10.0.0.3"}}
        self.starts = True
        self.add("localai", 1)

    def add(self, service: str, number: int, state: str = "running") -> None:
        name = f"id{service}{number}"
        self.containers[name] = {
            "Id": name,
            "State": state,
            "Status": "Up 2 seconds (healthy)" if state == "running" else "Exited",
            "Labels": {
                SERVICE_LABEL: service, PROJECT_LABEL: "p", NUMBER_LABEL: str(number),
            },
        }  # fmt: skip

    def running(self) -> list[str]:
        return sorted(one["Id"] for one in self.containers.values() if one["State"] == "running")

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/containers/json", self._list)
        app.router.add_get("/containers/{id}/json", self._inspect)
        app.router.add_post("/containers/create", self._create)
        app.router.add_post("/containers/{id}/{verb}", self._act)
        app.router.add_delete("/containers/{id}", self._remove)
        return app

    async def _list(self, request: web.Request) -> web.Response:
        if self.refuse is not None:
            return web.json_response({"message": "no"}, status=self.refuse)
        wanted = json.loads(request.query["filters"])["label"]
        found = [
            one
            for one in self.containers.values()
            if set(wanted) <= {f"{name}={value}" for name, value in one["Labels"].items()}
        ]
        return web.json_response(found)

    async def _inspect(self, request: web.Request) -> web.Response:
        one = self.containers[request.match_info["id"]]
        return web.json_response(
            {
                "Id": one["Id"] + "0123",
                "Config": {
                    "Image": "localai/localai:v4",
                    "Env": ["A=b"],
                    "Hostname": one["Id"],
                    "Labels": one["Labels"],
                },
                "HostConfig": {"Binds": ["models:/models"], "PortBindings": {"80/tcp": [{}]}},
                "NetworkSettings": {"Networks": self.networks},
            }
        )

    async def _create(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.created.append({"name": request.query["name"], **body})
        number = int(body["Labels"][NUMBER_LABEL])
        self.add(body["Labels"][SERVICE_LABEL], number, "created")
        return web.json_response({"Id": f"idlocalai{number}"}, status=201)

    async def _act(self, request: web.Request) -> web.Response:
        one = self.containers[request.match_info["id"]]
        starts = request.match_info["verb"] == "start"
        if starts and not self.starts:
            return web.json_response({"message": "no such device"}, status=400)
        one |= {"State": "running", "Status": "Up"} if starts else {"State": "exited"}
        return web.Response(status=204)

    async def _remove(self, request: web.Request) -> web.Response:
        del self.containers[request.match_info["id"]]
        return web.Response(status=204)


@pytest.fixture
async def docker(tmp_path: Path) -> AsyncIterator[tuple[Docker, DockerServices]]:
    docker = Docker()
    runner = web.AppRunner(docker.app())
    await runner.setup()
    await web.UnixSite(runner, str(tmp_path / "docker.sock")).start()
    services = DockerServices(str(tmp_path / "docker.sock"), "p")
    yield docker, services
    await services.close()
    await runner.cleanup()


async def test_another_container_is_made_from_the_settings_of_one_that_is_there(docker):
    engine, services = docker
    await services.scale("localai", 3)
    assert await services.replicas("localai") == Replicas(ready=3, wanted=3)
    first = engine.created[0]
    assert first["name"] == "p-localai-2"
    assert first["Labels"][NUMBER_LABEL] == "2"
    assert (first["Image"], first["Env"]) == ("localai/localai:v4", ["A=b"])
    assert first["HostConfig"] == {"Binds": ["models:/models"], "PortBindings": {}}
    assert first["NetworkingConfig"] == {"EndpointsConfig": {"p_default": {"Aliases": ["localai"]}}}
    assert "Hostname" not in first


async def test_on_a_network_without_names_it_gets_none(docker):
    engine, services = docker
    engine.networks = {"host": {}}
    await services.scale("localai", 2)
    assert engine.created[0]["NetworkingConfig"] == {"EndpointsConfig": {"host": {}}}


async def test_one_that_cannot_start_is_not_left_behind(docker):
    engine, services = docker
    engine.starts = False
    for _ in range(2):
        with pytest.raises(Permanent, match="no such device"):
            await services.scale("localai", 2)
    assert set(engine.containers) == {"idlocalai1"}
    assert [made["name"] for made in engine.created] == ["p-localai-2"] * 2


async def test_the_last_made_go_first_and_the_first_is_only_stopped(docker):
    engine, services = docker
    await services.scale("localai", 3)
    await services.scale("localai", 1)
    assert engine.running() == ["idlocalai1"]
    assert set(engine.containers) == {"idlocalai1"}
    await services.scale("localai", 0)
    assert engine.running() == []
    assert set(engine.containers) == {"idlocalai1"}
    await services.scale("localai", 1)
    assert engine.running() == ["idlocalai1"]
    assert len(engine.created) == 2


async def test_what_still_starts_is_wanted_and_not_ready(docker):
    engine, services = docker
    engine.containers["idlocalai1"]["Status"] = "Up 2 seconds (health: starting)"
    assert await services.replicas("localai") == Replicas(ready=0, wanted=1)


async def test_a_service_that_is_not_there_is_refused_and_an_engine_in_trouble_waited_for(docker):
    engine, services = docker
    with pytest.raises(Permanent, match="no container of service 'other'"):
        await services.scale("other", 2)
    with pytest.raises(Permanent, match="no name of a service"):
        await services.replicas('x"]}')
    engine.refuse = 500
    with pytest.raises(Transient, match="500 no"):
        await services.replicas("localai")
    nowhere = DockerServices("/nowhere.sock", "p")
    with pytest.raises(Transient, match="docker"):
        await nowhere.replicas("localai")
    await nowhere.close()


@pytest.fixture
async def helper(docker) -> AsyncIterator[str]:
    _, services = docker
    runner = web.AppRunner(scaler_app(services, {"localai": (1, 3)}, TOKEN))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def test_the_helper_scales_within_its_bounds_for_who_shows_the_token(docker, helper: str):
    engine, _ = docker
    scaler = ComposeScaler(helper, TOKEN)
    await scaler.scale("localai", 2)
    assert await scaler.replicas("localai") == Replicas(ready=2, wanted=2)
    for wanted in (0, 4):
        with pytest.raises(Permanent, match="must be 1 to 3"):
            await scaler.scale("localai", wanted)
    with pytest.raises(Permanent, match="only localai may be scaled"):
        await scaler.scale("redis", 1)
    for token in (None, "another-token-of-size"):
        with pytest.raises(Permanent, match="401"):
            await ComposeScaler(helper, token).scale("localai", 1)
    assert engine.running() == ["idlocalai1", "idlocalai2"]
    engine.refuse = 500
    with pytest.raises(Transient, match="503"):
        await scaler.replicas("localai")


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"replicas": true}', b'{"replicas": "2"}', b"{}"])
async def test_a_body_that_says_no_number_is_refused(helper: str, body: bytes):
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with (
        ClientSession(headers=headers) as session,
        session.put(f"{helper}/services/localai", data=body) as answer,
    ):
        assert answer.status == 422


async def test_a_helper_that_is_away_is_waited_for():
    with pytest.raises(Transient, match="compose scaler"):
        await ComposeScaler("http://127.0.0.1:1", TOKEN).replicas("localai")


def test_bounds_are_read_and_what_is_wrong_is_said():
    assert bounds_of(["localai=1..4", "image=0..2"]) == {"localai": (1, 4), "image": (0, 2)}
    for word in ("localai", "localai=3", "localai=4..1", "=1..2", "localai=a..b"):
        with pytest.raises(Invalid, match=r"SERVICE=MIN\.\.MAX"):
            bounds_of([word])


class Distributed:
    """LocalAI v4.9's distributed mode as it was seen: replica rows, schedules, two workers."""

    WORKERS = ("worker-1", "worker-2")

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.schedule: dict[str, dict[str, Any]] = {}
        self.loaded_once: set[str] = set()
        self.absent = False
        self.is_busy = False
        self.loads_fail = False
        self.refused: int | None = None

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/api/nodes/models", self._rows)
        app.router.add_get("/api/nodes/scheduling", self._read)
        app.router.add_post("/api/nodes/scheduling", self._write)
        app.router.add_post("/backend/load", self._load)
        app.router.add_post("/backend/shutdown", self._shutdown)
        return app

    def look(self) -> None:
        """What it does every 30 s: more where there are too few, one at a time fewer when idle."""
        for name, rule in self.schedule.items():
            there = [row for row in self.rows if row["model_name"] == name]
            if name in self.loaded_once:
                free = [one for one in self.WORKERS if one not in {r["node_id"] for r in there}]
                for worker in free[: max(0, rule["min_replicas"] - len(there))]:
                    self.add(name, worker)
            for row in there[max(rule["min_replicas"], 1) :]:
                self.rows.remove(row)

    def add(self, name: str, worker: str, state: str = "loaded") -> None:
        self.loaded_once.add(name)
        row = {"model_name": name, "node_id": worker, "replica_index": 0, "state": state}
        self.rows.append({**row, "in_flight": 0})

    async def _models(self, _request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "chat", "object": "model"}]})

    async def _rows(self, _request: web.Request) -> web.Response:
        return self._or_absent(self.rows)

    async def _read(self, _request: web.Request) -> web.Response:
        return self._or_absent(list(self.schedule.values()))

    async def _write(self, request: web.Request) -> web.Response:
        body = await request.json()
        wrong = None
        if not body.get("model_name"):
            wrong = "model_name is required"
        elif body.get("min_replicas", 0) < 0:
            wrong = "min_replicas must be >= 0"
        elif body.get("min_replicas", 0) > body.get("max_replicas", 0):
            wrong = "min_replicas must be <= max_replicas"
        if wrong is not None and not self.absent:
            error = {"error": {"code": 400, "message": wrong, "type": "node_error"}}
            return web.json_response(error, status=400)
        # The whole rule is replaced; the selector is taken as an object, and told as text.
        rule = {"id": "1", "min_replicas": 0, "max_replicas": 0, "unsatisfiable_ticks": 0, **body}
        if "node_selector" in body:
            rule["node_selector"] = json.dumps(body["node_selector"])
        if not self.absent:
            self.schedule[body["model_name"]] = rule
        return self._or_absent(rule)

    async def _load(self, request: web.Request) -> web.Response:
        name = (await request.json())["model"]
        if self.loads_fail:
            said = {"loaded": None, "message": "failed to load model: no node"}
            return web.json_response(said, status=500)
        self.add(name, self.WORKERS[0])
        return web.json_response({"loaded": [name], "message": "model loaded"})

    async def _shutdown(self, request: web.Request) -> web.Response:
        name = (await request.json())["model"]
        if self.is_busy:
            error = {"error": {"code": 500, "message": "model is still busy", "type": ""}}
            return web.json_response(error, status=500)
        if name not in {row["model_name"] for row in self.rows}:
            error = {"error": {"code": 404, "message": "Resource not found", "type": ""}}
            return web.json_response(error, status=404)
        self.rows = [row for row in self.rows if row["model_name"] != name]
        return web.json_response({"message": "model stopped"})

    def _or_absent(self, body: object) -> web.Response:
        if self.refused is not None:
            error = {"error": {"code": self.refused, "message": "no", "type": ""}}
            return web.json_response(error, status=self.refused)
        if self.absent:
            error = {"error": {"code": 404, "message": "Resource not found", "type": ""}}
            return web.json_response(error, status=404)
        return web.json_response(body)


@pytest.fixture
async def distributed() -> AsyncIterator[tuple[Distributed, LocalAIReplicas]]:
    server = Distributed()
    runner = web.AppRunner(server.app())
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    clock = ScaledClock(1_000.0)
    calls = LocalAICalls(NodeConfig(node=NodeId("n"), url=url), clock)
    scaler = LocalAIReplicas(calls, clock)
    yield server, scaler
    await scaler.close()
    await runner.cleanup()


async def test_replicas_of_a_model_are_told_by_rows_and_set_by_schedule(distributed):
    server, scaler = distributed
    server.add("chat", "worker-1")
    server.add("chat", "worker-2", "loading")
    server.add("other", "worker-1")
    assert await scaler.replicas("chat") == Replicas(ready=1, wanted=1)
    await scaler.scale("chat", 3)
    rule = server.schedule["chat"]
    assert (rule["min_replicas"], rule["max_replicas"]) == (3, 3)
    assert "node_selector" not in rule
    assert await scaler.replicas("chat") == Replicas(ready=1, wanted=3)


async def test_what_somebody_set_beside_the_numbers_is_kept(distributed):
    server, scaler = distributed
    server.add("chat", "worker-1")
    server.schedule["chat"] = {
        "model_name": "chat", "min_replicas": 1, "max_replicas": 1,
        "node_selector": '{"tier":"fast"}',
    }  # fmt: skip
    await scaler.scale("chat", 2)
    assert server.schedule["chat"]["node_selector"] == '{"tier": "fast"}'
    server.schedule["chat"]["node_selector"] = "no JSON"
    await scaler.scale("chat", 1)
    assert "node_selector" not in server.schedule["chat"]
    server.schedule["chat"]["spread_all"] = True
    with pytest.raises(Permanent, match="on every node"):
        await scaler.scale("chat", 2)


async def test_the_first_one_is_loaded_and_localai_copies_it(distributed):
    server, scaler = distributed
    await scaler.scale("chat", 2)
    await scaler.scale("chat", 2)
    server.look()
    assert server.rows == []
    await until(lambda: server.rows)
    await until(lambda: not scaler._first)
    assert len(server.rows) == 1
    server.look()
    assert await scaler.replicas("chat") == Replicas(ready=2, wanted=2)
    await scaler.scale("chat", 1)
    await until(lambda: not scaler._first)
    server.look()
    assert await scaler.replicas("chat") == Replicas(ready=1, wanted=1)


async def test_for_none_the_model_is_stopped_since_localai_keeps_one(distributed):
    server, scaler = distributed
    server.add("chat", "worker-1")
    await scaler.scale("chat", 2)
    server.is_busy = True
    with pytest.raises(Transient, match="still busy"):
        await scaler.scale("chat", 0)
    server.is_busy = False
    await scaler.scale("chat", 0)
    server.look()
    assert await scaler.replicas("chat") == Replicas(ready=0, wanted=0)
    await scaler.scale("chat", 0)
    assert not scaler._first


async def test_a_first_load_that_fails_is_told_and_tried_with_the_next_order(distributed):
    server, scaler = distributed
    server.loads_fail = True
    with capture_logs() as logs:
        await scaler.scale("chat", 1)
        await until(lambda: not scaler._first)
        server.loads_fail = False
        await scaler.scale("chat", 1)
        await until(lambda: not scaler._first)
    assert [line["event"] for line in logs] == ["first_replica_not_loaded", "first_replica_loaded"]
    assert "no node" in logs[0]["error"]


async def test_a_key_that_may_not_manage_is_refused_and_a_localai_in_trouble_waited_for(
    distributed,
):
    server, scaler = distributed
    server.refused = 401
    with pytest.raises(Permanent, match="no"):
        await scaler.replicas("chat")
    server.refused = 503
    with pytest.raises(Transient, match="no"):
        await scaler.scale("chat", 1)
    server.refused = None
    with pytest.raises(Permanent, match="must be >= 0"):
        await scaler.scale("chat", -1)


async def test_a_model_that_is_unknown_and_a_localai_that_is_alone_are_refused(distributed):
    server, scaler = distributed
    with pytest.raises(Permanent, match="no model 'nope'"):
        await scaler.scale("nope", 1)
    assert server.schedule == {}
    server.absent = True
    for call in (scaler.replicas("chat"), scaler.scale("chat", 1)):
        with pytest.raises(Permanent, match="distributed mode"):
            await call
