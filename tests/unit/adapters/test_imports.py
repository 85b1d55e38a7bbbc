"""Files of other programs: what is taken into headstart.yaml, and what is told of the rest."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from adapters.import_compose import host_ports, merged_compose, sidecar
from adapters.import_parts import Imported, as_yaml, bounded, merged, seconds_of, truth_of
from adapters.imports import import_paths, imported
from adapters.settings import Settings, load_settings
from adapters.settings_problems import Problems
from adapters.settings_source import read_document
from contracts.errors import Invalid
from contracts.ids import ModelId


def take(text: str, **environ: str) -> Imported:
    document = read_document(text.encode(), "theirs.yaml", Problems())
    return imported(document, "theirs.yaml", environ)


def noted(found: Imported, pattern: str) -> bool:
    return any(re.search(pattern, line) for line in found.notes)


@pytest.fixture
def ours(tmp_path: Path):
    """What is taken, as it is read again."""

    def read(found: Imported) -> Settings:
        path = tmp_path / "headstart.yaml"
        path.write_text(as_yaml(found.values), encoding="utf-8")
        return load_settings({"HOME": "/home/op"}, path)

    return read


# One server per model, swapped by a proxy


@pytest.mark.case("config-09")
def test_macros_aliases_and_variables_of_a_swapping_proxy():
    found = take(
        "macros: {layers: 7, base: 'run ${layers}'}\n"
        "models:\n"
        "  'chat':\n"
        "    cmd: serve --port ${PORT} ${base} ${env.WEIGHTS} ${env.THERE} ${what}:${MODEL_ID}\n"
        "    aliases: [chat, team/chat]\n"
        "    ttl: 0\n"
        "  'code': {cmd: 'serve ${local}', macros: {local: '${env.DEEP}'}, ttl: 300}\n"
        "new_key: 1\n",
        THERE="x",
    )
    assert found.values == {"models": {"chat": {}, "code": {}}}
    assert noted(found, r"models\.chat: the alias \"team/chat\" belongs into LocalAI's")
    assert not noted(found, r"alias \"chat\"")
    assert noted(found, r"models\.chat: the environment variable WEIGHTS is not set")
    assert noted(found, r"models\.code: the environment variable DEEP is not set")
    assert not noted(found, "THERE|PORT|MODEL_ID")
    assert noted(found, r"\$\{what\} is no macro: it stays as text")
    assert noted(found, r"models\.chat: ttl 0 \(never by time\) needs nothing")
    assert noted(found, r"models\.code: ttl 300 s is not taken")
    assert noted(found, r"^new_key: is not taken")


@pytest.mark.case("config-10")
def test_old_keys_are_told_and_stop_nothing():
    found = take("profiles: {pair: [a, b]}\nmodels:\n  a: {cmd: x, proxy: 'http://127.0.0.1:9001'}")
    assert list(found.values["models"]) == ["a"]
    assert noted(found, "^profiles: is an old key")


@pytest.mark.case("config-11")
def test_loads_of_half_an_hour_and_requests_at_once(ours):
    found = take(
        "healthCheckTimeout: 1800\nunloadTimeout: 0\napiKeys: ['${env.KEY}']\n"
        "models:\n  big: {cmd: serve, concurrencyLimit: 8}\n"
    )
    settings = ours(found)
    assert settings.controller_config().load_timeout_s == 1800.0
    assert settings.gateway_config().slots == {ModelId("big"): 8}
    assert noted(found, "^unloadTimeout: is not taken")
    assert noted(found, "^apiKeys: keys are not copied")
    assert not noted(found, "KEY")


@pytest.mark.case("config-12")
def test_groups_of_models_on_several_gpus(ours):
    found = take(
        "listen: ':9000'\n"
        "models:\n"
        "  org/big: {cmd: a, proxy: 'http://127.0.0.2:1'}\n"
        "  org/small: {cmd: b}\n  embed: {cmd: c}\n  rerank: {cmd: c}\n"
        "groups:\n"
        "  chat: {swap: true, exclusive: true, members: [org/big, org/small, gone]}\n"
        "  always: {persistent: true, swap: false, exclusive: false, members: [embed]}\n"
        "  side: {swap: false, exclusive: false, members: [rerank]}\n"
        "  empty: {members: []}\n  odd: 7\n"
    )
    settings = ours(found)
    profiles = settings.controller_config().profiles
    assert [name for name, profile in profiles.items() if profile.pinned] == ["embed"]
    groups = settings.controller_config().planner.groups
    assert {name: group.models for name, group in groups.items()} == {
        "chat": ("org/big", "org/small"), "side": ("rerank",),
    }  # fmt: skip
    assert noted(found, 'groups.chat: there is no model "gone"')
    assert noted(found, r"groups\.chat: swap .* LocalAI's concurrency_groups")
    assert noted(found, r"groups\.chat: exclusive .* is not taken")
    assert not noted(found, r"groups\.(always|side): (swap|exclusive)")
    assert noted(found, "^listen: is not taken")


@pytest.mark.case("config-13")
def test_models_behind_a_comment_are_none_and_commands_are_text():
    found = take(
        "globalTTL: 600\n"
        "models:\n"
        "  # off: {cmd: x}\n"
        "  on: {cmd: \"${env.ROOT}/serve -ot '.ffn_(up|down)_exps.=CPU' --x '[a-z]+\\\\d{2}'\"}\n"
        "#  late: {cmd: y}\n",
        ROOT="/opt",
    )
    assert found.values == {"models": {"on": {}}}
    assert found.notes == [
        "globalTTL: is not taken: a model goes when its room is needed; scheduler.policy "
        "idle-timeout with idle_timeout_seconds goes by time"
    ]


@pytest.mark.case("config-14")
def test_macros_in_a_circle_are_told_and_do_not_hang():
    found = take(
        "macros: {one: '${two}', two: 'x ${three}', three: '${one}'}\n"
        "models:\n  small:\n    cmd: >\n      serve\n      ${one}\n    cmdStop: podman stop small\n"
        "    aliases: [small, Org/m3]\nmatrix: {sets: 'a & b'}\n"
    )
    assert list(found.values["models"]) == ["small"]
    assert noted(found, "the macros one → two → three → one lead back to themselves")
    deep = "".join(f"  m{number}: '${{m{number + 1}}}'\n" for number in range(40))
    found = take(f"macros:\n{deep}models: {{a: {{cmd: '${{m0}}'}}}}\n")
    assert noted(found, "lead back to themselves or too deep")


@pytest.mark.case("config-15")
def test_models_on_one_fixed_address():
    found = take(
        "models:\n  a: {cmd: \"sh -c 'serve --port 8080'\", proxy: 'http://localhost:8080'}\n"
        "  b: {cmd: b, proxy: 'http://localhost:8080'}\n  c: {cmd: c, proxy: 'http://h:${PORT}'}\n"
    )
    assert noted(found, "^2 models share the address localhost:8080")


@pytest.mark.case("config-16")
def test_names_are_keys_whatever_the_order_and_the_display_name():
    found = take(
        "models:\n  org/chat-7b:\n    name: Chat for all\n    cmd: serve $HOME/x ${flags}\n"
        "macros:\n  flags: --fast"
    )
    assert found.values == {"models": {"org/chat-7b": {}}}
    assert found.notes == []


@pytest.mark.case("config-17")
def test_text_in_any_language_and_a_model_that_is_not_there():
    found = take(
        "# 모든 레이어는 CPU 에서\nmodels:\n  모델: {cmd: 'serve -ngl 0'}\n"
        "hooks: {on_startup: {preload: [모델, other]}}\n"
    )
    assert found.values == {"models": {"모델": {"preload": True}}}
    assert noted(found, 'preload: there is no model "other"')


@pytest.mark.parametrize(
    "text",
    [
        "models: {a: {cmd: x, concurrencyLimit: 0, aliases: no, ttl: -1}}\nhealthCheckTimeout: 0",
        "models: {a: {cmd: x, ttl: soon}, b: 7}\nhooks: 1\ngroups: []\nmacros: 3",
        "models: {a: {cmd: 7}}\nhooks: {on_startup: {preload: x}}\ngroups: {g: {members: 3}}",
    ],
)
def test_odd_values_are_passed_over(text: str):
    assert take(text).values["models"]["a"] == {}


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("models: {a: {cmd: x, concurrencyLimit: '4'}}", "models.a.concurrencyLimit", '"4"'),
        ("models: {a: {cmd: x, concurrencyLimit: true}}", "models.a.concurrencyLimit", "true"),
        ("models: {a: {cmd: x, concurrencyLimit: -1}}", "models.a.concurrencyLimit", "-1"),
        ("models: {a: {cmd: x, ttl: soon}}", "models.a.ttl", '"soon"'),
        ("models: {a: {cmd: x, ttl: .inf}}", "models.a.ttl", "Infinity"),
        ("models: {a: {cmd: x, aliases: b}}", "models.a.aliases", '"b"'),
        ("models: {a: {cmd: x}, b: 7}", "models.b", "7"),
        ("models: {a: {cmd: x}}\nhealthCheckTimeout: soon", "healthCheckTimeout", '"soon"'),
        ("models: {a: {cmd: x}}\nhealthCheckTimeout: 0", "healthCheckTimeout", "0"),
        ("models: {a: {cmd: x}}\nhooks: 1", "hooks", "1"),
        ("models: {a: {cmd: x}}\nhooks: {on_startup: {preload: a}}", "preload", '"a"'),
        ("models: {a: {cmd: x}}\nmacros: 3", "macros", "3"),
        ("models: {a: {cmd: x}}\ngroups: []", "groups", "[]"),
        ("models: {a: {cmd: x}}\ngroups: {g: 1}", "groups.g", "1"),
        ("models: {a: {cmd: x}}\ngroups: {g: {members: a}}", "groups.g.members", '"a"'),
        ("models: {a: {cmd: x}}\ngroups: {g: {swap: soon}}", "groups.g.swap", '"soon"'),
    ],
)
def test_an_odd_value_is_told_with_what_it_must_be(text: str, key: str, value: str):
    found = take(text)
    assert list(found.values["models"]) == ["a"]
    (line,) = [note for note in found.notes if f"{key} = {value}: is not taken" in note]
    assert "it must be " in line


def test_a_name_that_none_of_ours_could_have_is_told():
    found = take('models: {"a\\nb": {cmd: x}, "c": {cmd: x}}')
    assert list(found.values["models"]) == ["c"]
    assert noted(found, "it must be printable text")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("environment: {LOCALAI_UPLOAD_LIMIT: " + "9" * 400 + "}", "LOCALAI_UPLOAD_LIMIT"),
        ("environment: {LOCALAI_MODEL_CACHE_SIZE: much}", 'LOCALAI_MODEL_CACHE_SIZE = "much"'),
        ("environment: {LOCALAI_PARALLEL_LOAD: 0}", 'LOCALAI_PARALLEL_LOAD = "0"'),
        ("environment: 7", "environment = 7"),
        ("devices: 7", "devices = 7"),
        ("volumes: x", "volumes = "),
        ("ports: 7", "ports = 7"),
    ],
)
def test_an_odd_value_of_a_service_is_told(said: str, told: str):
    found = take("services:\n  localai:\n    image: localai/localai\n    " + said)
    assert found.values["localai"]["url"] == "http://localai:8080"
    assert noted(found, told)


def test_a_service_that_has_no_address_is_told():
    found = take('services: {"a b": {image: localai/localai}}')
    assert found.values == {}
    assert noted(found, "services = ")


def test_ports_that_are_none_are_passed_over():
    found = {"services": {"x": {"ports": ["9" * 5000 + ":1", "٣:1", {"published": None}, 8080]}}}
    assert list(host_ports(found["services"]["x"])) == []


def test_an_overlay_may_have_another_shape():
    base = {"services": {"a": {"image": "localai/localai", "ports": "x"}}}
    over = {"services": {"a": {"ports": ["1:1"]}}}
    assert merged_compose([base, over])["services"]["a"]["ports"] == ["1:1"]


# Compose files


COMPOSE = """
services:
  localai:
    image: localai/localai:latest-aio-cpu
    init: true
    env_file: .env
    environment:
      - DEBUG=true
      - LOCALAI_MAX_ACTIVE_BACKENDS=${MAX:-3}
      - LOCALAI_SINGLE_ACTIVE_BACKEND=false
      - LOCALAI_WATCHDOG_IDLE=true
      - LOCALAI_WATCHDOG_IDLE_TIMEOUT=15m
      - LOCALAI_API_KEY=${LOCALAI_KEY:-}
      - UPLOAD_LIMIT=200
      - LOCALAI_MEMORY_RECLAIMER=0
      - EMPTY=$NOWHERE
    command:
      - phi-2
      - https://host/model.yaml
      - --debug
    volumes:
      - ./models:/models:cached
    ports: ["9080:8080"]
  web: {image: ghcr.io/x/open-webui}
# deploy: {resources: {}}
"""


@pytest.mark.case("config-06")
def test_a_compose_file_says_where_localai_is_and_what_fights_a_plan(ours):
    found = take(COMPOSE, LOCALAI_KEY="very-secret")
    settings = ours(found)
    (node,) = settings.controller_config().nodes
    assert (node.url, node.accelerator, node.models_path) == (
        "http://localai:8080", "cpu", "./models",
    )  # fmt: skip
    assert settings.gateway_config().max_body_bytes == 200 * 1024**2
    assert noted(found, r'LOCALAI_MAX_ACTIVE_BACKENDS = "3": its limit counts models')
    assert noted(found, "LOCALAI_WATCHDOG_IDLE =")
    assert not noted(found, "SINGLE_ACTIVE|MEMORY_RECLAIMER|IDLE_TIMEOUT|very-secret")
    assert noted(found, "LOCALAI_API_KEY: is not copied")
    assert noted(found, 'command: "phi-2" is a name of its gallery')
    assert noted(found, "command: .* is an address")
    assert not noted(found, "--debug")
    assert noted(found, "env_file: is not read")
    assert noted(found, "variable NOWHERE is not set")


def test_the_services_beside_theirs_touch_none_of_theirs():
    document = read_document(COMPOSE.encode(), "c", Problems())
    beside = sidecar(merged_compose([document]))
    assert list(beside["services"]) == ["headstart"]
    own = beside["services"]["headstart"]
    assert own["environment"]["HEADSTART_LOCALAI_URL"] == "http://localai:8080"
    assert own["ports"][0] == "8080:8080"
    taken = document | {
        "services": {
            "a": {"ports": ["127.0.0.1:8080:80", 8088, {"published": 8089}, "x"]},
            "b": {"ports": ["8088:1/tcp"]},
        }
    }
    assert sidecar(taken)["services"]["headstart"]["ports"][0] == "8090:8080"
    assert sidecar(taken)["services"]["headstart"]["depends_on"] == ["localai"]


@pytest.mark.case("config-07")
def test_overlays_add_to_the_base(tmp_path: Path):
    base = tmp_path / "docker-compose.yaml"
    base.write_text(COMPOSE)
    overlay = tmp_path / "docker-compose.gpu.yaml"
    overlay.write_text(
        "services:\n  localai:\n    image: localai/localai:latest-gpu\n    cpus: '${CPUS:-4}'\n"
        "    environment: {LOCALAI_MAX_ACTIVE_BACKENDS: 0, LOCALAI_PARALLEL_LOAD: 2,\n"
        "      X: , Y: true}\n"
        "    ports: ['9081:8081']\n    deploy: {}\n  other: null\n"
    )
    found, whole = import_paths([base, overlay], {})
    assert found.values["scheduler"] == {"parallel_loads": 2}
    assert "accelerator" not in found.values["localai"]
    assert not noted(found, "MAX_ACTIVE_BACKENDS")
    assert noted(found, "WATCHDOG_IDLE")
    assert whole["services"]["localai"]["ports"] == ["9080:8080", "9081:8081"]
    assert whole["services"]["localai"]["environment"]["Y"] == "true"


@pytest.mark.case("config-08")
def test_one_model_at_a_time_and_no_nvidia(ours):
    found = take(
        "services:\n  ai:\n    image: quay.io/go-skynet/local-ai:master-vulkan\n"
        "    devices: [/dev/dri]\n    environment: {LOCALAI_SINGLE_ACTIVE_BACKEND: 'true',\n"
        "      LOCALAI_UPLOAD_LIMIT: 200, LOCALAI_PRELOAD_MODELS: 'a, b',\n"
        "      LOCALAI_MODEL_CACHE_SIZE: 10}\n"
        "    volumes:\n    - {source: /srv/models, target: /build/models}\n    - data:/models\n"
    )
    settings = ours(found)
    (node,) = settings.controller_config().nodes
    assert (node.accelerator, node.models_path) == ("vulkan", "/srv/models")
    assert noted(found, "two models can never be loaded together, and no prefetch helps")
    assert [n for n, p in settings.controller_config().profiles.items() if p.preload] == ["a", "b"]
    assert settings.document.optimization.cache_size_gb == 10


def test_a_module_in_another_language_is_no_yaml(tmp_path: Path):
    path = tmp_path / "localai.nix"
    path.write_text("{ config, ... }: {\n  services.localai = ''\n    name: whisper\n  '';\n}\n")
    with pytest.raises(Invalid, match=r"localai\.nix"):
        import_paths([path], {})


def test_several_localais_are_several_backends(ours):
    found = take(
        "services:\n  one: {image: localai/localai:gpu, deploy: {}}\n"
        "  two: {image: 'localai/localai:cpu', devices: [/dev/kfd]}\n  x: {image: redis}\n"
    )
    nodes = ours(found).controller_config().nodes
    assert [(node.node, node.accelerator) for node in nodes] == [("one", "cuda"), ("two", "rocm")]


def test_a_compose_file_without_localai_says_so():
    assert take("services: {web: {image: nginx}, odd: 1}").notes == [
        "no service runs LocalAI, as far as its image tells"
    ]


# Files of LocalAI's, and what is none of these


def test_models_of_localai_need_no_entry_but_for_what_is_ours(tmp_path: Path):
    (tmp_path / "a.yaml").write_text("name: a\npreload: true\nparameters: {model: a.gguf}\n")
    (tmp_path / "b.yaml").write_text("name: b\nbackend: whisper\nmmap: false\n")
    (tmp_path / "c.yaml").write_text("name: c\npinned: true\nparameters: {model: ../c.gguf}\n")
    found, compose = import_paths([tmp_path], {})
    assert found.values == {"models": {"a": {"preload": True}}}
    assert compose is None
    assert noted(found, "^b: mmap: false copies its weights")
    assert noted(found, "^3 models are LocalAI's")
    assert noted(found, 'c.yaml: "c" names "../c.gguf", which is out of the models folder')


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("# nothing\n", "is empty"),
        ("just text", "nothing that can be imported"),
        ("gateway: {port: 1}", "is a headstart.yaml already"),
        ("- 3\n- null\n", r"theirs.yaml\[0\]: is no model"),
    ],
)
def test_what_is_nothing_known_is_told(text: str, says: str):
    found = take(text)
    assert found.values == {}
    assert noted(found, says)


def test_keys_that_stand_twice_are_told(tmp_path: Path):
    path = tmp_path / "a.yaml"
    path.write_text("name: a\nname: b\n")
    found, _ = import_paths([path], {})
    assert noted(found, "stands twice")


def test_what_an_earlier_file_says_stays_and_notes_are_bounded():
    one, two = (
        Imported("x", {"a": {"b": 1}, "e": {}}, ["n"]),
        Imported("y", {"a": {"b": 2, "c": 3}}),
    )
    both = merged([one, two])
    assert both.values == {"a": {"b": 1, "c": 3}, "e": {}}
    assert (both.kind, both.notes) == ("x and y", ["n"])
    assert bounded(["n"] * 201)[-1] == "… and 1 more"
    assert as_yaml({}) == ""


@pytest.mark.parametrize(
    ("value", "seconds"), [("15m", 900.0), ("1.5h", 5400.0), (True, None), ("x", None), (3, 3.0)]
)
def test_times_as_people_write_them(value: object, seconds: float | None):
    assert seconds_of(value) == seconds


@pytest.mark.parametrize(
    ("value", "truth"), [("Yes", True), (0, False), ("", False), ("maybe", None), (True, True)]
)
def test_switches_as_people_write_them(value: object, truth: bool | None):
    assert truth_of(value) is truth
