"""Every record that goes over Redis comes back as it was, whatever its fields hold."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.codec import Record, decode, encode
from tests.fuzz.records import records

RECORD_TYPES = get_args(Record)


@pytest.mark.parametrize("record_type", RECORD_TYPES, ids=lambda each: each.__name__)
@given(data=st.data())
def test_there_and_back(record_type: type[Any], data: st.DataObject):
    record = data.draw(records(record_type))
    assert decode(encode(record)) == record


@given(st.binary(max_size=200))
def test_nothing_makes_the_reader_fail(data: bytes):
    assert decode(data) is None
