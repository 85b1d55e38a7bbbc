"""LocalAI's model files: the ``scheduling_profile`` that may stand in them."""

from __future__ import annotations

from adapters.settings_configs import profile_of
from adapters.settings_merge import without_nulls
from adapters.settings_problems import Problems, shown
from adapters.settings_source import Source, read_yaml
from adapters.settings_validation import validate
from contracts.config import ModelProfile

OUR_KEYS = ("scheduling_profile", "preload", "pinned", "slots")


def parse_scheduling_profile(text: str | bytes, *, source: str = "model file") -> ModelProfile:
    """What a LocalAI model file declares for us; its own keys are passed over.

    Parameters
    ----------
    text : str or bytes
        The file as it stands, YAML or JSON, such as ``GET /api/models/edit/{name}`` gives it.
    source : str
        How errors name it.

    Raises
    ------
    Invalid
        When it is no mapping with a ``name``, or when our part of it is wrong; one line for
        each error, with its line number.
    """
    problems = Problems()
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    file = read_yaml(data, source, problems)
    name = file.values.get("name")
    if not isinstance(name, str):
        where = file.origins.get(("name",), source)
        problems.add(where, f"name = {shown(name)}: must be text")
    problems.raise_if_any()
    ours = {key: file.values[key] for key in OUR_KEYS if key in file.values}
    values = without_nulls({"models": {name: ours}}, ())
    origins = {
        ("models", str(name), *place): origin
        for place, origin in file.origins.items()
        if place[0] in OUR_KEYS
    }
    document = validate(Source(values, origins), problems)
    problems.raise_if_any()
    assert document is not None
    return profile_of(str(name), document.models[str(name)])
