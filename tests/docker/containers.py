"""The compose file on a docker daemon without a network of its own: all share the host's.

``docker-compose.yaml`` is taken as it is, but for what such a machine cannot give: ports are
chosen instead of published, names of services become addresses, LocalAI is emulated, and Redis
is the server inside our own image, with the options that the file gives it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from adapters.compose_scaler import ComposeScaler
from cli.ports import free_port

ROOT = Path(__file__).parents[2]
PROJECT = "headstart-test"
GIVEN = os.environ.get("DOCKER_IMAGE")
"""An image that is there already and shall be tested; else one is built."""

IMAGE = GIVEN or f"{PROJECT}:latest"
PATIENCE_S = 600.0
"""What anything may take on a slow machine: a bound, not an expectation."""

_REDIS = (
    "import os, sys; from adapters.server_binary import find_binary; "
    "path = str(find_binary()); os.execv(path, [path, *sys.argv[2:]])"
)
_KILL = "import os, sys, time; os.kill(int(sys.argv[1]), 9); print(time.time())"


def no_docker() -> str | None:
    """Why no container can be run here; None: it can."""
    if shutil.which("docker") is None or _compose() is None:
        return "needs docker and docker compose"
    asked = subprocess.run(
        ["docker", "version", "--format", "{{.Server.Version}}"], capture_output=True, check=False
    )
    return None if asked.returncode == 0 else "no docker daemon answers (DOCKER_HOST)"


def _compose() -> list[str] | None:
    plugin = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)
    if plugin.returncode == 0:
        return ["docker", "compose"]
    return ["docker-compose"] if shutil.which("docker-compose") else None


def build_image() -> None:
    """``IMAGE`` from the Dockerfile, on the base that PYTHON_IMAGE names."""
    if GIVEN is not None:
        return
    base = os.environ.get("PYTHON_IMAGE", "python:3.12-slim")
    command = ["docker", "build", "--network", "host", "--build-arg", f"PYTHON_IMAGE={base}"]
    _run([*command, "--tag", IMAGE, str(ROOT)])


def layers() -> list[tuple[str, str]]:
    """Size and origin of each layer that weighs anything."""
    said = _run(["docker", "history", "--no-trunc", "--format", "{{.Size}}\t{{.CreatedBy}}", IMAGE])
    rows = [line.split("\t", 1) for line in said.splitlines()]
    return [(size, origin) for size, origin in rows if size != "0B"]


class Containers:
    """The services of the compose file, up on this machine."""

    def __init__(self, folder: Path, ports: Mapping[str, int]) -> None:
        self.ports = ports
        self._file = folder / "compose.yaml"
        # JSON is YAML in which no word is anything but a word.
        self._file.write_text(json.dumps(_host_variant(ports)))
        _describe_models(folder)
        compose = _compose()
        assert compose is not None
        self._compose = [*compose, "--project-name", PROJECT, "--file", str(self._file)]

    @property
    def services(self) -> list[str]:
        return sorted(_host_variant(self.ports)["services"])

    @property
    def redis_url(self) -> str:
        return f"redis://127.0.0.1:{self.ports['redis']}/0"

    def up(self) -> None:
        _run([*self._compose, "up", "--detach", "--no-build"])

    def down(self, *, volumes: bool = False) -> None:
        _run([*self._compose, "down", *(["--volumes"] if volumes else [])])

    def health(self, service: str) -> str:
        return str(self._inspect(service)["State"]["Health"]["Status"])

    def restarts(self, service: str) -> int:
        return int(self._inspect(service)["RestartCount"])

    def logs(self, service: str, lines: int = 40) -> str:
        return _run(["docker", "logs", "--tail", str(lines), self._id(service)])

    def run_in(self, service: str, code: str) -> str:
        """What Python says inside the container."""
        return _run(["docker", "exec", self._id(service), "python", "-c", code])

    def kill_process(self, service: str) -> float:
        """``kill -9`` of what the container runs, under its init; when that was."""
        init = int(self._inspect(service)["State"]["Pid"])
        rows = _run(["docker", "top", self._id(service), "-eo", "pid,ppid"]).splitlines()[1:]
        pids = [int(pid) for pid, parent in map(str.split, rows) if int(parent) == init]
        assert pids, service
        return self._kill(pids[0])

    def kill_container(self, service: str) -> float:
        """``kill -9`` of the container itself, as the system would when memory is short.

        ``docker kill`` would count as stopped by hand, and nothing would come back.
        """
        return self._kill(int(self._inspect(service)["State"]["Pid"]))

    def ask(
        self, service: str, path: str, body: object = None, method: str | None = None
    ) -> tuple[int | None, Any]:
        """Status and JSON (else text) of one call; status None: nobody answers."""
        data = None if body is None else json.dumps(body).encode()
        url = f"http://127.0.0.1:{self.ports[service]}{path}"
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(url, data=data, headers=headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                status, said = answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            status, said = error.code, error.read().decode()
        except OSError:
            return None, ""
        try:
            return status, json.loads(said)
        except ValueError:
            return status, said

    def count(self, service: str) -> int:
        labels = {"project": PROJECT, "service": service}
        filters = [f"--filter=label=com.docker.compose.{k}={v}" for k, v in labels.items()]
        return len(_run(["docker", "ps", "--quiet", *filters]).split())

    @contextmanager
    def scaler(self, folder: Path, bounds: str) -> Iterator[ComposeScaler]:
        """What speaks to ``compose-scaler``, which has the socket and little else."""
        socket = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
        path = socket.removeprefix("unix://")
        token = folder / "token"
        token.write_text("t" * 24)
        token.chmod(0o644)
        port = free_port()
        may = ["--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges:true"]
        may += ["--group-add", str(Path(path).stat().st_gid), "--network", "host"]
        may += ["--volume", f"{path}:/var/run/docker.sock", "--volume", f"{token}:/run/token:ro"]
        run = ["docker", "run", "--detach", "--rm", *may, IMAGE, "compose-scaler"]
        run += ["--project", PROJECT, "--allow", bounds, "--token-file", "/run/token"]
        container = _run([*run, "--host", "127.0.0.1", "--port", str(port)]).strip()
        url = f"http://127.0.0.1:{port}"
        try:
            seconds_until(lambda: _answers(f"{url}/healthz"), "the scaler listens")
            yield ComposeScaler(url, token.read_text())
        finally:
            _run(["docker", "rm", "--force", container])

    def _kill(self, pid: int) -> float:
        # By a container that sees the host's processes: whoever may use docker need not be root.
        may = ["--pid", "host", "--network", "none", "--user", "0", "--cap-drop", "ALL"]
        run = ["docker", "run", "--rm", *may, "--cap-add", "KILL", "--entrypoint", "python"]
        return float(_run([*run, IMAGE, "-c", _KILL, str(pid)]))

    def _id(self, service: str) -> str:
        return _run([*self._compose, "ps", "--quiet", service]).strip()

    def _inspect(self, service: str) -> Any:
        return json.loads(_run(["docker", "inspect", self._id(service)]))[0]


@contextmanager
def running(folder: Path, ports: Mapping[str, int]) -> Iterator[Containers]:
    """The containers, and in the end neither they nor their volumes."""
    containers = Containers(folder, ports)
    containers.down(volumes=True)
    try:
        containers.up()
        yield containers
    finally:
        containers.down(volumes=True)


def seconds_until(happened: Callable[[], bool], what: str, since: float | None = None) -> float:
    """How long it took; fails after ``PATIENCE_S``."""
    began = time.monotonic() if since is None else since
    while not happened():
        assert time.monotonic() - began < PATIENCE_S, f"{what}: not within {PATIENCE_S:g} s"
        time.sleep(0.2)
    return time.monotonic() - began


def _host_variant(ports: Mapping[str, int]) -> dict[str, Any]:
    text = re.sub(r"\$\{[A-Z_]+:-([^}]*)\}", r"\1", (ROOT / "docker-compose.yaml").read_text())
    places = {"redis": 6379, "localai": 8080, "gateway": 8080, "control": 8090}
    for name, port in places.items():
        text = re.sub(rf"//{name}:{port}\b", f"//127.0.0.1:{ports[name]}", text)
    document: dict[str, Any] = YAML(typ="safe").load(text)
    services = document["services"]
    services["localai"] = _emulator(services["localai"], ports)
    services["redis"] = _redis(services["redis"], ports)
    own = {f"HEADSTART_{name.upper()}_PORT": ports[name] for name in ("gateway", "control")}
    for service in services.values():
        service.pop("build", None)
        service.pop("ports", None)
        service |= {"image": IMAGE, "network_mode": "host"}
        if "HEADSTART_REDIS_URL" in service.get("environment", {}):
            service["environment"] |= own
    return {"version": "3.7", "services": services, "volumes": document["volumes"]}


def _emulator(localai: Mapping[str, Any], ports: Mapping[str, int]) -> dict[str, Any]:
    port = str(ports["localai"])
    emulate = ["emulate", "--models", "/emulated/models.yaml", "--capacity-mb", "3000"]
    ask = f"import urllib.request as r; r.urlopen('http://127.0.0.1:{port}/readyz')"
    return {
        **{key: localai[key] for key in ("restart", "init", "logging")},
        "command": [*emulate, "--port", port],
        "volumes": ["./emulated:/emulated:ro"],
        "healthcheck": {"test": ["CMD", "python", "-c", ask], "interval": "5s", "timeout": "5s"},
    }


def _redis(redis: Mapping[str, Any], ports: Mapping[str, int]) -> dict[str, Any]:
    port = str(ports["redis"])
    command: Sequence[str] = redis["command"]
    ask = f"import redis; redis.Redis(port={port}).ping()"
    return {
        **{key: redis[key] for key in ("restart", "volumes", "logging")},
        "init": True,
        "user": "0:0",
        "entrypoint": ["python", "-c", _REDIS],
        "command": [*command, "--port", port, "--bind", "127.0.0.1", "--dir", "/data"],
        "healthcheck": {**redis["healthcheck"], "test": ["CMD", "python", "-c", ask]},
    }


def _describe_models(folder: Path) -> None:
    place = folder / "emulated"
    place.mkdir(exist_ok=True)
    place.chmod(0o755)
    models = [
        {"name": name, "kind": "chat", "footprint_mb": 1000, "load_s": 2.0}
        for name in ("first", "second", "third")
    ]
    (place / "models.yaml").write_text(json.dumps({"models": models}))
    (place / "models.yaml").chmod(0o644)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except OSError:
        return False


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command[:6])}…: {done.stderr[-2000:]}"
    return done.stdout
