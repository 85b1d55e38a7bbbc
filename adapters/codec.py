"""Records to bytes and back: the one schema of everything that goes over Redis.

A record is ``{"v": version, "kind": class name, "data": fields}`` in JSON. Readers skip what
they do not understand and count it: a newer version, an unknown kind, a damaged record.
Unknown fields of a known kind are ignored and missing ones take their default, so that two
releases can run side by side as long as changes only add.
"""

from __future__ import annotations

from typing import Any, TypeVar, get_args

import msgspec

from contracts.events import SCHEMA_VERSION, AnyEvent
from contracts.forecasts import ModelForecast
from contracts.messages import ToController, ToGateways
from contracts.plan import Decision
from contracts.profiles import MeasuredProfile
from contracts.world import Sla, WorldSnapshot

RecordT = TypeVar("RecordT")

Record = (
    AnyEvent
    | ToController
    | ToGateways
    | ModelForecast
    | Decision
    | WorldSnapshot
    | Sla
    | MeasuredProfile
)

EVENT_TYPES: tuple[type[Any], ...] = get_args(AnyEvent)
TO_CONTROLLER_TYPES: tuple[type[Any], ...] = get_args(ToController)
TO_GATEWAYS_TYPES: tuple[type[Any], ...] = get_args(ToGateways)


class _Envelope(msgspec.Struct):
    v: int
    kind: str
    data: msgspec.Raw


_ENCODER = msgspec.json.Encoder()
_ENVELOPE_DECODER = msgspec.json.Decoder(_Envelope)
_DECODERS: dict[str, msgspec.json.Decoder[Any]] = {
    record_type.__name__: msgspec.json.Decoder(record_type) for record_type in get_args(Record)
}


def encode(record: Record) -> bytes:
    """The bytes of one record, in this release's version.

    A float that is not finite becomes null: readers take it as missing, or skip the record
    where the field must not be.
    """
    kind = type(record).__name__
    if kind not in _DECODERS:
        raise TypeError(f"{kind} is not a record that goes over Redis")
    envelope = {"v": SCHEMA_VERSION, "kind": kind, "data": record}
    try:
        return _ENCODER.encode(envelope)
    except UnicodeEncodeError:
        return _ENCODER.encode(_valid_text(msgspec.to_builtins(envelope)))


def decode(data: bytes | str) -> Record | None:
    """The record in ``data``; None when it is newer, of an unknown kind or damaged."""
    try:
        envelope = _ENVELOPE_DECODER.decode(data)
        decoder = _DECODERS.get(envelope.kind)
        if decoder is None or not 1 <= envelope.v <= SCHEMA_VERSION:
            return None
        record: Record = decoder.decode(envelope.data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return record


def decode_as(
    data: bytes | str | None, wanted: type[RecordT] | tuple[type[RecordT], ...]
) -> RecordT | None:
    """As ``decode``, and None also for a record of another kind than ``wanted``."""
    record = None if data is None else decode(data)
    return record if isinstance(record, wanted) else None


def _valid_text(value: Any) -> Any:
    """``value`` with half surrogates in its text replaced: they come from odd paths and names."""
    match value:
        case str():
            return value.encode(errors="replace").decode()
        case dict():
            return {_valid_text(key): _valid_text(each) for key, each in value.items()}
        case list() | tuple():
            return [_valid_text(each) for each in value]
        case _:
            return value
