"""Records of every kind that goes over Redis, whatever their fields hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

TEXT = st.text(max_size=12)


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a type."""
    if hint is float:
        return st.floats(allow_nan=False, allow_infinity=False)
    if hint is int:
        return st.integers(-(2**53), 2**53)
    if hasattr(hint, "__supertype__") or hint is str:
        return TEXT
    if hasattr(hint, "__dataclass_fields__"):
        return records(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return st.one_of(*map(values_of, arguments))
    if origin is Mapping:
        return st.dictionaries(values_of(arguments[0]), values_of(arguments[1]), max_size=3)
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(values_of(arguments[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values_of, arguments))
    return st.from_type(hint)


def records(record_type: type[Any]) -> st.SearchStrategy[Any]:
    """Records of a kind."""
    hints = get_type_hints(record_type)
    return st.builds(
        record_type, **{field.name: values_of(hints[field.name]) for field in fields(record_type)}
    )
