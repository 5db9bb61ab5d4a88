"""Counts of chats and costs, in all and by day, kept up to date from the store's list of changes after the first
request; and metrics for Prometheus."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime

import msgspec
from starlette.types import Scope

from treadle.base.types import ChatId
from treadle.errors import NotFound
from treadle.ports.store import Store
from treadle.protocol import events as e
from treadle.protocol import wire
from treadle.protocol.content import Usage
from treadle.protocol.envelope import Envelope
from treadle.protocol.views import ChatSummary, Status

PAGE = 1_000
DAY_MS = 24 * 60 * 60 * 1_000
_COUNTED = ("assistant.message", "assistant.turn_start", "assistant.turn_retry", "session.model_call",
            "session.created", "session.options_changed")  # fmt: skip
_USD = 1_000_000_000  # Money is summed in whole billionths, so that taking away what was added leaves nothing.

Numbers = tuple[int, ...]  # Chats, turns, tokens by kind, money, and how many of the chats hold estimates.


class Total(msgspec.Struct, frozen=True):
    chats: int = 0
    turns: int = 0
    usage: Usage = Usage()


class ChatCounts:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._lines: dict[ChatId, tuple[str, Status, Numbers]] = {}
        self._owners: dict[str, Numbers] = {}
        self._statuses: Counter[Status] = Counter()
        self._after, self._reading = 0, asyncio.Lock()

    async def count_statuses(self) -> Counter[Status]:
        await self._catch_up()
        return +self._statuses

    async def compute_total(self, owner: str) -> Total:
        await self._catch_up()
        if owner not in self._owners:
            return Total()
        chats, turns, input_tokens, output_tokens, cached, reasoning, usd, estimated = self._owners[owner]
        return Total(chats, turns, Usage(input_tokens, output_tokens, cached, reasoning, usd / _USD, estimated > 0))

    async def _catch_up(self) -> None:
        async with self._reading:
            while page := await self._store.list_changes(after_change=self._after, limit=PAGE):
                for each in page:
                    self._take(each.summary)
                    self._after = each.change_number
                if len(page) < PAGE:
                    return

    def _take(self, summary: ChatSummary) -> None:
        if summary.chat in self._lines:
            owner, status, numbers = self._lines[summary.chat]
            self._statuses[status] -= 1
            self._add(owner, tuple(-number for number in numbers))
        if summary.deleted:
            self._lines.pop(summary.chat, None)
            return
        usage = summary.usage
        tokens = (usage.input, usage.output, usage.cached, usage.reasoning)
        numbers = (1, summary.turns, *tokens, round(usage.usd * _USD), int(usage.estimated))
        self._lines[summary.chat] = summary.owner, summary.status, numbers
        self._statuses[summary.status] += 1
        self._add(summary.owner, numbers)

    def _add(self, owner: str, numbers: Numbers) -> None:
        self._owners[owner] = tuple(map(int.__add__, self._owners.get(owner, (0,) * len(numbers)), numbers))


class Spent(msgspec.Struct, frozen=True):
    usage: Usage = Usage()
    calls: int = 0
    model_ms: int = 0

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(self.usage + other.usage, self.calls + other.calls, self.model_ms + other.model_ms)


class _Chat(msgspec.Struct):
    """How far a chat was read, and what was open there."""

    seq: int = 0
    model: str = ""
    began_ms: int = 0
    spent: dict[tuple[int, str], Spent] = msgspec.field(default_factory=dict)


class UsageHistory:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._chats: dict[str, dict[ChatId, _Chat]] = defaultdict(dict)
        self._after: dict[str, int] = defaultdict(int)
        self._reading = asyncio.Lock()

    async def list_days(self, owner: str, since_ms: int) -> list[tuple[str, str, Spent]]:
        """Day, model, and what was spent, oldest first."""
        async with self._reading:
            await self._catch_up(owner)
        total: dict[tuple[int, str], Spent] = defaultdict(Spent)
        for chat in self._chats[owner].values():
            for key, spent in chat.spent.items():
                if key[0] >= since_ms // DAY_MS:
                    total[key] += spent
        dates = {day: datetime.fromtimestamp(day * DAY_MS / 1_000, UTC).date().isoformat() for day, _ in total}
        return [(dates[day], model, total[day, model]) for day, model in sorted(total)]

    async def _catch_up(self, owner: str) -> None:
        while page := await self._store.list_changes(owner=owner, after_change=self._after[owner], limit=PAGE):
            for each in page:
                chats, summary = self._chats[owner], each.summary
                if summary.deleted:
                    chats.pop(summary.chat, None)
                else:
                    chat_usage = chats.setdefault(summary.chat, _Chat())
                    if chat_usage.seq > summary.head:  # the store was put back to an earlier day
                        chat_usage = chats[summary.chat] = _Chat()
                    await self._read(summary.chat, chat_usage)
                self._after[owner] = each.change_number
            if len(page) < PAGE:
                return

    async def _read(self, id: ChatId, chat: _Chat) -> None:
        with suppress(NotFound):  # deleted meanwhile: its tombstone comes later in the list of changes
            while records := await self._store.read(id, chat.seq, PAGE):
                for record in records:
                    if record.type in _COUNTED:
                        _take(chat, wire.decode(id, record))
                chat.seq = records[-1].seq


def _take(chat: _Chat, envelope: Envelope) -> None:
    now = envelope.time_ms
    match envelope.data:
        case e.SessionCreated(options=options):
            chat.model = options.model
        case e.OptionsChanged(changes={"model": str(model)}):
            chat.model = model
        case e.TurnStart(model=model):
            chat.began_ms = now
            chat.model = model or chat.model
        case e.AssistantMessage(usage=usage):
            _add(chat, now, Spent(usage or Usage(), 1, max(0, now - chat.began_ms) if chat.began_ms else 0))
        case e.TurnRetry(usage=usage) | e.ModelCall(usage=usage):
            _add(chat, now, Spent(usage))


def _add(chat: _Chat, now_ms: int, spent: Spent) -> None:
    key = now_ms // DAY_MS, chat.model
    chat.spent[key] = chat.spent.get(key, Spent()) + spent


BUCKETS = (0.005, 0.02, 0.1, 0.5, 2.0, 10.0)
MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = tuple[tuple[str, str], ...]


class Metrics:
    def __init__(self) -> None:
        self._requests: Counter[Labels] = Counter()
        self._durations: dict[str, list[int]] = {}
        self._seconds: Counter[str] = Counter()
        self.streams: Counter[str] = Counter()  # Open streams by user.

    def count_request(self, route: str, scope: Scope, status: int, seconds: float) -> None:
        method = scope.get("method", "GET") if scope["type"] == "http" else "WEBSOCKET"
        if route == "other":
            method = "any"  # anything can be sent; it must not make a series each
        self._requests[("method", method), ("route", route), ("status", str(status))] += 1
        if status == 101 or route.endswith(("/events", "/watch", "/export")):
            return  # how long a reader stays tells nothing
        counts = self._durations.setdefault(route, [0] * (len(BUCKETS) + 1))
        counts[next((at for at, most in enumerate(BUCKETS) if seconds <= most), len(BUCKETS))] += 1
        self._seconds[route] += seconds  # type: ignore[assignment]

    def format_page(self, gauges: Mapping[str, tuple[str, Mapping[Labels, float]]]) -> str:
        """Return the page: the metrics counted here, and `gauges`: by name, their help and values."""
        lines = _format_series("treadle_http_requests_total", "counter", "HTTP requests answered.", self._requests)
        lines += self._format_histogram()
        lines += _format_series("treadle_open_streams", "gauge", "Streams that are open.", {(): self.streams.total()})
        for name, (about, values) in gauges.items():
            kind = "counter" if name.endswith("_total") else "gauge"
            lines += _format_series(name, kind, about, values)
        return "\n".join(lines) + "\n"

    def _format_histogram(self) -> list[str]:
        name = "treadle_http_request_duration_seconds"
        lines = [f"# HELP {name} How long requests took.", f"# TYPE {name} histogram"]
        for route, counts in sorted(self._durations.items()):
            label = f'route="{_escape_label(route)}"'
            running = 0
            for most, count in zip((*map(str, BUCKETS), "+Inf"), counts, strict=True):
                running += count
                lines.append(f'{name}_bucket{{{label},le="{most}"}} {running}')
            lines.append(f"{name}_sum{{{label}}} {self._seconds[route]:.6f}")
            lines.append(f"{name}_count{{{label}}} {running}")
        return lines


def _format_series(name: str, kind: str, about: str, values: Mapping[Labels, float]) -> list[str]:
    lines = [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
    for labels, value in sorted(values.items()):
        pairs = ",".join(f'{key}="{_escape_label(text)}"' for key, text in labels)
        braced = f"{{{pairs}}}" if pairs else ""
        lines.append(f"{name}{braced} {f'{value:g}' if isinstance(value, float) else value}")
    return lines


def _escape_label(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
