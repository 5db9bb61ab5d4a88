"""The scenarios, as every contestant runs them: same server, same text, same arithmetic. Standard library only,
because each peer runs it in a virtual environment of its own.

A contestant's file builds a `Contestant` and calls `main`; the protocol is `FILE SCENARIO PARAMETERS-AS-JSON`, and one
line of JSON with the figures on standard output. Knows no contestant and no targets.
"""

import asyncio
import json
import os
import resource
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

Figures = dict[str, float]
WORD = len(" streams")
"""The characters of one chunk, as `treadle.testing.fake_openai` sends them."""
SOURCE = Path(__file__).read_text()


class Chat(Protocol):
    def send(self, text: str) -> AsyncIterator[str]:
        """Say something, run the tool `noop` whenever it is asked for, and yield all text of the answer."""
        ...


class Contestant(Protocol):
    """One that keeps a log may also have `commits()`: how many it has made."""

    async def chat(self, model: str, name: str) -> Chat:
        """Begin the chat of that name, or go on with it if a chat of that name was stored before."""
        ...

    async def close(self) -> None: ...


class Setting:
    """Where a contestant finds the server, where it may write, and whether its chats must survive it."""

    def __init__(self, url: str, folder: Path, durable: bool) -> None:
        self.url = url
        self.folder = folder
        self.durable = durable


Make = Callable[[Setting], Awaitable[Contestant]]


async def consume(chat: Chat) -> int:
    """Send a message, read the whole answer, and return how many chunks of text it had."""
    characters = 0
    async for piece in chat.send("Go on."):
        characters += len(piece)
    return round(characters / WORD)


async def cost(chat: Chat, chunks: int) -> float:
    """CPU seconds of one run, which must have delivered that many chunks."""
    begun = time.process_time()
    got = await consume(chat)
    spent = time.process_time() - begun
    if got != chunks:
        raise SystemExit(f"expected {chunks} chunks of text, got {got}")
    return spent


async def stream(make: Make, setting: Setting, small: int, big: int, repeats: int) -> Figures:
    """CPU of a chunk: what a long answer costs more than a short one. Of a turn: a short answer without its chunks."""
    contestant = await make(setting)
    shorts, longs, later = [], [], []
    for number in range(-2, repeats):
        chat = await contestant.chat(f"bench-chunks-{small}", f"short{number}")
        shorts.append(await cost(chat, small))
        later += [await cost(chat, small) for _ in range(5)]
        longs.append(await cost(await contestant.chat(f"bench-chunks-{big}", f"long{number}"), big))
    await contestant.close()
    chunk = (statistics.median(longs[2:]) - statistics.median(shorts[2:])) / (big - small)
    return {"chunk_us": chunk * 1e6, "turn_ms": (statistics.median(later[10:]) - small * chunk) * 1e3}


async def alone(make: Make, setting: Setting, small: int, big: int, repeats: int, read_bytes: int) -> Figures:
    """As `stream`, but each read takes no more than the bytes of one chunk, though many have arrived. Unlike a paced
    stream this needs no quiet machine: nobody waits."""
    transports().max_size = read_bytes
    reads = count_reads()
    contestant = await make(setting)
    await consume(await contestant.chat(f"bench-chunks-{big}", "counted"))
    await contestant.close()
    counted = reads() / big
    if not 0.95 < counted < 1.3:  # some protocols tell the whole text again at the end
        raise SystemExit(f"a read should bring one chunk; there were {counted:.2f} reads a chunk")
    return {"alone_us": (await stream(make, setting, small, big, repeats))["chunk_us"]}


async def paced(make: Make, setting: Setting, chats: int, chunks: int, every_ms: int) -> Figures:
    """CPU of a chunk when each arrives alone, many chats at once: between the tenth and the ninetieth per cent.

    On a busy machine chunks pile up and one read brings several, which is cheaper and not what is asked here, at the
    same average pace. So the reads are counted, and whoever uses the figure can tell."""
    reads = count_reads()
    contestant = await make(setting)
    await consume(await contestant.chat("bench-chunks-4", "warm"))
    total = chats * chunks * WORD
    seen = 0
    marks: list[tuple[float, float, int, int]] = []
    ends = [total // 10, total * 9 // 10]

    async def one(number: int) -> None:
        nonlocal seen
        chat = await contestant.chat(f"bench-chunks-{chunks}-every-{every_ms}ms", f"paced{number}")
        async for piece in chat.send("Go on."):
            seen += len(piece)
            if len(marks) < 2 and seen >= ends[len(marks)]:
                marks.append((time.process_time(), time.perf_counter(), seen, reads()))

    await asyncio.gather(*(one(number) for number in range(chats)))
    await contestant.close()
    if seen != total:
        raise SystemExit(f"expected {total} characters of text, got {seen}")
    cpu, wall, characters, taken = (end - begin for begin, end in zip(*marks, strict=True))
    delivered = characters / WORD
    return {"paced_us": cpu / delivered * 1e6, "paced_reads": taken / delivered, "paced_busy": cpu / wall}


def transports() -> Any:
    """What all sockets of asyncio are read by, whichever library they belong to."""
    return asyncio.selector_events._SelectorSocketTransport  # type: ignore[attr-defined]


def count_reads() -> Callable[[], int]:
    """Count the reads of all sockets of this process from now on."""
    transport = transports()
    read_ready = transport._read_ready
    count = 0

    def counted(self: Any) -> None:
        nonlocal count
        count += 1
        read_ready(self)

    transport._read_ready = counted
    return lambda: count


async def turns(make: Make, setting: Setting, chunks: int, count: int, repeats: int) -> Figures:
    """How much more the last turn of a long chat costs than an early one."""
    contestant = await make(setting)
    warm = await contestant.chat(f"bench-chunks-{chunks}", "warm")
    for _ in range(20):
        await consume(warm)
    ratios = []
    for number in range(repeats):
        chat = await contestant.chat(f"bench-chunks-{chunks}", f"turns{number}")
        spent = [await cost(chat, chunks) for _ in range(count)]
        ratios.append(statistics.median(spent[-7:]) / statistics.median(spent[2:9]))
    await contestant.close()
    return {"turn_ratio": statistics.median(ratios)}


async def rounds(make: Make, setting: Setting, few: int, many: int, repeats: int) -> Figures:
    """CPU of one round: a model call, its tool call, the result. And the commits of one, where they can be counted."""
    contestant = await make(setting)
    commits: Callable[[], int] = getattr(contestant, "commits", lambda: 0)
    costs: dict[int, list[tuple[float, int]]] = {few: [], many: []}
    for number in range(-1, repeats):
        for length, spent in costs.items():
            chat = await contestant.chat(f"bench-rounds-{length}", f"rounds{length}-{number}")
            before = commits()
            spent.append((await cost(chat, 4), commits() - before))
    await contestant.close()
    cpu, steps = (
        (statistics.median(many_) - statistics.median(few_)) / (many - few)
        for many_, few_ in zip(zip(*costs[many][1:], strict=True), zip(*costs[few][1:], strict=True), strict=True)
    )
    return {"round_ms": cpu * 1e3, **({"round_commits": steps} if steps else {})}


async def log(make: Make, setting: Setting, length: int) -> Figures:
    """Bytes on disk after many rounds, against the JSON of the same messages."""
    contestant = await make(setting)
    begun = time.process_time()
    await consume(await contestant.chat(f"bench-rounds-{length}", "long"))
    spent = time.process_time() - begun
    await contestant.close()
    stored = sum(path.stat().st_size for path in setting.folder.rglob("*") if path.is_file())
    plain = len(json.dumps(messages_of(length), separators=(",", ":")))
    return {"log_bytes": stored, "log_ratio": stored / plain, "long_run_s": spent}


def messages_of(length: int) -> list[dict[str, Any]]:
    """The conversation of `bench-rounds-N`, as Chat Completions messages."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Go on."}]
    for number in range(length):
        function = {"name": "noop", "arguments": json.dumps({"n": number}, separators=(",", ":"))}
        call = {"id": f"call_{number}_0", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": done(number)})
    return [*messages, {"role": "assistant", "content": " streams" * 4}]


def done(n: int) -> str:
    """A short result, as tools go: some lines of source, others in each round; 500 rounds make 0.3 MB of messages."""
    start = n * 97 % (len(SOURCE) - 350)
    return f"done {n}: {SOURCE[start : start + 350]}"


async def noop(n: int) -> str:
    """Do nothing and say so."""
    return done(n)


async def resume(make: Make, setting: Setting, length: int) -> Figures:
    """From nothing open to the first word of the next answer, on the chat that `log` left. Imports are warm."""
    other = Setting(setting.url, setting.folder / "warm", setting.durable)
    other.folder.mkdir(exist_ok=True)
    warm = await make(other)
    await consume(await warm.chat("bench-chunks-4", "warm"))
    await warm.close()
    begun, wall = time.process_time(), time.perf_counter()
    contestant = await make(setting)
    chat = await contestant.chat(f"bench-rounds-{length}", "long")
    answer = chat.send("And now?")
    await anext(answer)
    figures = {"resume_ms": (time.process_time() - begun) * 1e3, "resume_wall_ms": (time.perf_counter() - wall) * 1e3}
    leave(figures)
    return figures


async def memory(make: Make, setting: Setting, chats: int) -> Figures:
    """Resident memory of one chat in the middle of its answer, with many at once."""
    contestant = await make(setting)
    for number in range(5):
        await consume(await contestant.chat("bench-chunks-4", f"warm{number}"))
    before = resident()
    waiting = chats
    all_started = asyncio.Event()

    async def one(number: int) -> None:
        nonlocal waiting
        chat = await contestant.chat("bench-chunks-2000-every-1000ms", f"memory{number}")
        answer = chat.send("Go on.")
        await anext(answer)
        waiting -= 1
        if not waiting:
            all_started.set()
        async for _ in answer:
            pass

    tasks = [asyncio.create_task(one(number)) for number in range(chats)]
    started = asyncio.create_task(all_started.wait())
    done, _ = await asyncio.wait([started, *tasks], return_when=asyncio.FIRST_COMPLETED)
    for task in done - {started}:
        task.result()
    figures = {"chat_kb": (resident() - before) / chats / 1024}
    leave(figures)
    return figures


async def first(make: Make, setting: Setting) -> Figures:
    """One short answer and out; timed from outside, imports included."""
    contestant = await make(setting)
    await consume(await contestant.chat("bench-chunks-4", "first"))
    await contestant.close()
    return {}


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def leave(figures: Figures) -> None:
    """Report and end at once: what is still streaming needs no orderly end."""
    print(json.dumps(figures), flush=True)
    os._exit(0)


SCENARIOS: dict[str, Callable[..., Awaitable[Figures]]] = {
    "stream": stream,
    "alone": alone,
    "paced": paced,
    "turns": turns,
    "rounds": rounds,
    "log": log,
    "resume": resume,
    "memory": memory,
    "first": first,
}


def main(make: Make) -> None:
    scenario, parameters = sys.argv[1], json.loads(sys.argv[2])
    setting = Setting(parameters.pop("url"), Path(parameters.pop("folder")), parameters.pop("durable"))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    async def run() -> Figures:
        return await SCENARIOS[scenario](make, setting, **parameters)

    print(json.dumps(asyncio.run(run())), flush=True)
