"""``headstart.yaml`` and the environment, as frozen settings for every process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from adapters.clock import ENVIRONMENT_VARIABLE, read_anchor, read_scale
from adapters.localai_discovery import resolver
from adapters.settings_configs import (
    control_config,
    controller_config,
    gateway_config,
    predictor_config,
    workers_config,
)
from adapters.settings_environment import Environment, read_environment
from adapters.settings_files import ConfigFiles, find_files, read_files
from adapters.settings_merge import merge
from adapters.settings_nodes import with_instances
from adapters.settings_notices import notices_of
from adapters.settings_problems import Problems
from adapters.settings_schema import Document
from adapters.settings_secrets import resolve_keys, secret_files
from adapters.settings_source import Source
from adapters.settings_validation import validate
from contracts.config import (
    ControlConfig,
    ControllerConfig,
    GatewayConfig,
    PredictorConfig,
    WorkersConfig,
)
from contracts.errors import Invalid
from contracts.ids import ModelId


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What was configured, with the environment over the file over the defaults.

    Attributes
    ----------
    document : Document
        The checked keys of the file, under their own names.
    source : Source
        What was said and where; what is not in it is a default.
    file : Path or None
        The file that was read, or the folder of files; None: there is none.
    data_dir : Path
        Where state is kept. Not made here.
    preload : bool or tuple of ModelId
        Which models that LocalAI's own files mark are loaded at start: all, none, or these.
    time_scale : float
        Seconds of our clock in one real second; 1 but in development.
    environment : str
        ``HEADSTART_ENV``; empty where it is not set.
    notices : tuple of str
        One line for each key that is set and has no effect yet, and for what else to know.
    read_from : tuple of Path
        The file and those that hold secrets: when one changes, so may what is configured.
    """

    document: Document
    source: Source = field(repr=False)
    file: Path | None
    data_dir: Path
    time_scale: float
    environment: str
    notices: tuple[str, ...]
    read_from: tuple[Path, ...] = ()
    preload: bool | tuple[ModelId, ...] = True

    @property
    def redis_url(self) -> str | None:
        """Address of the Redis-compatible server; may hold a password. None: an embedded one."""
        url = self.document.redis.url
        return None if url is None else url.get_secret_value()

    @property
    def jobs_url(self) -> str | None:
        """Where the queues of jobs are; may hold a password. None: an embedded server."""
        url = self.document.redis.jobs_url
        return self.redis_url if url is None else url.get_secret_value()

    @property
    def admin_key(self) -> str | None:
        """Key for changes through the control API; None: none is set."""
        key = self.document.control.admin_key
        return None if key is None else key.get_secret_value()

    @property
    def model_folders(self) -> tuple[str, ...]:
        """LocalAI's models folders, as far as they are mounted here."""
        localai = self.document.localai
        paths = (localai.models_path, *(backend.models_path for backend in localai.backends))
        return tuple(path for path in paths if path is not None)

    @property
    def active_by_default(self) -> bool:
        """Whether decisions are carried out where nobody has set a mode through the API."""
        return self.document.scheduler.mode != "observe"

    @property
    def log_level(self) -> str:
        """For ``configure_logging``."""
        return self.document.logging.level

    @property
    def log_json(self) -> bool | None:
        """For ``configure_logging``; None: by whether a terminal listens."""
        form = self.document.logging.format
        return None if form == "auto" else form == "json"

    def gateway_config(self) -> GatewayConfig:
        """What the gateway is told."""
        return gateway_config(self.document)

    def control_config(self) -> ControlConfig:
        """What the control API is told."""
        return control_config(self.document)

    def controller_config(self) -> ControllerConfig:
        """What the controller is told."""
        return controller_config(self.document, preload=self.preload)

    def predictor_config(self) -> PredictorConfig:
        """What the predictor is told."""
        return predictor_config(self.document)

    def workers_config(self) -> WorkersConfig:
        """What the workers are told."""
        return workers_config(self.document)


def load_settings(environ: Mapping[str, str], path: Path | None = None) -> Settings:
    """Read and check the configuration.

    Parameters
    ----------
    environ : mapping
        Environment variables. An empty one counts as not set.
    path : Path, optional
        The file, or a folder of files. Default: ``HEADSTART_CONFIG``, else the first that
        exists of ``./headstart.yaml``, ``~/.config/headstart/headstart.yaml`` and
        ``/etc/headstart/headstart.yaml``, else none. Files of ``headstart.d`` beside it are
        read over it.

    Raises
    ------
    Invalid
        With one line for each thing that is wrong (at most 20): where it was said, the key,
        its value (secrets as ``***``) and what is allowed.
    """
    problems = Problems()
    environment = read_environment(environ, problems)
    time_scale = _time_scale(environ, problems)
    notices: list[str] = []
    files = find_files(environ, path)
    source = read_files(files, problems, notices)
    merged = merge(source, environment, problems, notices)
    key_files = resolve_keys(merged, environ, files.base, problems)
    document = validate(merged, problems)
    problems.raise_if_any()
    assert document is not None
    return Settings(
        document=with_instances(document, resolver(environ)),
        source=merged,
        file=files.main,
        data_dir=_data_dir(document, merged, environ, files),
        time_scale=time_scale,
        environment=environ.get(ENVIRONMENT_VARIABLE, "").strip(),
        read_from=(*files.watched, *secret_files(environ), *key_files),
        notices=notices_of(document, merged, environment, notices),
        preload=_preload(environment),
    )


def _preload(environment: Environment) -> bool | tuple[ModelId, ...]:
    said = environment.preload
    if isinstance(said, tuple):
        return tuple(ModelId(name) for name in said)
    return True if said is None else said


def _time_scale(environ: Mapping[str, str], problems: Problems) -> float:
    scale = 1.0
    try:
        scale = read_scale(environ)
        read_anchor(environ)
    except Invalid as error:
        problems.add_all(error)
    return scale


def _data_dir(
    document: Document, source: Source, environ: Mapping[str, str], files: ConfigFiles
) -> Path:
    text = document.data_dir
    if text is None:
        return _home(environ) / ".local/share/headstart"
    if text == "~" or text.startswith("~/"):
        return _home(environ) / text[2:]
    said_in_file = source.origins["data_dir",].rpartition(":")[2].isdigit()
    return (files.base if said_in_file else Path.cwd()) / text


def _home(environ: Mapping[str, str]) -> Path:
    home = environ.get("HOME", "").strip()
    try:
        return Path(home) if home else Path.home()
    except RuntimeError as error:
        raise Invalid("data_dir: there is no home folder; set HEADSTART_DATA_DIR") from error
