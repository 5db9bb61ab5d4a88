"""Routes for operators: health, readiness, metrics; and the description of the API itself."""

import asyncio
from collections.abc import Mapping

from starlette.responses import Response

from treadle.errors import StoreError
from treadle.frontends.server import openapi
from treadle.frontends.server.replies import JSON, ApiReply, encode_reply
from treadle.frontends.server.routing import ApiRequest, Route
from treadle.frontends.server.usage import MEDIA_TYPE, Labels
from treadle.protocol.http_answers import Health

READY_S = 5.0
HTML = "text/html"


async def healthz(_call: ApiRequest) -> ApiReply:
    """The process answers."""
    return encode_reply(Health(status="ok"))


async def readyz(call: ApiRequest) -> ApiReply:
    """Requests can be served: the store answers, and the server is not about to end."""
    if call.service.draining.is_set():
        return encode_reply(Health(status="draining"), 503)
    try:
        async with asyncio.timeout(READY_S):
            await call.deps.store.list(limit=1)
    except (StoreError, TimeoutError):
        return encode_reply(Health(status="unavailable"), 503)
    return encode_reply(Health(status="ok"))


async def metrics(call: ApiRequest) -> Response:
    service, deps = call.service, call.deps
    counts = await service.chat_counts.count_statuses()
    statuses: dict[Labels, float] = {(("status", status),): count for status, count in counts.items()}
    lease_count = service.worker.load if service.worker is not None else 0
    slow_readers: dict[Labels, float] = {(): service.feeds.dropped}
    gauges: dict[str, tuple[str, Mapping[Labels, float]]] = {
        "treadle_chats": ("Chats in the store by status.", statuses),
        "treadle_leases_held": ("Chats that this process drives.", {(): lease_count}),
        "treadle_events_appended_total": ("Events that this process has recorded.", {(): deps.log.appended}),
        "treadle_slow_readers_total": ("Readers that lost live text because they were slow.", slow_readers),
    }
    return Response(service.metrics.format_page(gauges), media_type=MEDIA_TYPE)


async def description(call: ApiRequest) -> Response:
    return Response(call.service.openapi, media_type=JSON)


async def docs(call: ApiRequest) -> Response:
    page, headers = openapi.render_docs(call.service.openapi), {"content-security-policy": openapi.POLICY}
    return Response(page, media_type=HTML, headers=headers)


TAG = "operation"
ROUTES = (
    Route("GET", "/healthz", healthz, "Is the server alive?", reply=Health, open=True),
    Route("GET", "/readyz", readyz, "Can it serve requests?", reply=Health, open=True, codes=("draining",)),
    Route("GET", "/metrics", metrics, "Numbers for Prometheus.", media_type="text/plain", operators=True),
    Route("GET", "/api/openapi.json", description, "This description, as OpenAPI.", media_type=JSON, open=True),
    Route("GET", "/api/docs", docs, "This description, to read.", media_type=HTML, open=True),
)  # fmt: skip
