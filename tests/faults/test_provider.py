"""A provider that breaks off, stumbles, refuses or falls silent, through the whole loop (faults 7, 8; M-08, M-11).

A live client is watched all the time: when a message is recorded, its screen shows that message, once."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from email.utils import formatdate

import pytest

from tests.faults.chance import some
from treadle import Agent, Chat, Envelope, tool
from treadle.adapters.models.openai_chat.adapter import OpenAIChat
from treadle.adapters.stores.memory import MemoryStore
from treadle.base.types import JsonObject
from treadle.engine.silence_timeout import RETRIES, UNREACHABLE_RETRIES
from treadle.ports.model import ModelInfo
from treadle.protocol.events import (
    AssistantMessage,
    AssistantReset,
    ExecutionComplete,
    ExecutionStart,
    MessageDelta,
    SessionError,
    SessionIdle,
    TurnRetry,
)
from treadle.testing.checker import check, check_seen
from treadle.testing.fake_openai import FakeOpenAI, Reply
from treadle.testing.histories import check_messages

pytestmark = pytest.mark.thorough(one_of=8)

TEXT = "Hé 🧵"
BODY = (
    b'data: {"choices":[{"delta":{"content":"H\xc3\xa9 "}}]}\n\n'
    b'data: {"choices":[{"delta":{"content":"\xf0\x9f\xa7\xb5"}}]}\r\n\r\n'
    b'data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"note"}}]}}]}\n\n'
    b'data: {"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\\"te"}}]}}]}\n\n'
    b'data: {"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"xt\\":\\"x\\"}"}}]}}]}\n\n'
    b'data: {"choices":[{"delta":{},"finish_reason":"tool_calls"}]}\n\n'
    b"data: [DONE]\n\n"
)
"""A short stream with a call, cut through letters and through its arguments."""

Answer = Callable[[int, int], Reply]
"""The answer to a request, by its turn (assistant messages before it) and its attempt (requests of that turn)."""


class Stage:
    """A chat with one tool that leaves a trace, and a provider that answers as a test says."""

    def __init__(self, agent: Agent, fake: FakeOpenAI, notes: list[str]) -> None:
        self.agent = agent
        self.fake = fake
        self.notes = notes
        self.chat: Chat = agent.chat()
        self.seen: list[Envelope] = []

    async def send(self, text: str = "Go.") -> list[Envelope]:
        news = [envelope async for envelope in self.chat.send(text)]
        self.seen += news
        return news

    async def check(self) -> None:
        log = await self.chat.events()
        problems = await check(self.agent.deps.store, self.chat.id)
        problems += check_seen([log[0], *self.seen], log)  # the chat was created before anyone watched
        for request in self.fake.requests:
            problems += check_messages(request["messages"])
        assert problems == []
        check_screen(self.seen)


def check_screen(envelopes: list[Envelope]) -> None:
    """A live client shows the recorded text of a turn: no text twice, none left over."""
    screen = ""
    for envelope in envelopes:
        match envelope.data:
            case MessageDelta(text=text):
                screen += text
            case AssistantReset():
                screen = ""
            case AssistantMessage(content=content):
                assert screen == content
                screen = ""
            case SessionIdle():
                assert screen == "", "a failed turn left text on the screen"
            case _:
                pass


@asynccontextmanager
async def stage(answer: Answer, *, silence_s: float = 5.0) -> AsyncIterator[Stage]:
    attempts: dict[int, int] = {}

    def script(request: JsonObject) -> Reply:
        turn = sum(message["role"] == "assistant" for message in request["messages"])
        attempts[turn] = attempts.get(turn, 0) + 1
        return answer(turn, attempts[turn])

    notes: list[str] = []

    @tool
    def note(text: str) -> str:
        """Write something down."""
        notes.append(text)
        return "noted"

    with FakeOpenAI(script) as fake:
        model = OpenAIChat(ModelInfo("openai", "fake"), base_url=fake.base_url)
        async with Agent(
            MemoryStore(), model=model, tools=[note], builtin=False, retry_base_s=0.0001, silence_s=silence_s
        ) as agent:
            yield Stage(agent, fake, notes)


def of(news: list[Envelope], kind: type) -> list:
    return [envelope.data for envelope in news if isinstance(envelope.data, kind)]


@pytest.mark.thorough(one_of=8)
async def test_cut_at_every_byte_no_half_call_runs_and_no_text_comes_twice() -> None:
    """Fault 7. The first answer is cut after n bytes, for every n; asked again, the provider gives the whole."""
    byte_count = 0

    def answer(turn: int, attempt: int) -> Reply:
        if turn % 2:
            return Reply(text="Done.")
        return Reply(raw=BODY, cut_after=byte_count if attempt == 1 else None)

    for byte_count in some(range(len(BODY)), 3, "bytes"):
        async with stage(answer) as on:
            news = await on.send()
            assert on.notes == ["x"], f"cut after {byte_count} bytes"
            assert len(of(news, ExecutionStart)) == len(of(news, ExecutionComplete)) == 1
            assert [message.content for message in of(news, AssistantMessage)] == [TEXT, "Done."]
            assert [type(envelope.data) for envelope in news].count(SessionIdle) == 1
            assert type(news[-1].data) is SessionIdle
            # Cut within its last marks, the answer is whole already.
            retries = len(on.fake.requests) - 2
            assert retries == 1 or (retries == 0 and byte_count > BODY.rindex(b"finish_reason")), (
                f"cut after {byte_count} bytes"
            )
            assert [retry.error_class for retry in of(news, TurnRetry)] == ["cut_stream"] * retries
            await on.check()


@pytest.mark.parametrize("split", [1, 2, 3, 5, 7, 11, 13, 17, 64, len(BODY) - 1])
async def test_every_split_of_a_stream_gives_the_same_result(split: int) -> None:
    """Fault 7: one byte at a time, in mid-UTF-8, between CR and LF."""
    async with stage(lambda turn, _: Reply(text="Done.") if turn else Reply(raw=BODY, split=split)) as on:
        news = await on.send()
        assert on.notes == ["x"]
        assert [message.content for message in of(news, AssistantMessage)] == [TEXT, "Done."]
        assert of(news, TurnRetry) == []
        await on.check()


FAILURES: dict[str, tuple[Reply, str]] = {
    "429 with seconds": (Reply(status=429, headers={"Retry-After": "0"}), "rate_limit"),
    "429 with a date": (Reply(status=429, headers={"Retry-After": formatdate(0, usegmt=True)}), "rate_limit"),
    "429 without": (Reply(status=429), "rate_limit"),
    "500": (Reply(status=500), "overloaded"),
    "529": (Reply(status=529), "overloaded"),
    "200 with an error": (Reply(error={"message": "The engine fell over.", "type": "server_error"}), "overloaded"),
    "an error in the stream": (
        Reply(raw=b'data: {"choices":[{"delta":{"content":"Hm"}}]}\n\ndata: {"error":{"message":"Oops."}}\n\n'),
        "overloaded",
    ),
    "reset": (Reply(raw=b"", cut_after=0), "cut_stream"),
    "silence": (Reply(delay_s=20), "silence"),
    "silence in mid-stream": (Reply(text="Hm", chunk_size=1, every_s=20), "silence"),
}


@pytest.mark.parametrize("name", FAILURES)
async def test_a_passing_failure_is_retried_and_shown(name: str) -> None:
    """Fault 8, M-11."""
    failure, kind = FAILURES[name]
    answer: Answer = lambda turn, attempt: failure if attempt <= 2 else Reply(text=TEXT, chunk_size=1)  # noqa: E731
    async with stage(answer, silence_s=2.0 if "silence" in name else 5.0) as on:
        news = await on.send()
        assert [(retry.attempt, retry.error_class) for retry in of(news, TurnRetry)] == [(1, kind), (2, kind)]
        assert [message.content for message in of(news, AssistantMessage)] == [TEXT]
        assert of(news, SessionError) == []
        assert news[-1].data == SessionIdle("done")
        await on.check()


@pytest.mark.parametrize("name", FAILURES)
async def test_a_failure_that_stays_ends_in_an_error_and_idle_and_the_chat_goes_on_later(name: str) -> None:
    """Fault 8: bounded, shown, idle, resumable."""
    failure, kind = FAILURES[name]
    answer: Answer = lambda turn, attempt: failure if attempt <= RETRIES + 1 else Reply(text=TEXT)  # noqa: E731
    async with stage(answer, silence_s=2.0 if "silence" in name else 5.0) as on:
        news = await on.send()
        assert len(on.fake.requests) == RETRIES + 1
        assert [error.error_class for error in of(news, SessionError)] == [kind]
        assert len(of(news, TurnRetry)) in (RETRIES, RETRIES + 1)
        assert [envelope.data for envelope in news if isinstance(envelope.data, SessionIdle)] == [SessionIdle("error")]
        assert type(news[-1].data) is SessionIdle
        assert on.notes == []
        await on.check()

        news = await on.send("Try again.")
        assert [message.content for message in of(news, AssistantMessage)] == [TEXT]
        assert news[-1].data == SessionIdle("done")
        await on.check()


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (Reply(status=401), "auth"),
        (Reply(status=400), "bad_request"),
        (Reply(status=429, error={"message": "You exceeded your current quota."}), "quota"),
        (Reply(status=429, headers={"Retry-After": "3600"}), "rate_limit"),
        (Reply(status=429, headers={"Retry-After": formatdate(4_000_000_000, usegmt=True)}), "rate_limit"),
    ],
)
async def test_what_cannot_pass_is_not_retried(failure: Reply, kind: str) -> None:
    """M-11: no key becomes right by asking again, and no run waits for an hour."""
    async with stage(lambda turn, attempt: failure) as on:
        news = await on.send()
        assert len(on.fake.requests) == 1
        assert [error.error_class for error in of(news, SessionError)] == [kind]
        assert news[-1].data == SessionIdle("error")
        await on.check()


async def test_a_server_that_is_not_there() -> None:
    async with stage(lambda turn, attempt: Reply(text="never")) as on:
        model = OpenAIChat(ModelInfo("openai", "gone"), base_url="http://127.0.0.1:9/v1")
        async with Agent(model=model, retry_base_s=0.0001) as agent:
            news = [envelope async for envelope in agent.chat().send("Go.")]
        assert [retry.error_class for retry in of(news, TurnRetry)] == ["network"] * UNREACHABLE_RETRIES
        assert [error.error_class for error in of(news, SessionError)] == ["network"]
        assert news[-1].data == SessionIdle("error")
        assert on.fake.requests == []


async def test_repeated_ids_with_other_arguments_each_run_once() -> None:
    """Fault 23, M-09: the same id in every turn, and twice in one."""
    calls = [("note", {"text": "a"}), ("note", {"text": "b"})]

    def answer(turn: int, attempt: int) -> Reply:
        match turn:
            case 0:
                return Reply(calls=calls, ids=["same", "same"])
            case 1 | 2:
                return Reply(calls=[("note", {"text": str(turn)})], ids=["same"])
        return Reply(text="Done.")

    async with stage(answer) as on:
        news = await on.send()
        assert on.notes == ["a", "b", "1", "2"]
        assert [start.call for start in of(news, ExecutionStart)] == ["1.0", "1.1", "2.0", "3.0"]
        await on.check()


BAD_ARGUMENTS = {
    "no JSON": "{'text':",
    "cut off": '{"text": "a',
    "an array": '["a"]',
    "a number": "7",
    "empty": "",
    "wrong type": '{"text": {"deep": 1}}',
    "missing": "{}",
    "unknown": '{"text": "a", "other": 1}',
    "deep": '{"text": ' + "[" * 10_000 + "]" * 10_000 + "}",
    "a lone surrogate": '{"text": "\\ud800"}',
}


@pytest.mark.parametrize("name", BAD_ARGUMENTS)
async def test_bad_arguments_are_an_error_result_and_nothing_runs(name: str) -> None:
    """Fault 10, T-12."""

    def answer(turn: int, attempt: int) -> Reply:
        return Reply(text="Done.") if turn else Reply(calls=[("note", BAD_ARGUMENTS[name])])

    async with stage(answer) as on:
        news = await on.send()
        (complete,) = of(news, ExecutionComplete)
        if name != "a lone surrogate":  # a text, if an odd one
            assert on.notes == []
            assert not complete.success
            assert complete.error
        assert news[-1].data == SessionIdle("done")
        await on.check()


async def test_large_arguments_duplicate_keys_and_unknown_tools() -> None:
    """Fault 10: each gets its error, and the call beside them runs."""
    calls: list[tuple[str, JsonObject | str]] = [
        ("note", {"text": "x" * 1_000_000}),
        ("note", '{"text": "first", "text": "second"}'),
        ("nothing_of_that_name", {}),
        ("", {}),
        ("note", {"text": "fine"}),
    ]
    async with stage(lambda turn, attempt: Reply(text="Done.") if turn else Reply(calls=calls)) as on:
        news = await on.send()
        assert [complete.success for complete in of(news, ExecutionComplete)] == [False, False, False, False, True]
        assert on.notes == ["fine"]
        assert news[-1].data == SessionIdle("done")
        await on.check()
