"""``headstart.yaml`` and the environment, as frozen settings for every process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from adapters.clock import read_scale
from contracts.config import (
    ControlConfig,
    ControllerConfig,
    GatewayConfig,
    NodeConfig,
    PredictorConfig,
)
from contracts.errors import Invalid
from contracts.ids import NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that was configured, with the environment over the file over the defaults."""

    nodes: tuple[NodeConfig, ...] = ()
    gateway_port: int = 8080
    control_port: int = 8090
    admin_key: str | None = field(default=None, repr=False)
    redis_url: str | None = field(default=None, repr=False)
    data_dir: Path = Path()
    time_scale: float = 1.0
    active_by_default: bool = False
    log_level: str = "info"
    notices: tuple[str, ...] = ()

    def gateway_config(self) -> GatewayConfig:
        """What the gateway is told."""
        return GatewayConfig(port=self.gateway_port, nodes=self.nodes)

    def control_config(self) -> ControlConfig:
        """What the control API is told."""
        return ControlConfig(port=self.control_port, admin_key=self.admin_key)

    def controller_config(self) -> ControllerConfig:
        """What the controller is told."""
        return ControllerConfig(nodes=self.nodes, active_by_default=self.active_by_default)

    def predictor_config(self) -> PredictorConfig:
        """What the predictor is told."""
        return PredictorConfig()


def load_settings(environ: Mapping[str, str], path: Path | None = None) -> Settings:
    """Read the configuration; raises Invalid with every error found."""
    url = environ.get("HEADSTART_LOCALAI_URL") or "http://127.0.0.1:8081"
    home = environ.get("HOME") or "."
    data_dir = environ.get("HEADSTART_DATA_DIR") or str(Path(home) / ".local/share/headstart")
    return Settings(
        nodes=(NodeConfig(node=NodeId("localai"), url=url.rstrip("/")),),
        gateway_port=_port(environ, "HEADSTART_GATEWAY_PORT", 8080),
        control_port=_port(environ, "HEADSTART_CONTROL_PORT", 8090),
        admin_key=environ.get("HEADSTART_ADMIN_KEY") or None,
        redis_url=environ.get("HEADSTART_REDIS_URL") or environ.get("REDIS_URL") or None,
        data_dir=Path(data_dir),
        time_scale=read_scale(environ),
        active_by_default=environ.get("HEADSTART_SCHEDULER__MODE") == "active",
    )


def _port(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name, "")
    if text and not (text.isdecimal() and 1 <= int(text) <= 65535):
        raise Invalid(f'{name} = "{text}": must be a port, 1 to 65535')
    return int(text) if text else default
