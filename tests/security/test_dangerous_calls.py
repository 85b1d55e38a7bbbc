"""What the tree never does: run what it reads, compare secrets letter by letter, trust blindly."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from rq.serializers import JSONSerializer

from adapters import rq_queue

ROOT = Path(__file__).parents[2]
PRODUCT = ("adapters", "api", "cli", "contracts", "controller", "emulator", "predictor",
           "simulator", "workers")  # fmt: skip

MODULES = {
    "pickle": "it runs what it reads", "cPickle": "as pickle", "dill": "as pickle",
    "cloudpickle": "as pickle", "joblib": "as pickle", "shelve": "as pickle",
    "marshal": "as pickle", "xmlrpc": "it unpacks what it reads", "telnetlib": "in the clear",
    "ftplib": "in the clear", "imp": "code by a path",
}  # fmt: skip
CALLS = {
    "eval": "it runs what it reads", "exec": "as eval", "compile": "as eval",
    "__import__": "code by a name", "os.system": "a shell", "os.popen": "a shell",
    "tempfile.mktemp": "somebody may be quicker", "yaml.load": "it makes objects",
    "yaml.unsafe_load": "as yaml.load", "yaml.full_load": "as yaml.load",
    "ssl._create_unverified_context": "nobody is checked", "numpy.lib.format.read_array": "pickle",
    "random.seed": "no randomness of the process's",
}  # fmt: skip
KEYWORDS = {
    ("shell", True): "a shell", ("verify", False): "nobody is checked",
    ("verify_ssl", False): "nobody is checked", ("ssl", False): "nobody is checked",
    ("allow_pickle", True): "it runs what it reads", ("check_hostname", False): "as verify",
}  # fmt: skip
SECRETS = re.compile(r"(^|_)(key|keys|token|secret|password|passwd|signature|hmac|mac|credential)$")
NOT_SECRETS = frozenset(
    # Names of things in tables.
    {"sort_key", "cache_key", "redis_key"}
)
KINDS = (ast.Import, ast.ImportFrom, ast.Call, ast.Assert, ast.Compare)


def nodes_of_all() -> dict[type[ast.AST], list[tuple[str, ast.AST]]]:
    """Each node of use here with its place, gone through once."""
    found: dict[type[ast.AST], list[tuple[str, ast.AST]]] = {kind: [] for kind in KINDS}
    for package in PRODUCT:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if type(node) in found:
                    found[type(node)].append((f"{name}:{getattr(node, 'lineno', 0)}", node))
    return found


NODES = nodes_of_all()


def nodes(kind: type[ast.AST]) -> Iterator[tuple[str, ast.AST]]:
    yield from NODES[kind]


def test_nothing_unpacks_objects_or_speaks_in_the_clear():
    found = []
    for place, node in nodes(ast.Import):
        assert isinstance(node, ast.Import)
        found += [(place, one.name) for one in node.names if one.name.split(".")[0] in MODULES]
    for place, node in nodes(ast.ImportFrom):
        assert isinstance(node, ast.ImportFrom)
        if (node.module or "").split(".")[0] in MODULES:
            found.append((place, node.module or ""))
    assert found == []


def test_nothing_runs_what_it_reads_nor_leaves_it_to_a_shell():
    found = []
    for place, node in nodes(ast.Call):
        assert isinstance(node, ast.Call)
        name = ast.unparse(node.func)
        if name in CALLS:
            found.append((place, name))
        for word in node.keywords:
            value = word.value.value if isinstance(word.value, ast.Constant) else None
            if isinstance(value, bool) and (word.arg, value) in KEYWORDS:
                found.append((place, f"{name}({word.arg}={value})"))
    assert found == []


def test_numpy_never_unpickles():
    loads = [
        (place, node)
        for place, node in nodes(ast.Call)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("np.load", "numpy.load")
    ]
    assert loads != []
    for place, node in loads:
        assert isinstance(node, ast.Call)
        words = {word.arg: ast.unparse(word.value) for word in node.keywords}
        assert words.get("allow_pickle") == "False", place


def test_no_check_is_an_assert_that_an_option_takes_away():
    """``python -O`` drops them: what is judged there must be impossible, not just unlikely.

    What remains tells the type checker something, or names an invariant: nothing that comes from
    outside is called in it.
    """
    found = []
    for place, node in nodes(ast.Assert):
        assert isinstance(node, ast.Assert)
        text = ast.unparse(node.test)
        if re.search(r"compare_digest|is_public|\bcheck_\w+\(|may_\w+\(|is_allowed", text):
            found.append((place, text))
    assert found == []


def is_secret(node: ast.expr) -> bool:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return SECRETS.search(name) is not None and name not in NOT_SECRETS
        case ast.Call(func=func):
            return is_secret(func)
        case _:
            return False


def is_plain(node: ast.expr) -> bool:
    """None, numbers, names of enumerations and the empty text tell nothing."""
    match node:
        case ast.Constant(value=value):
            return value is None or value == "" or not isinstance(value, str | bytes)
        case ast.Attribute(attr=name):
            return name.isupper()
        case _:
            return isinstance(node, ast.Tuple | ast.List | ast.Set)


def test_secrets_are_compared_in_constant_time_or_by_their_digest():
    """A variable that is named as a secret is in no ``==``; look-ups go by SHA-256."""
    found = []
    for place, node in nodes(ast.Compare):
        assert isinstance(node, ast.Compare)
        sides = [node.left, *node.comparators]
        if not any(isinstance(op, ast.Eq | ast.NotEq) for op in node.ops):
            continue
        if any(map(is_secret, sides)) and not any(map(is_plain, sides)):
            found.append((place, ast.unparse(node)))
    assert [one for one in found if one[0].partition(":")[0] not in HARMLESS] == []
    assert {place.partition(":")[0] for place, _ in found} == HARMLESS, "it lists no more than is"


HARMLESS = {
    # Names of settings and of things in mappings.
    "adapters/import_compose.py", "adapters/probes/cgroups.py", "adapters/probes/owners.py",
    "adapters/settings_merge.py", "api/control/paging.py", "controller/memory_truth.py",
    "emulator/models.py", "emulator/transcription.py",
    # Numbers that leaders count up.
    "api/gateway/residency.py", "controller/loop.py", "predictor/ownership.py",
    "predictor/service.py",
}  # fmt: skip
"""Where a key is no secret. Whoever adds a file here looks at what it compares."""


def test_jobs_are_json_in_every_place_that_reads_or_writes_them():
    assert vars(rq_queue)["JSONSerializer"] is JSONSerializer
    made = {
        (place, ast.unparse(node.func)): {word.arg for word in node.keywords}
        for place, node in nodes(ast.Call)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("Job.fetch", "Job.create", "Job.fetch_many")
        and place.startswith(("adapters/", "workers/"))
    }
    assert made != {}
    assert [place for place, words in made.items() if "serializer" not in words] == []


@pytest.mark.parametrize("folder", PRODUCT)
def test_the_list_of_packages_is_whole(folder: str):
    assert (ROOT / folder).is_dir()
