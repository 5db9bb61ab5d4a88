"""What is measured of Treadle's own app: the first frame, keys while an answer streams in, CPU, memory."""

import random
import statistics
import time
from collections.abc import Mapping
from pathlib import Path

from bench.processes import Failed, environment, run_command
from bench.startup import TREADLE
from bench.terminal.window import Window
from tests.unit.frontends.tui.recorded import long_log
from treadle.base.types import ChatId
from treadle.protocol import wire
from treadle.protocol.events import Envelope

KEYS = "αβγδεζηθικλμνξοπρστυφχψω"
"""What is typed while an answer streams in: no program writes it by itself."""
FRAME = "starting"
"""Stands in the first whole frame, below everything else."""
READY = "What should I work on?"
EVENTS = 10_000


class Place:
    """A small project, a home of its own, and the fake provider at `url`."""

    def __init__(self, folder: Path, url: str) -> None:
        self.project = folder / "project"
        self.project.mkdir()
        home = folder / "home"
        home.mkdir()
        for number in range(10):
            (self.project / f"file-{number}.txt").write_text(f"file {number}\n")
        self.settings: Mapping[str, str] = {
            "HOME": str(home),
            "TREADLE_HOME": str(home / "treadle"),
            "OPENAI_BASE_URL": url,
            "OPENAI_API_KEY": "none",
            "TREADLE_TITLES": "off",
            "LANG": "C.UTF-8",
        }

    def open(self, *arguments: str) -> Window:
        return Window([*TREADLE, *arguments], self.project, environment(self.settings))


def first_paint(place: Place, repeats: int) -> dict[str, float]:
    """Seconds until the first whole frame is written, and until a message is taken; the median, warm caches."""
    frames, frame_cpu, ready = [], [], []
    for number in range(repeats + 1):
        window = place.open("--model", "openai:bench-chunks-10")
        try:
            if number:
                frames.append(window.wait(FRAME) - window.began)
                frame_cpu.append(window.cpu_s())
                ready.append(window.wait(READY) - window.began)
            else:
                window.wait(READY)
        finally:
            window.close()
    return {
        "paint_s": statistics.median(frames),
        "paint_cpu_s": statistics.median(frame_cpu),
        "ready_s": statistics.median(ready),
    }


def idle(place: Place, seconds: float) -> dict[str, float]:
    """CPU of the open app while nothing happens, in percent of one core."""
    window = place.open("--model", "openai:bench-chunks-10")
    try:
        window.wait(READY)
        window.idle(3.0)
        cpu, began = window.cpu_s(), time.perf_counter()
        window.idle(seconds)
        return {"idle_cpu": 100 * (window.cpu_s() - cpu) / (time.perf_counter() - began)}
    finally:
        window.close()


def painting(place: Place, seconds: float) -> dict[str, float]:
    """Bytes that go to the terminal while 100 chunks a second stream in, at 120 by 40."""
    window = place.open("--model", "openai:bench-chunks-100000-every-10ms", "Tell me everything.")
    try:
        window.wait("streams")
        window.idle(2.0)
        written, began = window.written, time.perf_counter()
        window.idle(seconds)
        return {"stream_kb_s": (window.written - written) / (time.perf_counter() - began) / 1e3}
    finally:
        window.close()


def typing(place: Place, keys: int) -> dict[str, float]:
    """From a key to its echo, and CPU, while 200 chunks a second stream in."""
    window = place.open("--model", "openai:bench-chunks-100000-every-5ms", "Tell me everything.")
    try:
        window.wait("streams")
        window.idle(2.0)
        cpu, began = window.cpu_s(), time.perf_counter()
        window.idle(5.0)
        busy = (window.cpu_s() - cpu) / (time.perf_counter() - began)
        late = sorted(_echo(window, KEYS[number % len(KEYS)]) for number in range(keys))
    finally:
        window.close()
    return {
        "cpu_streaming": busy,
        "echo_ms": statistics.median(late) * 1e3,
        "echo_p95_ms": late[int(len(late) * 0.95)] * 1e3,
        "echo_p99_ms": late[int(len(late) * 0.99)] * 1e3,
    }


def _echo(window: Window, key: str) -> float:
    if key == KEYS[0]:  # an empty line again: what is typed is seen once
        window.type("\x15")
        window.idle(0.2)
    window.idle(random.uniform(0.02, 0.08))
    window.forget()
    began = time.perf_counter()
    window.type(key)
    while key.encode() not in window.shown:
        if not window.read(10.0):
            raise Failed(f"the key {key} was never shown")
    return time.perf_counter() - began


def memory(place: Place) -> dict[str, float]:
    """Of the app with a chat of 10,000 events, opened and scrolled; and the time until its end is seen."""
    chat = ChatId("c_bench")
    file = place.project / "long.jsonl"
    log = enumerate(long_log(EVENTS), 1)
    file.write_bytes(
        b"\n".join(wire.to_json(Envelope(seq, chat, 1_700_000_000_000 + seq, event)) for seq, event in log)
    )
    run_command([*TREADLE, "import", str(file)], place.project, place.settings)
    file.unlink()
    window = place.open("--resume", chat)
    try:
        shown = window.wait("the last words of") - window.began
        for _ in range(20):
            window.type("\x1b[5~")  # Page Up
            window.idle(0.1)
        return {"long_chat_s": shown, "long_chat_mb": window.memory_mb()}
    finally:
        window.close()
