"""Routes for the bytes that events refer to: tool outputs, pictures. A reader names the event, not the blob (S-13)."""

import re

from starlette.responses import Response

from treadle.frontends.server.replies import Problem
from treadle.frontends.server.routing import ApiRequest, Route
from treadle.protocol import wire
from treadle.protocol.content import PICTURE_KINDS, Image
from treadle.protocol.events import Event, UserMessage
from treadle.protocol.tool_events import ExecutionComplete

TEXT = "text/plain; charset=utf-8"
_RANGE = re.compile(r"bytes=(\d{0,15})-(\d{0,15})")


async def output(call: ApiRequest) -> Response:
    event = await _load_event(call)
    if not isinstance(event, ExecutionComplete):
        raise Problem("not_found", "This event is no result of a tool.")
    if event.output:
        data = await call.deps.store.get_blob(event.output)
    else:
        data = (event.result or event.error).encode()
    disposition = f'attachment; filename="output-{call.get_path_parameter("seq")}.txt"'
    headers = {"accept-ranges": "bytes", "content-disposition": disposition}
    if not (range_header := call.request.headers.get("range", "")):
        return Response(data, headers=headers, media_type=TEXT)
    first, last = _parse_range(range_header, len(data))
    if first >= len(data):
        headers["content-range"] = f"bytes */{len(data)}"
        return Response(status_code=416, headers=headers)
    headers["content-range"] = f"bytes {first}-{last}/{len(data)}"
    return Response(data[first : last + 1], 206, headers, TEXT)


def _parse_range(range_header: str, size: int) -> tuple[int, int]:
    """The first and the last byte of a range: `bytes=0-99`, `bytes=100-`, or the last ones, `bytes=-100`."""
    if (match := _RANGE.fullmatch(range_header.strip())) is None or not (match[1] or match[2]):
        raise Problem("bad_request", "Write the range as bytes=FIRST-LAST; one range, no more.")
    if not match[1]:
        return max(0, size - int(match[2])) if int(match[2]) else size, size - 1
    first = int(match[1])
    last = min(int(match[2]), size - 1) if match[2] else size - 1
    if last < first and first < size:
        raise Problem("bad_request", "The range ends before it begins.")
    return first, last


async def picture(call: ApiRequest) -> Response:
    event, place = await _load_event(call), call.get_path_parameter("place")
    images: tuple[Image, ...] = event.images if isinstance(event, UserMessage | ExecutionComplete) else ()
    if not (place.isascii() and place.isdigit() and len(place) < 5 and int(place) < len(images)):
        raise Problem("not_found", "This event has no such picture.")
    image = images[int(place)]
    if image.media_type not in PICTURE_KINDS:
        raise Problem("not_found", "This is no picture that a browser shows.")
    return Response(await call.deps.store.get_blob(image.blob), media_type=image.media_type)


async def _load_event(call: ApiRequest) -> Event:
    chat, seq = await call.find_chat(), call.get_path_parameter("seq")
    if seq.isascii() and seq.isdigit() and 0 < len(seq) < 16:
        for record in await call.deps.store.read(chat, int(seq) - 1, 1):
            if record.seq == int(seq):
                return wire.decode(chat, record).data
    raise Problem("not_found", f"The chat has no event {seq[:20]!r}.")


TAG = "streams"
_AT = "/api/chats/{chat}/events/{seq}"
ROUTES = (
    Route("GET", f"{_AT}/output", output,
          "Read the whole output of a tool, where its result shows a part; with the header Range a piece of it.",
          media_type="text/plain"),
    Route("GET", f"{_AT}/images/{{place}}", picture, "Get a picture of a message or a result.", media_type="image/*"),
)  # fmt: skip
