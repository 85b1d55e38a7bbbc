"""The Python in pages on how it works and how to extend it is run as it stands there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from controller.policies.registry import POLICIES

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "docs/extending").glob("*.md")), ROOT / "docs/one-forecast.md"]


@pytest.fixture(autouse=True)
def policies() -> Iterator[None]:
    """What a page registers is gone after it."""
    before = dict(POLICIES)
    yield
    POLICIES.clear()
    POLICIES.update(before)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_python_of_a_page_does_what_it_says(page: Path):
    text = page.read_text()
    blocks = list(re.finditer(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE))
    assert blocks or page.stem == "index"
    module = ModuleType(f"docs_{page.stem}")
    # Blank lines put each block where it stands, so that a failure names the page's line.
    source = ""
    for block in blocks:
        line = text.count("\n", 0, block.start(1))
        source += "\n" * (line - source.count("\n")) + block[1]
    future = "from __future__ import annotations\n"
    code = compile(source.replace(future, "\n"), str(page), "exec", dont_inherit=True)
    exec(code, module.__dict__)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_places_that_a_page_names_are_there(page: Path):
    """Files and names of our own that stand in the text as code."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    roots = "adapters|api|cli|contracts|controller|predictor|simulator|tests"
    for path in re.findall(rf"`((?:{roots})/[\w/.]*)`", text):
        assert (ROOT / path).exists(), path
