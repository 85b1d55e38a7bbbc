"""Compose files that run LocalAI → ``headstart.yaml``, and the services to put beside it.

The file itself is never changed: what Headstart needs comes as a file of its own that compose
merges (``docker compose -f theirs.yaml -f headstart.yaml``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from adapters.import_parts import YES, Imported, seconds_of, truth_of
from adapters.settings_problems import shown

KIND = "a compose file"

LOCALAI_PORT = 8080
OUR_PORT = 8080
SPARE_PORT = 8088

_IMAGE = re.compile(r"(?:^|/)local-?ai(?:[:@/\-]|$)", re.IGNORECASE)
_VARIABLE = re.compile(r"\$\{(\w+)(?::?[-?]([^{}]*))?\}|\$(\w+)")
_PORT = re.compile(r"[0-9]{1,5}")
_HOST_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]*")
_FIGHTING = {
    "LOCALAI_MAX_ACTIVE_BACKENDS": "its limit counts models, not bytes",
    "LOCALAI_SINGLE_ACTIVE_BACKEND": "two models can never be loaded together, and no prefetch "
    "helps",
    "LOCALAI_WATCHDOG_IDLE": "it unloads by time what was loaded ahead",
    "LOCALAI_WATCHDOG_BUSY": "it ends long answers",
    "LOCALAI_MEMORY_RECLAIMER": "it unloads behind the plan's back",
}
_NUMBERS = {
    "LOCALAI_UPLOAD_LIMIT": ("gateway", "max_body_mb", 1.0, 1024.0**2),
    "LOCALAI_MODEL_CACHE_SIZE": ("optimization", "cache_size_gb", 0.0, 1024.0**2),
    "LOCALAI_PARALLEL_LOAD": ("scheduler", "parallel_loads", 1.0, 64.0),
}
"""What takes a number: our key for it, and the least and the most that it takes."""

_SHAPES: tuple[tuple[str, Any, str], ...] = (
    ("environment", Mapping | list, "a mapping or a list"),
    ("command", str | list, "a text or a list"),
    ("ports", list, "a list"),
    ("volumes", list, "a list"),
    ("devices", list, "a list"),
)
"""What is looked at of a service, and what it has to be."""

_OLD_NAMES = {
    "SINGLE_ACTIVE_BACKEND": "LOCALAI_SINGLE_ACTIVE_BACKEND",
    "MAX_ACTIVE_BACKENDS": "LOCALAI_MAX_ACTIVE_BACKENDS",
    "WATCHDOG_IDLE": "LOCALAI_WATCHDOG_IDLE",
    "WATCHDOG_BUSY": "LOCALAI_WATCHDOG_BUSY",
    "UPLOAD_LIMIT": "LOCALAI_UPLOAD_LIMIT",
    "API_KEY": "LOCALAI_API_KEY",
    "MODELS_PATH": "LOCALAI_MODELS_PATH",
}
_ACCELERATORS = (("/dev/kfd", "rocm"), ("/dev/dri", "vulkan"))


def is_compose(document: object) -> bool:
    """Whether it has services."""
    return isinstance(document, Mapping) and isinstance(document.get("services"), Mapping)


def merged_compose(documents: list[Mapping[str, Any]]) -> dict[str, Any]:
    """A base file and its overlays, merged as compose does for what is read here."""
    services: dict[str, dict[str, Any]] = {}
    for document in documents:
        for name, spec in document["services"].items():
            known = services.setdefault(str(name), {})
            if not isinstance(spec, Mapping):
                continue
            for key, value in spec.items():
                if key == "environment" and isinstance(value, Mapping | list):
                    both = {**variables_of(known.get(key)), **variables_of(value)}
                    known[key] = both
                elif key in ("ports", "volumes", "devices") and isinstance(value, list):
                    known[key] = [*_listed(known.get(key)), *value]
                else:
                    known[key] = value
    return {"services": services}


def import_compose(document: Mapping[str, Any], environ: Mapping[str, str]) -> Imported:
    """What its LocalAI services say."""
    result = Imported(KIND)
    found = list(localai_services(document))
    if not found:
        result.note("no service runs LocalAI, as far as its image tells")
    backends = []
    for name, spec in found:
        if not _has_address(result, name, spec):
            continue
        told = {
            _OLD_NAMES.get(key, key): expanded(value, environ, result)
            for key, value in variables_of(spec.get("environment")).items()
        }
        _settings(result, name, told)
        _commands(result, name, spec.get("command"))
        if spec.get("env_file") is not None:
            result.note(f"services.{name}.env_file: is not read; set its LOCALAI_* here")
        where = f"http://{name}:{LOCALAI_PORT}"
        backends.append(
            {"name": name, "url": where, **_accelerator(spec), **_models_path(spec, told)}
        )
    if len(backends) == 1:
        (only,) = backends
        for key in ("url", "accelerator", "models_path"):
            if key in only:
                result.put("localai", key, only[key])
    elif backends:
        result.put("localai", "backends", backends)
    return result


def _has_address(result: Imported, name: str, spec: Mapping[str, Any]) -> bool:
    """Whether a service can be spoken to by its name; what of it has an odd shape is told."""
    for key, kinds, takes in _SHAPES:
        if not isinstance(spec.get(key), kinds | None):
            result.odd(f"services.{name}.{key}", spec[key], takes)
    if _HOST_NAME.fullmatch(name):
        return True
    result.odd("services", name, "a name of letters, digits, - and _, to be an address")
    return False


def sidecar(document: Mapping[str, Any]) -> dict[str, Any]:
    """A compose file of its own with Headstart beside LocalAI; no service of theirs is in it."""
    services = [name for name, _ in localai_services(document)]
    target = services[0] if services else "localai"
    taken = {port for spec in document["services"].values() for port in host_ports(spec)}
    port = OUR_PORT if OUR_PORT not in taken else SPARE_PORT
    while port in taken:
        port += 1
    return {
        "services": {
            "headstart": {
                "image": "headstart:latest",
                "command": ["up"],
                "environment": {
                    "HEADSTART_LOCALAI_URL": f"http://{target}:{LOCALAI_PORT}",
                    "HEADSTART_DATA_DIR": "/var/lib/headstart",
                },
                "ports": [f"{port}:{OUR_PORT}", "127.0.0.1:8090:8090"],
                "volumes": [
                    "./headstart.yaml:/etc/headstart/headstart.yaml:ro",
                    "headstart:/var/lib/headstart",
                ],
                "depends_on": [target],
                "restart": "unless-stopped",
            }
        },
        "volumes": {"headstart": {}},
    }


def localai_services(document: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The services whose image is LocalAI's."""
    for name, spec in document["services"].items():
        if isinstance(spec, Mapping) and _IMAGE.search(str(spec.get("image", ""))):
            yield str(name), spec


def variables_of(environment: object) -> dict[str, str]:
    """The environment of a service, written as a mapping or as a list."""
    if isinstance(environment, Mapping):
        return {str(k): "" if v is None else _word(v) for k, v in environment.items()}
    found = {}
    for line in _listed(environment):
        name, _, value = str(line).partition("=")
        found[name.strip()] = value
    return found


def expanded(text: str, environ: Mapping[str, str], result: Imported) -> str:
    """``${NAME:-default}`` as compose reads it; what is set nowhere is told, and is empty."""

    def value_of(match: re.Match[str]) -> str:
        name = match[1] or match[3]
        known = environ.get(name)
        if known:
            return known
        if match[2] is None:
            result.note(f"the environment variable {name} is not set")
        return match[2] or ""

    return _VARIABLE.sub(value_of, text)


def host_ports(spec: object) -> Iterator[int]:
    """Ports of the machine that a service takes."""
    for port in _listed(spec.get("ports") if isinstance(spec, Mapping) else None):
        told = port.get("published") if isinstance(port, Mapping) else str(port)
        parts = str(told).split("/")[0].split(":")
        host = parts[0] if isinstance(port, Mapping) else parts[-2] if len(parts) > 1 else ""
        if _PORT.fullmatch(host):
            yield int(host)


def _settings(result: Imported, name: str, told: Mapping[str, str]) -> None:
    for variable, value in told.items():
        where = f"services.{name}: {variable}"
        if variable in _NUMBERS and value.strip():
            _number(result, where, variable, value)
        elif variable == "LOCALAI_PRELOAD_MODELS" and truth_of(value) is None:
            for model in filter(None, map(str.strip, value.split(","))):
                if result.takes_name(where, model):
                    result.put("models", model, "preload", YES)
        else:
            _remark(result, where, variable, value)


def _number(result: Imported, where: str, variable: str, value: str) -> None:
    section, key, least, most = _NUMBERS[variable]
    number = seconds_of(value)
    if number is None or not least <= number <= most:
        result.odd(where, value, f"a number from {least:g} to {most:g}")
    elif variable == "LOCALAI_MODEL_CACHE_SIZE":
        result.put(section, key, number)
    else:
        result.put(section, key, int(number))


def _remark(result: Imported, where: str, variable: str, value: str) -> None:
    if variable == "LOCALAI_API_KEY" and value:
        result.note(f"{where}: is not copied: set HEADSTART_LOCALAI_API_KEY to it")
    elif variable in _FIGHTING and _is_on(value):
        result.note(
            f"{where} = {shown(value)}: {_FIGHTING[variable]}; start LocalAI without it once "
            "Headstart is active"
        )


def _is_on(value: str) -> bool:
    is_true = truth_of(value)
    return bool(seconds_of(value)) if is_true is None else is_true


def _commands(result: Imported, name: str, command: object) -> None:
    """LocalAI installs what its command names: names of a gallery's, or addresses."""
    for item in _listed(command):
        text = str(item)
        if text.startswith("-") or text in {"run", "local-ai", "/bin/sh"}:
            continue
        what = "an address" if "://" in text else "a name of its gallery"
        result.note(f"services.{name}.command: {shown(text)} is {what} that LocalAI installs")


def _accelerator(spec: Mapping[str, Any]) -> dict[str, str]:
    devices = [str(device) for device in _listed(spec.get("devices"))]
    for path, accelerator in _ACCELERATORS:
        if any(device.startswith(path) for device in devices):
            return {"accelerator": accelerator}
    has_gpu = "deploy" in spec or spec.get("runtime") == "nvidia" or "gpus" in spec
    return {} if has_gpu or "gpu" in str(spec.get("image", "")) else {"accelerator": "cpu"}


def _models_path(spec: Mapping[str, Any], told: Mapping[str, str]) -> dict[str, str]:
    """Where its models folder is on this machine, if that is mounted from it."""
    inside = told.get("LOCALAI_MODELS_PATH") or ""
    for volume in _listed(spec.get("volumes")):
        if isinstance(volume, Mapping):
            host, target = str(volume.get("source", "")), str(volume.get("target", ""))
        else:
            host, _, rest = str(volume).partition(":")
            target = rest.split(":")[0]
        is_models = target == inside or (not inside and target.rstrip("/").endswith("models"))
        if is_models and host.startswith(("/", ".", "~")):
            return {"models_path": host}
    return {}


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
