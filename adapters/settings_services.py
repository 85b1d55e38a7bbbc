"""Sections of ``headstart.yaml`` about the processes and what they talk to."""

from __future__ import annotations

from adapters.settings_nodes import Thresholds
from adapters.settings_types import (
    KEY_HASH_ALLOWED,
    SECRET_ALLOWED,
    URL_ALLOWED,
    Accelerator,
    DiscoveryWord,
    EnvName,
    FallbackRule,
    HeaderRule,
    Host,
    HttpUrl,
    JobsUrl,
    KeyHash,
    KeyName,
    Level,
    LogFormat,
    Number,
    Priority,
    ProbeWord,
    RedisUrl,
    Secret,
    Section,
    Text,
    Whole,
    Zone,
    setting,
)

_DAY_S = 86_400
_ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - a gateway and a dashboard are there to be reached


CRON_ALLOWED = 'a cron line of five fields such as "37 2 * * *", or "off"'


class Timeouts(Section):
    """Limits of the data path. There are no others."""

    connect_seconds: Number = setting("Connecting to LocalAI.", default=5.0, gt=0, le=_DAY_S)
    first_byte_seconds: Number = setting(
        "From sending a request until LocalAI's first byte.", default=600.0, gt=0, le=_DAY_S
    )
    between_bytes_seconds: Number = setting(
        "Between two pieces of an answer.", default=300.0, gt=0, le=_DAY_S
    )
    load_answer_seconds: Number = setting(
        "How long the gateway waits for the controller's word on a load before it orders the "
        "load itself.",
        default=1.0,
        gt=0,
        le=60,
    )
    min_load_budget_seconds: Number = setting(
        "The least time a request may wait for a load; the measured load time can raise it.",
        default=60.0,
        gt=0,
        le=_DAY_S,
    )
    shutdown_grace_seconds: Number = setting(
        "How long running answers may go on when the gateway is told to stop.",
        default=30.0,
        gt=0,
        le=3600,
    )


class NamedKey(Section):
    """A key with a name, and what whoever shows it may do."""

    name: KeyName = setting(
        "Name in logs and errors; the key itself is in none.",
        default=...,
        allowed="a name of up to 64 letters, digits, dots, hyphens and underscores",
    )
    hash: KeyHash = setting(
        "Hash of the key, from `headstart keys new` or `headstart keys hash`.",
        default=...,
        allowed=KEY_HASH_ALLOWED,
    )
    priority_class: Priority | None = setting(
        "Class of its requests; high, medium and low are realtime, batch and background. None: "
        "the model's.",
        default=None,
    )
    class_header: HeaderRule = setting(
        "Which classes `X-Headstart-Class` may ask for: `lower` those that wait as long as the "
        "key's or longer, `any` all, `fixed` no other.",
        default="lower",
    )
    requests_per_minute: Number | None = setting(
        "Inference requests in a minute, at each gateway; more get 429. None: no limit.",
        default=None,
        gt=0,
        le=1_000_000,
    )
    models: tuple[Text, ...] = setting(
        "The models that it may use: names, aliases, or patterns with `*` and `?`; it may then do "
        "nothing else than use them. None: all, and all that LocalAI serves.",
        default=(),
        allowed="a list of model names and patterns",
    )
    weight: Number = setting(
        "What its requests count for among those that wait: below 1 they go after others'.",
        default=1.0,
        ge=0,
        le=1,
    )
    fallback: FallbackRule | None = setting(
        "Whether its requests may be answered from a lower rung of their model's ladder; `ask`: "
        "those that say `X-Headstart-Fallback: allow`. None: as the model says.",
        default=None,
    )


class Gateway(Section):
    """The OpenAI-compatible data path that takes LocalAI's place."""

    host: Host = setting(
        "Address to listen on.", default=_ANY_ADDRESS, allowed="a host name or address"
    )
    port: Whole = setting("Port to listen on.", default=8080, ge=1, le=65535)
    keys: tuple[Secret, ...] = setting(
        "Keys that callers must show. None: no key is asked for here, LocalAI judges them.",
        default=(),
        allowed=f"a list of keys; a key is {SECRET_ALLOWED}",
    )
    named_keys: tuple[NamedKey, ...] = setting(
        "Keys by their hash, each with a class, a rate and models of its own.",
        default=(),
        allowed="a list of keys with a name and a hash",
    )
    serve_batches: bool = setting(
        "Serve files, batches and background jobs here. Else their paths go to LocalAI.",
        default=True,
    )
    control_url: HttpUrl | None = setting(
        "Where the control API is, which serves them. None: on this machine.",
        default=None,
        allowed=URL_ALLOWED,
    )
    max_connections: Whole = setting(
        "Connections of callers. Beyond it the one that has waited longest without a request is "
        "closed; where all have one, the new one gets 503. Read at start.",
        default=4096,
        ge=1,
        le=1_000_000,
    )
    max_body_mb: Whole = setting(
        "Largest request body, in MiB; larger ones get 413.", default=2048, ge=1, le=1024**2
    )
    spool_mb: Whole = setting(
        "How much of an upload is held in memory while its model is looked for, in MiB; the "
        "rest goes to a file.",
        default=1,
        ge=1,
        le=1024,
    )
    keepalive_comments: bool = setting(
        "Send `: headstart loading` comments to streams that wait for a load.", default=True
    )
    keepalive_seconds: Number = setting(
        "Time between two such comments.", default=15.0, gt=0, le=3600
    )
    health_check_agents: tuple[str, ...] = setting(
        "Patterns (`*`, `?`) of the `User-Agent` of health checks that ask models. They are "
        "answered by resident models only, load nothing, and are no demand.",
        default=(),
        allowed="a list of patterns",
    )
    expose_topology: bool = setting(
        "Name the serving node in the `X-Headstart-Backend` header of answers.", default=False
    )
    timeouts: Timeouts = setting("Limits of the data path.", default=Timeouts())


class Control(Section):
    """The control API and the dashboard."""

    host: Host = setting(
        "Address to listen on.", default=_ANY_ADDRESS, allowed="a host name or address"
    )
    port: Whole = setting("Port to listen on.", default=8090, ge=1, le=65535)
    admin_key: Secret | None = setting(
        "Key for changes. None: changes are only taken from this machine.",
        default=None,
        allowed=SECRET_ALLOWED,
    )
    open_reads: bool = setting(
        "Let anyone read forecasts, decisions and the dashboard.", default=True
    )


class Maintenance(Section):
    """When chores of the night are done; each waits until nobody is waiting for a model."""

    retention: Text | None = setting(
        "Tidying up of logs, files and batches. None: as `workers.retention_schedule` says.",
        default=None,
        allowed=CRON_ALLOWED,
    )
    backtest: Text = setting(
        "Judging the forecasts of the last week.", default="37 2 * * *", allowed=CRON_ALLOWED
    )
    retrain: Text = setting(
        "Training a challenger, which takes over where it was better over the last week.",
        default="7 4 * * 1,4",
        allowed=CRON_ALLOWED,
    )
    profiles: Text = setting(
        "Going through what was measured of models.", default="47 3 * * *", allowed=CRON_ALLOWED
    )


class Workers(Section):
    """Background work: batches and jobs."""

    gateway_key: Secret | None = setting(
        "Key that workers show to the gateway. None: the first of `gateway.keys`.",
        default=None,
        allowed=SECRET_ALLOWED,
    )
    retention_schedule: Text = setting(
        "When logs, files and batches are tidied up, as a cron line.",
        default="17 3 * * *",
        allowed='a cron line of five fields such as "17 3 * * *"',
    )
    time_zone: Zone = setting(
        "Time zone of the schedule.", default="UTC", allowed='a zone such as "Europe/Berlin"'
    )
    maintenance: Maintenance = setting("Chores of the night.", default=Maintenance())
    max_processes: Whole = setting(
        "Processes of one queue at most, with `headstart up`; their number follows the backlog.",
        default=4,
        ge=1,
        le=64,
    )
    webhook_secret: Secret | None = setting(
        "Calls of webhooks are signed with it (HMAC-SHA256). None: they are not signed.",
        default=None,
        allowed=SECRET_ALLOWED,
    )
    webhooks_to_private: bool = setting(
        "Let webhooks lead to addresses that are not public, such as this machine's.",
        default=False,
    )
    files_url: Text | None = setting(
        "Object store for files of batches, such as `s3://bucket/headstart`; needs the extra "
        "`s3`. None: a folder of `data_dir`.",
        default=None,
        allowed='an address such as "s3://bucket/folder"',
    )
    files_max_gb: Number = setting(
        "Files of batches together, in GiB; beyond it none is taken.",
        default=10.0,
        gt=0,
        le=100_000,
    )
    batch_slots: Whole = setting(
        "Lines of batches that run at once when nothing else does.", default=8, ge=1, le=64
    )


class Backend(Section):
    """One LocalAI instance."""

    name: Text = setting(
        "Name in metrics, decisions and the dashboard.", default=..., allowed="a name"
    )
    url: HttpUrl = setting("Its address.", default=..., allowed=URL_ALLOWED)
    api_key: Secret | None = setting(
        "Its key, where it asks for one.", default=None, allowed=SECRET_ALLOWED
    )
    api_key_file: Text | None = setting(
        "File that holds its key instead.", default=None, allowed="a path"
    )
    api_key_env: EnvName | None = setting(
        "Environment variable that holds its key instead.",
        default=None,
        allowed="the name of an environment variable",
    )
    accelerator: Accelerator = setting("What its models run on.", default="cuda")
    models_path: Text | None = setting(
        "Its models folder, where it is mounted here: weights can then be read ahead, and seen in "
        "the page cache. None: it is not.",
        default=None,
        allowed="a path",
    )
    primary: bool | None = setting(
        "Lists, UI and admin calls go to this one. None: to the first.", default=None
    )
    probe: ProbeWord = setting(
        "Who tells of its machine: `local` our own probes, since it is this one, `api` LocalAI. "
        "`auto`: our own for the primary one, if its address is on this machine.",
        default="auto",
    )


class LocalAI(Section):
    """Where LocalAI is: one `url`, or several `backends`."""

    url: HttpUrl = setting(
        "LocalAI's address.", default="http://127.0.0.1:8081", allowed=URL_ALLOWED
    )
    api_key: Secret | None = setting(
        "LocalAI's key, where it asks for one.", default=None, allowed=SECRET_ALLOWED
    )
    api_key_file: Text | None = setting(
        "File that holds the key instead.", default=None, allowed="a path"
    )
    accelerator: Accelerator = setting("What its models run on.", default="cuda")
    probe: ProbeWord = setting(
        "Who tells of its machine: `local` our own probes, since it is this one, `api` LocalAI. "
        "`auto`: our own, if its address is on this machine.",
        default="auto",
    )
    models_path: Text | None = setting(
        "Its models folder, where it is mounted here: weights can then be read ahead, and seen in "
        "the page cache. None: it is not.",
        default=None,
        allowed="a path",
    )
    backends: tuple[Backend, ...] = setting(
        "Several instances instead of `url`.", default=(), allowed="a list of backends"
    )
    discovery: DiscoveryWord = setting(
        "`dns`: the name in `url` stands for several instances, one at each of its addresses, "
        "which come and go.",
        default="none",
    )
    discovery_seconds: Number = setting(
        "Between two looks for instances.", default=5.0, ge=0.5, le=3600
    )
    discovery_grace_seconds: Number = setting(
        "An instance whose address was not found for so long is forgotten.",
        default=30.0,
        ge=0,
        le=86_400,
    )
    discovery_max: Whole = setting(
        "Instances at once; others are left out.", default=64, ge=1, le=1000
    )
    thresholds: Thresholds = setting("What is told as strained.", default=Thresholds())


class Redis(Section):
    """The Redis-compatible server between the processes."""

    url: RedisUrl | None = setting(
        "Its address. None: `headstart up` starts an embedded server of its own.",
        default=None,
        allowed='an address such as "redis://host:6379/0", "rediss://…", "unix:///path", '
        '"redis+sentinel://host1:26379,host2:26379/service/0" or '
        '"redis+cluster://host1:6379,host2:6379"',
    )
    jobs_url: JobsUrl | None = setting(
        "Where the queues of background jobs and batches are, and what came of each job. None: as "
        "`url`. A cluster cannot hold them and needs one.",
        default=None,
        allowed='the address of one server or of sentinels, such as "redis://host:6379/0"',
    )


class Predictor(Section):
    """How often forecasts are made, and for how many models."""

    publish_seconds: Number = setting("Time between two forecasts.", default=10.0, ge=0.5, le=3600)
    expires_seconds: Number = setting(
        "A forecast older than this counts as absent.", default=60.0, ge=1, le=_DAY_S
    )
    max_models: Whole = setting("Models that are kept.", default=5000, ge=1, le=1_000_000)
    lease_seconds: Number = setting(
        "A second predictor publishes after this long without the first.", default=5.0, ge=1, le=60
    )
    time_zone: Zone = setting(
        "Time zone of the people who ask: habits of the day and the week follow its clocks.",
        default="UTC",
        allowed='a zone such as "Europe/Berlin"',
    )


class Logging(Section):
    """Logs go to standard error."""

    level: Level = setting("Lowest level that is written.", default="info")
    format: LogFormat = setting("`auto`: text on a terminal, else JSON.", default="auto")
