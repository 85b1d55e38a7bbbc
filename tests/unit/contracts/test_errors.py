from __future__ import annotations

import importlib
import pkgutil

import contracts
from contracts.errors import HeadstartError, Transient
from contracts.upstream import Broken, Unanswered, Unreachable


def test_every_error_that_crosses_a_wall_is_of_the_one_tree():
    for module in pkgutil.iter_modules(contracts.__path__):
        for name, found in vars(importlib.import_module(f"contracts.{module.name}")).items():
            if isinstance(found, type) and issubclass(found, Exception):
                assert issubclass(found, HeadstartError), f"{module.name}.{name}"


def test_what_may_pass_can_say_when():
    assert Transient("cools down", retry_after_s=10.0).retry_after_s == 10.0
    assert all(kind("x").retry_after_s is None for kind in (Broken, Unanswered, Unreachable))
