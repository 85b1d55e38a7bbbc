"""Figures for Prometheus."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Response

from api.control.metrics import CONTENT_TYPE, render
from api.control.room import READ, Room

router = APIRouter(tags=["metrics"], dependencies=READ)


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def get_metrics(room: Room) -> Response:
    """All figures in Prometheus' text format."""
    # A hundred models take tens of milliseconds to render: the feed must not wait for that.
    text = await asyncio.to_thread(render, room.metrics.read())
    return Response(text, headers={"Content-Type": CONTENT_TYPE})
