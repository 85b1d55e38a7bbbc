"""What all answers of the control API have in common. ``null`` means not known, never zero."""

from __future__ import annotations

from typing import Generic, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

ItemT = TypeVar("ItemT")


class Schema(BaseModel):
    """Base of all answers."""

    model_config = ConfigDict(frozen=True, protected_namespaces=())


class Asked(BaseModel):
    """Base of all request bodies: a field that is not known is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _number(value: object) -> object:
    # JSON's true is 1 to Python, and "1" as well: who sends one has mistaken something.
    if isinstance(value, bool | str):
        raise PydanticCustomError("not_a_number", "must be a number")
    return value


A_NUMBER = BeforeValidator(_number)
"""Stands last among what is said of a number, so that its bounds are in the schema."""


class ErrorDetail(Schema):
    """What went wrong."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorBody(Schema):
    """Every error answer."""

    error: ErrorDetail


class Page(Schema, Generic[ItemT]):
    """One page of a list. ``stale``: the newest state could not be read, this is the last known."""

    object: Literal["list"] = "list"
    data: list[ItemT]
    has_more: bool = False
    last_id: str | None = Field(
        default=None, description="Pass it as `after` to get the next page; null on an empty page."
    )
    stale: bool = False


class Deleted(Schema):
    """What is no longer there."""

    id: str
    object: str
    deleted: bool = True
