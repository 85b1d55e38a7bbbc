"""Several files read as one configuration: drop-ins, lists of files, folders."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from adapters.clock import ScaledClock
from adapters.config_files import ConfigReload
from adapters.settings import Settings, load_settings
from adapters.settings_changes import Changes
from contracts.errors import Invalid
from contracts.ids import ModelId

HOME = {"HOME": "/home/op"}


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(name: str, text: str) -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def load(**environ: str) -> Settings:
    return load_settings(HOME | environ)


def test_files_beside_the_main_one_are_merged_section_by_section():
    write("headstart.yaml", "gateway: {port: 9001}\nqueue_config: {realtime_capacity: 3}\n")
    write("headstart.d/10-thresholds.yaml", "queue_config:\n  batch_capacity: 4\n")
    write("headstart.d/20-groups.yml", "resources: {text: {memory_limit: 8Gi}}\n")
    settings = load()
    assert settings.document.gateway.port == 9001
    queue = settings.document.queue_config
    assert (queue.realtime_capacity, queue.batch_capacity) == (3, 4)
    assert list(settings.document.resources) == ["text"]
    assert settings.notices == ()
    assert settings.source.origins["queue_config", "batch_capacity"] == (
        "headstart.d/10-thresholds.yaml:2"
    )
    assert Path("headstart.d") in settings.read_from


def test_the_later_file_stands_and_that_is_told():
    write("headstart.yaml", "gateway:\n  port: 9001\n  keys: [a, b]\n")
    write("headstart.d/b.yaml", "gateway:\n  port: 9002\n")
    write("headstart.d/c.yaml", "gateway:\n  port: 9003\n  keys: [c]\n")
    settings = load()
    assert settings.document.gateway.port == 9003
    assert [key.get_secret_value() for key in settings.document.gateway.keys] == ["c"]
    assert settings.notices[:3] == (
        "gateway.port: headstart.d/b.yaml:2 stands over headstart.yaml:2",
        "gateway.port: headstart.d/c.yaml:2 stands over headstart.d/b.yaml:2",
        "gateway.keys: headstart.d/c.yaml:3 stands over headstart.yaml:3",
    )
    assert ("gateway", "keys", "1") not in settings.source.origins


def test_the_same_value_twice_is_nothing_to_tell():
    write("headstart.yaml", "gateway: {port: 9001}\n")
    write("headstart.d/b.yaml", "gateway: {port: 9001}\n")
    assert load().notices == ()


def test_models_are_merged_by_name_whether_as_a_list_or_a_mapping():
    write("headstart.yaml", "models:\n  a: {preload: true}\n")
    write("headstart.d/b.yaml", "models:\n- {name: a, slots: 2}\n- {name: b, pinned: true}\n")
    profiles = load().controller_config().profiles
    assert profiles[ModelId("a")].preload
    assert profiles[ModelId("a")].slots == 2
    assert profiles[ModelId("b")].pinned


@pytest.mark.parametrize("text", ["", "  \n", "gateway:\n", "# all of it is off\n"])
def test_a_file_that_sets_nothing_changes_nothing(text: str):
    write("headstart.yaml", "gateway: {port: 9001}\n")
    write("headstart.d/b.yaml", text)
    assert load().document.gateway.port == 9001


@pytest.mark.case("P148")
def test_backups_and_hidden_files_are_no_configuration():
    write("headstart.yaml", "gateway: {port: 9001}\n")
    for name in ("b.yaml.bak", "b.yaml.bak.123", ".hidden.yaml", "notes.txt", "c.yaml~"):
        write(f"headstart.d/{name}", "gateway: {port: 9009}\n")
    write("headstart.d/B.YML", "control: {port: 9002}\n")
    settings = load()
    assert (settings.document.gateway.port, settings.document.control.port) == (9001, 9002)


def test_the_environment_stands_over_all_files():
    write("headstart.yaml", "gateway: {port: 9001}\n")
    write("headstart.d/b.yaml", "gateway: {port: 9002}\n")
    assert load(HEADSTART_GATEWAY_PORT="9003").document.gateway.port == 9003


def test_errors_name_the_file_and_all_files_are_read():
    write("headstart.yaml", "gateway: {port: 0}\n")
    write("headstart.d/b.yaml", "gatway: {}\n")
    write("headstart.d/c.yaml", "a: [\n")
    with pytest.raises(Invalid) as caught:
        load()
    assert "headstart.d/c.yaml:" in str(caught.value)
    assert "headstart.yaml:1: gateway.port = 0" in str(caught.value)
    assert "headstart.d/b.yaml:1: gatway: unknown key" in str(caught.value)


def test_a_section_in_one_file_and_a_value_in_the_other_is_an_error():
    write("headstart.yaml", "gateway: {port: 9001}\n")
    write("headstart.d/b.yaml", "gateway: 7\n")
    with pytest.raises(Invalid, match=r"gateway = .*: must be a mapping"):
        load()


def test_the_environment_may_name_several_files():
    one = write("one.yaml", "gateway: {port: 9001}\n")
    two = write("other/two.yaml", "control: {port: 9002}\ndata_dir: ./var\n")
    write("one.d/three.yaml", "queue_config: {batch_capacity: 7}\n")
    settings = load(HEADSTART_CONFIG=f"{one}{os.pathsep} {two}")
    document = settings.document
    assert (document.gateway.port, document.control.port) == (9001, 9002)
    assert document.queue_config.batch_capacity == 7
    assert settings.file == one
    assert settings.data_dir == Path.cwd() / "var"


def test_the_environment_may_name_a_folder_of_files():
    write("conf/a.yaml", "gateway: {port: 9001}\n")
    write("conf/b.yaml", "gateway: {port: 9002}\ndata_dir: state\n")
    settings = load(HEADSTART_CONFIG="conf")
    assert settings.document.gateway.port == 9002
    assert settings.data_dir == Path.cwd() / "conf/state"
    assert settings.read_from == (Path("conf/a.yaml"), Path("conf/b.yaml"), Path("conf"))


def test_a_folder_without_files_holds_the_defaults():
    Path("conf").mkdir()
    settings = load(HEADSTART_CONFIG="conf")
    assert settings.notices == ("conf: holds no .yaml file, so all defaults hold",)


def test_a_file_that_is_missing_is_an_error():
    one = write("one.yaml", "gateway: {port: 9001}\n")
    with pytest.raises(Invalid, match=r"two\.yaml: there is no such file"):
        load(HEADSTART_CONFIG=f"{one}{os.pathsep}two.yaml")


def test_a_folder_that_cannot_be_read_is_an_error(monkeypatch: pytest.MonkeyPatch):
    Path("conf").mkdir()

    def denied(_self: Path) -> list[Path]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", denied)
    with pytest.raises(Invalid, match="conf: cannot be read: Permission denied"):
        load(HEADSTART_CONFIG="conf")


def test_a_reload_reads_all_files_again():
    one = write("one.yaml", "gateway: {port: 9001}\n")
    two = write("two.yaml", "control: {port: 9002}\n")
    environ = HOME | {"HEADSTART_CONFIG": f"{one}{os.pathsep}{two}"}
    taken: list[Settings] = []

    def apply(_before: Settings, after: Settings) -> Changes:
        taken.append(after)
        return Changes()

    reload = ConfigReload(load_settings(environ), environ, apply, ScaledClock(1.0))
    write("two.yaml", "control: {port: 9004}\n")
    reload.reload()
    assert (taken[0].document.gateway.port, taken[0].document.control.port) == (9001, 9004)


@pytest.mark.parametrize("key", ["1", "null", "~", "true", "1.5", "0x10", ".inf"])
@pytest.mark.parametrize("section", ["models", "resources", "autoscaling"])
def test_a_name_that_yaml_reads_as_no_text_needs_quotes(tmp_path, section, key):
    path = tmp_path / "headstart.yaml"
    path.write_text(f"{section}:\n  {key}: {{}}\n")
    with pytest.raises(Invalid, match=r":2: .*: a name must be text; it is with quotes: "):
        load_settings({"HOME": "/home/op"}, path)


def test_a_name_in_quotes_may_look_like_anything(tmp_path):
    path = tmp_path / "headstart.yaml"
    path.write_text('models:\n  "1": {pinned: true}\n  "null": {}\n')
    assert list(load_settings({"HOME": "/home/op"}, path).document.models) == ["1", "null"]
