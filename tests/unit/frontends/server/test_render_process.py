"""Rendering in a process with a deadline: one text never delays the others (S-20)."""

import asyncio
import fcntl
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from treadle.frontends.server import render_process
from treadle.frontends.server.render_process import Rendering
from treadle.frontends.server.rendering import MOST_COLOURED, render, render_plain

SLOW = "a(" * (MOST_COLOURED // 2)


@pytest.fixture
async def rendering() -> AsyncIterator[Rendering]:
    renderer = Rendering(processor_s=0.05)
    yield renderer
    renderer.close()


async def test_it_makes_what_the_library_makes(rendering: Rendering) -> None:
    rendering = Rendering(queue_s=60)
    texts = [f"# {number}\n\n**b** `c`\n\n```python\ndef f(): return {number}\n```\n" for number in range(8)]
    pages = await asyncio.gather(*(rendering.render_html("markdown", text) for text in texts))
    assert pages == [render("markdown", text) for text in texts]
    assert await rendering.render_html("code", "x = 'é\ud800'", "a.py") == render("code", "x = 'é?'", "a.py")
    rendering.close()


async def test_a_server_with_many_open_connections_renders(monkeypatch: pytest.MonkeyPatch) -> None:
    """`select` does not take descriptors from 1024 on."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limits[1] != resource.RLIM_INFINITY and limits[1] < 2048:
        pytest.skip("a process may not have so many descriptors here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], 2048), limits[1]))
    make_pipe = os.pipe

    def make_high_pipe() -> tuple[int, int]:
        ends = make_pipe()
        high_ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 1100) for end in ends]
        for end in ends:
            os.close(end)
        return high_ends[0], high_ends[1]

    monkeypatch.setattr(os, "pipe", make_high_pipe)
    rendering = Rendering()
    try:
        text = "**b**\n\n" + "word " * 40_000  # more than a pipe holds
        assert await rendering.render_html("markdown", text) == render("markdown", text)
    finally:
        rendering.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.thorough(one_of=8)
async def test_what_takes_too_long_is_shown_as_it_is(rendering: Rendering) -> None:
    assert await rendering.render_html("code", SLOW, "python") == render_plain(SLOW)
    first = _process(rendering)
    assert first == 0  # the kernel has ended it
    assert "<strong>b</strong>" in await rendering.render_html("markdown", "**b**")
    first = _process(rendering)
    assert await rendering.render_html("code", SLOW, "python") == render_plain(SLOW)  # it is known by now
    assert _process(rendering) == first  # and did not cost the process


async def test_texts_of_others_do_not_wait_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    rendering = Rendering(processor_s=600, queue_s=60)
    await rendering.render_html("markdown", "ready")
    rendering._queue_s = 0.2
    os.kill(_process(rendering), signal.SIGSTOP)  # as busy as can be
    slow = asyncio.create_task(rendering.render_html("code", SLOW, "python"))
    await asyncio.sleep(0)
    began = time.monotonic()
    pages = await asyncio.gather(*(rendering.render_html("markdown", f"**{number}**") for number in range(20)))
    assert time.monotonic() - began < 15
    assert pages == [render_plain(f"**{number}**") for number in range(20)]
    os.kill(_process(rendering), signal.SIGKILL)
    assert await slow == render_plain(SLOW)
    assert "<strong>0</strong>" in await rendering.render_html("markdown", "**0**")
    rendering.close()


async def test_a_process_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    rendering = Rendering()
    await rendering.render_html("markdown", "ready")
    monkeypatch.setattr(render_process, "LONGEST_S", 0.3)
    os.kill(_process(rendering), signal.SIGSTOP)
    assert await rendering.render_html("markdown", "**b**") == render_plain("**b**")
    monkeypatch.undo()
    assert "<strong>" in await rendering.render_html("markdown", "**b**")
    rendering.close()


async def test_what_was_made_is_kept_and_bounded() -> None:
    rendering = Rendering(most=1_000)
    for number in range(50):
        await rendering.render_html("markdown", f"number {number} " * 10)
    assert rendering._size <= 1_000
    assert rendering._size == sum(map(len, rendering._kept.values()))
    assert await rendering.render_html("markdown", "number 49 " * 10) is await rendering.render_html(
        "markdown", "number 49 " * 10
    )
    rendering.close()


SERVER = """
import asyncio, sys, time
from treadle.frontends.server.render_process import Rendering
async def main():
    rendering = Rendering(processor_s=2.0)
    await rendering.render_html("markdown", "ready")
    print(rendering._process._pid, flush=True)
    await rendering.render_html("code", "a(" * 32_000, "python")
    time.sleep(600)
asyncio.run(main())
"""


@pytest.fixture
def server() -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.communicate()


@pytest.mark.thorough(one_of=8)
@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_it_ends_with_a_server_that_is_killed(server: "subprocess.Popen[str]") -> None:
    assert server.stdout is not None
    pid = int(server.stdout.readline())
    server.kill()
    until = time.monotonic() + 60
    with suppress(FileNotFoundError, ProcessLookupError):
        while ") Z " not in Path(f"/proc/{pid}/stat").read_text():
            assert time.monotonic() < until
            time.sleep(0.02)


def _process(rendering: Rendering) -> int:
    return rendering._process._pid
