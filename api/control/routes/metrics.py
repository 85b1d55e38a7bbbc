"""Figures for Prometheus."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request, Response

from api.control.metrics import CONTENT_TYPE, OPENMETRICS_CONTENT_TYPE, render
from api.control.room import READ, Room

router = APIRouter(tags=["metrics"], dependencies=READ)


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def get_metrics(room: Room, request: Request) -> Response:
    """All figures in Prometheus' text format, or as OpenMetrics where that is asked for."""
    wants_openmetrics = "application/openmetrics-text" in request.headers.get("accept", "")
    # A hundred models take tens of milliseconds to render: the feed must not wait for that.
    text = await asyncio.to_thread(render, room.metrics.read(), openmetrics=wants_openmetrics)
    content_type = OPENMETRICS_CONTENT_TYPE if wants_openmetrics else CONTENT_TYPE
    return Response(text, headers={"Content-Type": content_type})
