"""Kinds of values in ``headstart.yaml``: what each takes, and how it is said to people."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    WithJsonSchema,
)
from pydantic.config import JsonDict

from adapters.redis_address import cluster_address, sentinel_address
from contracts.variants import QUANTISATIONS

ALLOWED = "x-headstart-allowed"
"""Schema extra: what a value must be, where type and bounds do not say it."""

NO_EFFECT = "x-headstart-no-effect"
"""Schema extra: the key is read and checked, and this is what holds in its place so far."""

MIB = 1024**2

_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_CPU = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)(m?)")
_MEMORY = re.compile(
    r"(\d{1,15}(?:\.\d{1,6})?)\s?(Ki|Mi|Gi|Ti|k|K|M|G|T|KB|MB|GB|TB|KiB|MiB|GiB|TiB)?B?"
)
_MEMORY_FACTOR = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4}
_MEMORY_FACTOR |= {"ki": 1024, "mi": 1024**2, "gi": 1024**3, "ti": 1024**4}
KEY_HASH = re.compile(r"sha256:([0-9a-f]{64})")
_KEY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]{0,63}")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_TIME_OF_DAY = re.compile(r"([01]?\d|2[0-3]):[0-5]\d")
_HOST = re.compile(r"[A-Za-z0-9_.\-]{1,253}|\[?[0-9A-Fa-f:.%]{2,60}\]?")


class Section(BaseModel):
    """A mapping of known keys; anything else in it is an error."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, hide_input_in_errors=True
    )


def setting(
    what: str,
    *,
    default: Any,
    allowed: str | None = None,
    no_effect: str | None = None,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
    alias: str | None = None,
) -> Any:
    """A key of the configuration.

    Parameters
    ----------
    what : str
        What the key does, with the unit of its value.
    default : object
        What holds where neither the file nor the environment says otherwise.
    allowed : str, optional
        Follows "must be" in errors and in the reference; default: told by type and bounds.
    no_effect : str, optional
        The key does nothing yet; this is what takes its place.
    ge, gt, le, lt : float, optional
        Bounds, as pydantic names them.
    alias : str, optional
        How the key is called in the file, where Python cannot call it so.
    """
    extra: JsonDict = {}
    if allowed is not None:
        extra[ALLOWED] = allowed
    if no_effect is not None:
        extra[NO_EFFECT] = no_effect
    return Field(
        default, description=what, json_schema_extra=extra, ge=ge, gt=gt, le=le, lt=lt, alias=alias
    )


def parse_cpu(value: object) -> float:
    """Cores of a Kubernetes-like quantity: ``2``, ``"0.5"`` or ``"500m"``."""
    match = _CPU.fullmatch(_quantity_text(value))
    if match is None:
        raise ValueError("not a quantity of cores")
    return float(match[1]) / (1000 if match[2] else 1)


def parse_memory(value: object) -> int:
    """Bytes of a Kubernetes-like quantity: ``"8Gi"``, ``"512M"`` or plain bytes."""
    match = _MEMORY.fullmatch(_quantity_text(value))
    if match is None:
        raise ValueError("not a quantity of memory")
    unit = (match[2] or "").lower().removesuffix("b")
    return round(float(match[1]) * _MEMORY_FACTOR[unit])


def _quantity_text(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("not a quantity")  # noqa: TRY004 - pydantic reads ValueError
    return str(value).strip()


def _no_switch(value: object) -> object:
    # YAML's true is 1 to Python; a port of "true" is a mistake, not port 1.
    if isinstance(value, bool):
        raise ValueError("not a number")  # noqa: TRY004 - pydantic reads ValueError
    return value


def _one_spelling(value: object) -> object:
    return value.strip().lower().replace("_", "-") if isinstance(value, str) else value


def _quantisation(value: object) -> str:
    text = str(value).strip().lower().replace("-", "_")
    if text not in QUANTISATIONS:
        raise ValueError("not a quantisation")
    return text


def _cron(text: str) -> str:
    if len(text.split()) != 5:
        raise ValueError("not five fields")
    try:
        CronSim(text, datetime(2000, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        raise ValueError("not a cron line") from error
    return " ".join(text.split())


def _zone(text: str) -> str:
    try:
        ZoneInfo(text)
    except (ZoneInfoNotFoundError, OSError, ValueError) as error:
        raise ValueError("not a time zone") from error
    return text


def _time_of_day(text: str) -> str:
    if _TIME_OF_DAY.fullmatch(text) is None:
        raise ValueError("not a time of day")
    return text


def _printable(text: str) -> str:
    if not text.strip() or _CONTROL_CHARACTER.search(text):
        raise ValueError("empty, or holds control characters")
    return text


def _secret(secret: SecretStr) -> SecretStr:
    text = secret.get_secret_value()
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("not usable in a header")
    return secret


def _key_hash(secret: SecretStr) -> SecretStr:
    text = secret.get_secret_value().strip().lower()
    if KEY_HASH.fullmatch(text) is None:
        raise ValueError("not the hash of a key")
    return SecretStr(text)


def _key_name(text: str) -> str:
    if _KEY_NAME.fullmatch(text) is None:
        raise ValueError("not a name of a key")
    return text


def _env_name(text: str) -> str:
    if _ENV_NAME.fullmatch(text) is None:
        raise ValueError("not a name of a variable")
    return text


def _host(text: str) -> str:
    if _HOST.fullmatch(text) is None:
        raise ValueError("not a host")
    return text


def _http_url(text: str) -> str:
    parts = urlsplit(_printable(text).strip())
    port = parts.port  # raises ValueError when it is none
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
        raise ValueError("not an http address")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise ValueError("more than an address")
    return text.strip().rstrip("/")


def _redis_url(secret: SecretStr) -> SecretStr:
    text = _printable(secret.get_secret_value()).strip()
    if sentinel_address(text) is not None or cluster_address(text) is not None:
        return SecretStr(text)
    parts = urlsplit(text)
    port = parts.port  # raises ValueError when it is none
    is_socket = parts.scheme == "unix" and bool(parts.path)
    is_server = parts.scheme in {"redis", "rediss"} and bool(parts.hostname) and port != 0
    if not (is_socket or is_server):
        raise ValueError("not a Redis address")
    return SecretStr(text)


def _jobs_url(secret: SecretStr) -> SecretStr:
    if cluster_address(secret.get_secret_value()) is not None:
        raise ValueError("RQ's commands do not keep to one slot")
    return secret


Whole = Annotated[int, BeforeValidator(_no_switch)]
Number = Annotated[float, BeforeValidator(_no_switch), Field(allow_inf_nan=False)]
Text = Annotated[str, Field(max_length=4096), AfterValidator(_printable)]
Cron = Annotated[str, Field(max_length=256), AfterValidator(_cron)]
Zone = Annotated[str, Field(max_length=256), AfterValidator(_zone)]
TimeOfDay = Annotated[str, AfterValidator(_time_of_day)]
Secret = Annotated[SecretStr, AfterValidator(_secret)]
KeyHash = Annotated[SecretStr, AfterValidator(_key_hash)]
KeyName = Annotated[str, AfterValidator(_key_name)]
EnvName = Annotated[
    str,
    AfterValidator(_env_name),
    # Whoever writes the key itself there must not find it in an error.
    WithJsonSchema({"type": "string", "format": "password"}),
]
Host = Annotated[str, AfterValidator(_host)]
HttpUrl = Annotated[str, Field(max_length=4096), AfterValidator(_http_url)]
RedisUrl = Annotated[SecretStr, AfterValidator(_redis_url)]
JobsUrl = Annotated[SecretStr, AfterValidator(_redis_url), AfterValidator(_jobs_url)]
Cpu = Annotated[float, BeforeValidator(parse_cpu), WithJsonSchema({"type": ["string", "number"]})]
Memory = Annotated[
    int, BeforeValidator(parse_memory), WithJsonSchema({"type": ["string", "number"]})
]

Mode = Annotated[Literal["observe", "active", "resource-aware"], BeforeValidator(_one_spelling)]
Policy = Annotated[
    Literal["headstart", "lru", "localai-lru", "idle-timeout", "gdsf", "weighted-score"],
    BeforeValidator(_one_spelling),
]
Strategy = Annotated[
    Literal["resource-aware", "score", "weighted-round-robin"], BeforeValidator(_one_spelling)
]
Caching = Annotated[
    Literal["adaptive", "lru", "lfu", "fifo", "none"], BeforeValidator(_one_spelling)
]
DiscoveryWord = Annotated[Literal["none", "dns"], BeforeValidator(_one_spelling)]

WarmUpWord = Annotated[Literal["auto", "always", "never"], BeforeValidator(_one_spelling)]

OnAbort = Annotated[Literal["cancel", "drain"], BeforeValidator(_one_spelling)]
Compression = Annotated[Literal["none", "quantization"], BeforeValidator(_one_spelling)]
Accelerator = Annotated[
    Literal["cuda", "rocm", "vulkan", "sycl", "metal", "cpu"], BeforeValidator(_one_spelling)
]
Priority = Annotated[
    Literal["high", "medium", "low", "realtime", "batch", "background"],
    BeforeValidator(_one_spelling),
]
HeaderRule = Annotated[Literal["lower", "any", "fixed"], BeforeValidator(_one_spelling)]
FallbackRule = Annotated[Literal["allow", "ask", "deny"], BeforeValidator(_one_spelling)]
Quantisation = Annotated[str, BeforeValidator(_quantisation)]
Level = Annotated[
    Literal["debug", "info", "warning", "error", "critical"], BeforeValidator(_one_spelling)
]
LogFormat = Annotated[Literal["auto", "json", "text"], BeforeValidator(_one_spelling)]
GpuMetric = Literal[
    "utilization", "memory.used", "memory.free", "memory.total", "temperature", "power"
]
CpuMetric = Literal["utilization", "load_average", "context_switches", "memory.used", "pressure"]
ProbeWord = Annotated[Literal["auto", "local", "api"], BeforeValidator(_one_spelling)]

KEY_HASH_ALLOWED = "a line of `headstart keys hash`, such as sha256:0f3a…"
SECRET_ALLOWED = "text without spaces, in quotes where it looks like a number"  # noqa: S105 - words
URL_ALLOWED = 'an address such as "http://localai:8080", without user, password or query'
