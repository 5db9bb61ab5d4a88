"""A fake OpenAI-compatible server on loopback: scripted for tests, fast for benchmarks.

In a test: `with FakeOpenAI([Reply(text="Hi")]) as fake:` and point a client at `fake.base_url`. As a process of its
own: `python -m treadle.testing.fake_openai --bench` (or `--script FILE`), which prints its base URL first. Owns the
little HTTP/1.1 that this takes; what an answer looks like is the business of `openai_reply`.
"""

import argparse
import asyncio
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import cast

import msgspec

from treadle.errors import ScriptError
from treadle.testing.openai_bench import bench_answer
from treadle.testing.openai_reply import Answer, Reply, answer, error_answer, json_answer
from treadle.types import JsonObject

__all__ = ["FakeOpenAI", "Reply", "Script", "main"]

Script = Sequence[Reply] | Callable[[JsonObject], Reply]
Headers = dict[str, str]
_Respond = Callable[[Headers, bytes], Answer]


class _Connection(asyncio.Protocol):
    """One client. Requests are answered one after the other; the connection is kept alive between them."""

    def __init__(self, respond: _Respond, connections: set["_Connection"]) -> None:
        self._respond = respond
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray()
        self._timer: asyncio.Handle | None = None
        self._busy = False
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._connections.add(self)

    def connection_lost(self, _error: Exception | None) -> None:
        self._connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._busy:
            self._next_request()

    def close(self) -> None:
        self._transport.abort()

    def _next_request(self) -> None:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        first, *lines = self._buffer[:end].decode("latin-1").split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = headers.get("content-length", "0")
        if "transfer-encoding" in headers or not length.isdecimal():
            self._buffer.clear()
            self._send(msgspec.structs.replace(error_answer(411, "send a Content-Length"), cut=True))
            return
        total = end + 4 + int(length)
        if len(self._buffer) < total:
            return
        body = bytes(self._buffer[end + 4 : total])
        del self._buffer[:total]
        method, path = (*first.split(" "), "")[:2]
        self._send(self._route(method, path.partition("?")[0].removeprefix("/v1"), headers, body))

    def _route(self, method: str, path: str, headers: Headers, body: bytes) -> Answer:
        match method, path:
            case "POST", "/chat/completions":
                return self._respond(headers, body)
            case "GET", "/models":
                model = {"id": "fake", "object": "model", "created": 1_700_000_000, "owned_by": "treadle"}
                return json_answer(200, {"object": "list", "data": [model]})
        return error_answer(404, f"the fake server has no {method} {path}")

    def _send(self, made: Answer) -> None:
        self._busy = True
        if made.delay_s:
            self._timer = self._loop.call_later(made.delay_s, self._write, made, 0, self._loop.time() + made.delay_s)
        else:
            self._write(made, 0, self._loop.time())

    def _write(self, made: Answer, position: int, due: float) -> None:
        """Write one piece and see to the next. Pieces are due at fixed times: a late one does not delay the rest."""
        if self._transport.is_closing():
            return
        self._transport.write(made.writes[position])
        position += 1
        if position == len(made.writes):
            self._finish(made)
        elif made.every_s:
            due += made.every_s
            self._timer = self._loop.call_at(due, self._write, made, position, due)
        else:
            self._timer = self._loop.call_soon(self._write, made, position, due)

    def _finish(self, made: Answer) -> None:
        self._busy = False
        if made.cut:
            self._transport.close()
        elif self._buffer:
            self._next_request()


class _Scripted:
    """Answers from a script and remembers what it was asked."""

    def __init__(self, script: Script, in_order: bool) -> None:
        self._script = script
        self._in_order = in_order
        self.requests: list[JsonObject] = []
        self.headers: list[Headers] = []

    def respond(self, headers: Headers, body: bytes) -> Answer:
        try:
            request = msgspec.json.decode(body, type=dict[str, object])
        except msgspec.MsgspecError as error:
            return error_answer(400, f"not a JSON object: {error}")
        taken = len(self.requests)
        self.requests.append(request)
        self.headers.append(headers)
        position = _assistant_messages(request)
        if callable(self._script):
            try:
                return answer(self._script(request), request, position)
            except Exception as error:  # the author of the script must see it at the client, where the test looks
                return error_answer(400, f"the script failed: {error!r}")
        wanted = taken if self._in_order else position
        if wanted >= len(self._script):
            return error_answer(400, f"the script has {len(self._script)} replies; this asks for number {wanted + 1}")
        return answer(self._script[wanted], request, position)


def _assistant_messages(request: JsonObject) -> int:
    messages = request.get("messages")
    if not isinstance(messages, list):
        return 0
    return sum(isinstance(message, dict) and message.get("role") == "assistant" for message in messages)


class FakeOpenAI:
    """A scripted server in a thread of its own, for as long as its `with` block.

    A list of replies is indexed by the number of assistant messages in the request, so that a client that was
    killed and resumed gets the right answer; `in_order=True` hands them out one a request instead, which suits
    retries. A callable gets the request and returns the reply.
    """

    def __init__(self, script: Script = (), *, in_order: bool = False) -> None:
        self._scripted = _Scripted(script, in_order)
        self._started: Future[tuple[int, asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._connections: set[_Connection] = set()
        self._thread = threading.Thread(target=self._run, name="fake-openai", daemon=True)

    @property
    def base_url(self) -> str:
        if not self._started.done():
            raise ScriptError("the fake server is not running; use it in a `with` block")
        return f"http://127.0.0.1:{self._started.result()[0]}/v1"

    @property
    def requests(self) -> list[JsonObject]:
        """The bodies of the chat completions requests so far, in order."""
        return self._scripted.requests

    @property
    def headers(self) -> list[Headers]:
        """Their headers, names in lower case."""
        return self._scripted.headers

    @property
    def connections(self) -> int:
        """How many clients are connected now."""
        return len(self._connections)

    def __enter__(self) -> "FakeOpenAI":
        self._thread.start()
        self._started.result()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        _, loop, stop = self._started.result()
        loop.call_soon_threadsafe(stop.set)
        self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            if self._started.done():
                raise
            self._started.set_exception(error)

    async def _serve(self) -> None:
        stop = asyncio.Event()
        server, port = await _listen(self._scripted.respond, self._connections)
        self._started.set_result((port, asyncio.get_running_loop(), stop))
        await stop.wait()
        await _close(server, self._connections)


async def _listen(respond: _Respond, connections: set[_Connection]) -> tuple[asyncio.Server, int]:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(respond, connections), "127.0.0.1", 0, backlog=4096)
    return server, server.sockets[0].getsockname()[1]


async def _close(server: asyncio.Server, connections: set[_Connection]) -> None:
    server.close()
    for connection in list(connections):
        connection.close()
    await server.wait_closed()
    await asyncio.sleep(0)  # aborted connections report their loss in the next round of the loop


async def _serve_process(respond: _Respond, until_eof: bool) -> None:
    server, port = await _listen(respond, set())
    print(f"http://127.0.0.1:{port}/v1", flush=True)
    if until_eof:
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read)
        server.close()
    else:
        await server.serve_forever()


def _respond_bench(_headers: Headers, body: bytes) -> Answer:
    return bench_answer(body)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m treadle.testing.fake_openai", description=__doc__)
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument("--script", type=Path, metavar="FILE", help="a JSON list of replies (fields of Reply)")
    kind.add_argument("--bench", action="store_true", help="answer by the model's name, such as bench-chunks-400")
    parser.add_argument("--in-order", action="store_true", help="one reply a request, instead of by assistant messages")
    parser.add_argument("--until-eof", action="store_true", help="end when standard input does")
    options = parser.parse_args(arguments)
    if options.bench:
        respond: _Respond = _respond_bench
    else:
        try:
            script = msgspec.json.decode(options.script.read_bytes(), type=list[Reply])
        except (OSError, msgspec.MsgspecError) as error:
            parser.error(f"cannot use the script {options.script}: {error}")
        respond = _Scripted(script, options.in_order).respond
    try:
        asyncio.run(_serve_process(respond, options.until_eof))
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
