"""A fake OpenAI-compatible server on loopback: scripted for tests, fast for benchmarks.

In a test: `with FakeOpenAI([Reply(text="Hi")]) as fake:` and point a client at `fake.base_url`. As a process of its
own: `python -m treadle.testing.fake_openai --bench` (or `--script FILE`), which prints its base URL first.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from treadle.testing.fake_http import Answer, Headers, Route, listen
from treadle.testing.fake_model import FakeModelServer, Reply, Script, Scripted
from treadle.testing.openai_bench import bench_answer
from treadle.testing.openai_reply import ChatCompletions

__all__ = ["FakeOpenAI", "Reply", "Script", "main"]


class FakeOpenAI(FakeModelServer):
    """A scripted Chat Completions server."""

    def __init__(self, script: Script = (), *, in_order: bool = False) -> None:
        super().__init__(ChatCompletions(), script, in_order=in_order)

    @property
    def base_url(self) -> str:
        return f"{self.url}/v1"


async def _serve_process(route: Route, until_eof: bool) -> None:
    server, port = await listen(route, set())
    print(f"http://127.0.0.1:{port}/v1", flush=True)
    if until_eof:
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read)
        server.close()
    else:
        await server.serve_forever()


_dialect = ChatCompletions()


def _route_bench(method: str, path: str, headers: Headers, body: bytes) -> Answer:
    return _dialect.other(method, path, headers, body) or bench_answer(body)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m treadle.testing.fake_openai", description=__doc__)
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument("--script", type=Path, metavar="FILE", help="a JSON list of replies (fields of Reply)")
    kind.add_argument("--bench", action="store_true", help="answer by the model's name, such as bench-chunks-400")
    parser.add_argument("--in-order", action="store_true", help="one reply a request, instead of by assistant messages")
    parser.add_argument("--until-eof", action="store_true", help="end when standard input does")
    options = parser.parse_args(arguments)
    if options.bench:
        route: Route = _route_bench
    else:
        try:
            script = msgspec.json.decode(options.script.read_bytes(), type=list[Reply])
        except (OSError, msgspec.MsgspecError) as error:
            parser.error(f"cannot use the script {options.script}: {error}")
        route = Scripted(_dialect, script, options.in_order).route
    try:
        asyncio.run(_serve_process(route, options.until_eof))
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
