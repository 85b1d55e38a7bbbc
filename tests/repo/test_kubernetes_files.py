"""The manifests are what Kubernetes takes, and agree with the compose file and the code."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from ruamel.yaml import YAML

from adapters.settings import load_settings
from adapters.settings_environment import FILE_SUFFIX, variable_names
from cli.serve import MODULES
from tests.recorded_scrape import all_families
from workers.queues import QUEUES

FOLDER = Path(__file__).parents[2] / "data/kubernetes"
BASE, OVERLAYS = FOLDER / "base", ("cuda", "keda")
VERSIONS = ("1.30", kubernetes_validate.latest_version())
OURS = {"gateway", "control", "predictor", "controller", *(f"worker-{queue}" for queue in QUEUES)}
# Kustomize's own, ours, and KEDA's, which no schema of Kubernetes knows.
WITHOUT_SCHEMA = {"Kustomization", "ScaledObject"}

Manifest = dict[str, Any]


@cache
def _read(path: Path) -> list[Manifest]:
    return [document for document in YAML(typ="safe").load_all(path) if document]


def _manifests() -> Iterator[tuple[str, Manifest]]:
    """Those that are whole: resources, not patches or what goes into a config map."""
    for folder in (BASE, *(FOLDER / name for name in OVERLAYS)):
        for name in _kustomization(folder)["resources"]:
            if name.endswith(".yaml"):
                for document in _read(folder / name):
                    yield f"{folder.name}/{name}", document
    for path in sorted((FOLDER / "examples").glob("*.yaml")):
        for document in _read(path):
            yield f"examples/{path.name}", document


def _kustomization(folder: Path) -> Manifest:
    (document,) = _read(folder / "kustomization.yaml")
    return document


def _base(kind: str) -> dict[str, Manifest]:
    found = (one for name, one in _manifests() if name.startswith("base/"))
    return {one["metadata"]["name"]: one for one in found if one["kind"] == kind}


def _pod(workload: Manifest) -> Manifest:
    spec = workload["spec"]["template"]["spec"]
    assert isinstance(spec, dict)
    return spec


def _ours() -> Iterator[tuple[str, Manifest, Manifest]]:
    for name, deployment in _base("Deployment").items():
        if name != "localai":
            (container,) = _pod(deployment)["containers"]
            yield name.removeprefix("headstart-"), deployment, container


@pytest.mark.parametrize("version", VERSIONS)
def test_every_manifest_is_as_the_schema_says(version: str):
    seen = 0
    for _, manifest in _manifests():
        if manifest["kind"] not in WITHOUT_SCHEMA:
            kubernetes_validate.validate(manifest, version, strict=True)
            seen += 1
    assert seen >= 25


@pytest.mark.parametrize("name", ["base", *OVERLAYS])
def test_what_kustomize_makes_of_it_is_so_too(name: str):
    if shutil.which("kubectl") is None:
        return  # each file by itself was held against the schema above
    said = subprocess.run(
        ["kubectl", "kustomize", str(FOLDER / name)], capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stderr
    made = [one for one in YAML(typ="safe").load_all(said.stdout) if one]
    for manifest in made:
        if manifest["kind"] not in WITHOUT_SCHEMA:
            kubernetes_validate.validate(manifest, VERSIONS[0], strict=True)
    (settings,) = (one for one in made if one["kind"] == "ConfigMap")
    for workload in made:
        if workload["kind"] == "Deployment" and workload["metadata"]["name"] != "localai":
            used = [v["configMap"]["name"] for v in _pod(workload)["volumes"] if "configMap" in v]
            assert used == [settings["metadata"]["name"]]


def test_every_file_is_used():
    for folder in (BASE, *(FOLDER / name for name in OVERLAYS)):
        told = _kustomization(folder)
        used = {name for name in told["resources"] if name.endswith(".yaml")}
        used |= {patch["path"] for patch in told.get("patches", ())}
        used |= {file for one in told.get("configMapGenerator", ()) for file in one["files"]}
        assert {path.name for path in folder.iterdir()} - {"kustomization.yaml"} == used


@pytest.mark.parametrize("name", OVERLAYS)
def test_patches_are_of_something_in_the_base(name: str):
    known = {(one["kind"], one["metadata"]["name"]): one for _, one in _manifests()}
    for patch in _kustomization(FOLDER / name).get("patches", ()):
        for document in _read(FOLDER / name / patch["path"]):
            base = known[document["kind"], document["metadata"]["name"]]
            if document["kind"] == "Deployment":
                there = {one["name"] for one in _pod(base)["containers"]}
                assert {one["name"] for one in _pod(document)["containers"]} <= there


def test_each_of_ours_serves_what_its_name_says_with_little_power():
    assert {name for name, _, _ in _ours()} == OURS
    for name, deployment, container in _ours():
        verb, module, *options = container["args"]
        assert (verb, module in MODULES) == ("serve", True)
        if name.startswith("worker-"):
            queue = name.removeprefix("worker-")
            gateway = "http://headstart-gateway:8080"
            assert options == ["--queue", queue, "--gateway-url", gateway]
        else:
            assert (module, options) == (name, [])
        pod, security = _pod(deployment), container["securityContext"]
        assert pod["securityContext"]["runAsUser"] == 10001
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert security["readOnlyRootFilesystem"] is True
        assert security["allowPrivilegeEscalation"] is False
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert {"requests", "limits"} == set(container["resources"])
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        assert labels["headstart/own"] == "true"


def test_no_service_sets_a_variable_that_we_would_read():
    # A service headstart-gateway makes HEADSTART_GATEWAY_PORT=tcp://… in pods that are linked.
    for workload in (*_base("Deployment").values(), *_base("StatefulSet").values()):
        assert _pod(workload)["enableServiceLinks"] is False
        assert _pod(workload)["automountServiceAccountToken"] is False


def test_each_says_whether_it_works_and_mounts_what_it_names():
    for workload in (*_base("Deployment").values(), *_base("StatefulSet").values()):
        (container,) = _pod(workload)["containers"]
        assert {"startupProbe", "readinessProbe", "livenessProbe"} <= set(container)
        volumes = {one["name"] for one in _pod(workload).get("volumes", ())}
        claims = workload["spec"].get("volumeClaimTemplates", ())
        volumes |= {one["metadata"]["name"] for one in claims}
        assert {one["name"] for one in container["volumeMounts"]} == volumes
        claimed = [
            one["persistentVolumeClaim"]["claimName"]
            for one in _pod(workload).get("volumes", ())
            if "persistentVolumeClaim" in one
        ]
        assert set(claimed) <= set(_base("PersistentVolumeClaim"))
    for name, _, container in _ours():
        command = container["readinessProbe"].get("exec", {}).get("command")
        if name in ("gateway", "control"):
            assert command is None
        else:
            module = container["args"][1]
            queue = container["args"][2:4] if module == "workers" else []
            assert command == ["headstart", "health", module, *queue]


def test_every_image_has_a_tag_or_gets_one():
    told = {one["name"]: one["newTag"] for one in _kustomization(BASE)["images"]}
    for workload in (*_base("Deployment").values(), *_base("StatefulSet").values()):
        (container,) = _pod(workload)["containers"]
        name, _, tag = container["image"].partition(":")
        assert tag, name
        assert not tag.startswith("latest"), name
        assert told.get(name, tag) == tag


def test_there_are_two_gateways_controllers_and_predictors_of_which_one_stays():
    (scaler,) = _base("HorizontalPodAutoscaler").values()
    assert scaler["spec"]["scaleTargetRef"]["name"] == "headstart-gateway"
    assert scaler["spec"]["minReplicas"] == 2
    deployments = _base("Deployment")
    # A number here would be set again with every apply, against the autoscaler's.
    assert "replicas" not in deployments["headstart-gateway"]["spec"]
    assert deployments["headstart-controller"]["spec"]["replicas"] == 2
    assert deployments["headstart-predictor"]["spec"]["replicas"] == 2
    budgets = _base("PodDisruptionBudget")
    assert set(budgets) == {"headstart-gateway", "headstart-controller", "headstart-predictor"}
    for name, budget in budgets.items():
        labels = deployments[name]["spec"]["template"]["metadata"]["labels"]
        assert budget["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_running_streams_may_end():
    pod = _pod(_base("Deployment")["headstart-gateway"])
    grace_s = load_settings({}).gateway_config().shutdown_grace_s
    assert pod["terminationGracePeriodSeconds"] >= grace_s + 5 + 5


def test_localai_is_reached_by_gateway_and_controller_alone():
    policies = _base("NetworkPolicy")
    assert policies["nobody"]["spec"] == {"podSelector": {}, "policyTypes": ["Ingress"]}
    (rule,) = policies["localai"]["spec"]["ingress"]
    ((chosen,),) = (one["podSelector"]["matchExpressions"] for one in rule["from"])
    assert chosen["key"] == "app.kubernetes.io/component"
    assert chosen["values"] == ["gateway", "controller"]
    assert _base("Service")["localai"]["spec"]["clusterIP"] == "None"


def test_the_configuration_is_read_without_a_complaint(tmp_path: Path):
    for files in (["base/headstart.yaml"], ["base/headstart.yaml", "keda/autoscaling.yaml"]):
        folder = tmp_path / str(len(files))
        folder.mkdir()
        for file in files:
            shutil.copy(FOLDER / file, folder)
        environ = {"HEADSTART_CONFIG": str(folder), "HEADSTART_DATA_DIR": str(tmp_path)}
        settings = load_settings(environ)
        assert settings.notices == ()
        assert settings.active_by_default
        assert settings.redis_url == "redis://headstart-redis:6379/0"
    assert set(_base("Service")) == {
        "headstart-redis",
        "headstart-gateway",
        "headstart-control",
        "localai",
    }
    known = set(variable_names())
    for _, _, container in _ours():
        for one in container["env"]:
            assert one["name"].removesuffix(FILE_SUFFIX) in known | {"HEADSTART_CONFIG"}
            if one["name"].endswith(FILE_SUFFIX):
                assert one["value"].startswith("/run/secrets/headstart/")
    (secret,) = (one for name, one in _manifests() if name == "examples/secret.yaml")
    assert set(secret["stringData"]) == {"admin_key", "gateway_keys"}


def test_keda_reads_targets_that_there_are():
    targets = {f"workers-{queue}": f"headstart-worker-{queue}" for queue in QUEUES}
    (told,) = _read(FOLDER / "keda/autoscaling.yaml")
    targets |= dict.fromkeys(told["autoscaling"], "localai")
    read = {}
    for name, one in _manifests():
        if one["kind"] != "ScaledObject":
            continue
        (trigger,) = one["spec"]["triggers"]
        assert (trigger["type"], trigger["metricType"]) == ("metrics-api", "Value"), name
        address, _, target = trigger["metadata"]["url"].rpartition("/v1/autoscale/")
        assert address == "http://headstart-control.headstart:8090"
        assert trigger["metadata"]["valueLocation"] == "replicas"
        assert trigger["metadata"]["targetValue"] == "1"
        read[target] = one["spec"]["scaleTargetRef"]["name"]
    assert read == targets
    assert set(read.values()) <= set(_base("Deployment"))


def test_a_plain_autoscaler_reads_a_metric_that_the_adapter_makes_of_one_of_ours():
    (adapter,) = (one for name, one in _manifests() if name == "examples/prometheus-adapter.yaml")
    (rule,) = YAML(typ="safe").load(adapter["data"]["config.yaml"])["externalRules"]
    series, _, label = rule["seriesQuery"].removesuffix('!=""}').partition("{")
    known = all_families()[series]
    assert known.labels == (label,)
    assert rule["metricsQuery"].startswith(f"max by ({label})")
    (scaler,) = (one for name, one in _manifests() if name == "examples/hpa-external.yaml")
    (metric,) = scaler["spec"]["metrics"]
    assert metric["external"]["metric"]["name"] == rule["name"]["as"] == series
    (target,) = metric["external"]["metric"]["selector"]["matchLabels"].values()
    (told,) = _read(FOLDER / "keda/autoscaling.yaml")
    bounds = told["autoscaling"][target]
    assert bounds["scaler"] == "read"
    spec = scaler["spec"]
    assert (spec["minReplicas"], spec["maxReplicas"]) == (bounds["min"], bounds["max"])
    # So the number itself: its total over one for each replica.
    assert metric["external"]["target"] == {"type": "AverageValue", "averageValue": "1"}
    assert spec["scaleTargetRef"]["name"] in _base("Deployment")
