"""Models that a program brings to `treadle copilot` with an address and a key (issue 15, item 4): the wire, where the
key stands, and that it is kept nowhere (M-13)."""

from typing import Any

import pytest

from tests.scenario.command_line import CommandLine
from tests.scenario.copilot_kit import ErrorAnswer, Program
from treadle.testing.fake_anthropic import FakeAnthropic
from treadle.testing.fake_http import FakeResponse, Headers
from treadle.testing.fake_model import FakeModelServer, Reply
from treadle.testing.fake_openai import ChatCompletions, FakeOpenAI

pytestmark = pytest.mark.thorough(one_of=8)

KEY = "sk-brought-by-a-program-1234567890"
SCRIPT = '[[turn]]\ntext = "The runtime\'s own model."\n'


class Azure(ChatCompletions):
    """Takes calls on any path."""

    def answer_other_request(self, method: str, path: str, headers: Headers, body: bytes) -> FakeResponse | None:
        return None


async def ask(cli: CommandLine, fake: FakeModelServer, provider: dict[str, Any], **more: Any) -> str:
    program = await Program.start(cli, cli.script(SCRIPT))
    program.answers["providerToken.getToken"] = {"token": f"{KEY}-fetched"}
    try:
        config = {"provider": {"baseUrl": fake.base_url, **provider}, "model": "gpt-x", **more}
        await program.call("session.create", {"sessionId": "s1", **config})
        answer = await program.call("session.sendAndWait", {"sessionId": "s1", "prompt": "Hi."})
        model = await program.call("session.model.getCurrent", {"sessionId": "s1"})
        assert model == {"modelId": "gpt-x"}
        return str(answer["response"]["data"]["content"])
    finally:
        await program.close()


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize(
    ("provider", "header", "path"),
    [
        ({"type": "openai", "apiKey": KEY}, ("authorization", f"Bearer {KEY}"), "/v1/chat/completions"),
        ({"type": "anthropic", "apiKey": KEY}, ("x-api-key", KEY), "/v1/messages"),
        (
            {"type": "azure", "apiKey": KEY, "azure": {"apiVersion": "2024-10-21"}},
            ("api-key", KEY),
            "/openai/deployments/gpt-x/chat/completions?api-version=2024-10-21",
        ),
        ({"type": "azure", "apiKey": KEY}, ("api-key", KEY), "/openai/v1/chat/completions"),
        (
            {"type": "openai", "hasBearerTokenProvider": True, "headers": {"X-Team": "blue"}},
            ("authorization", f"Bearer {KEY}-fetched"),
            "/v1/chat/completions",
        ),
    ],
)
async def test_a_program_brings_its_model(
    cli: CommandLine, provider: dict[str, Any], header: tuple[str, str], path: str
) -> None:
    reply = [Reply(text="From the program's model.")]
    azure = FakeOpenAI(reply, dialect=Azure())
    fakes = {"anthropic": FakeAnthropic(reply), "openai": FakeOpenAI(reply), "azure": azure}
    with fakes[provider["type"]] as fake:
        if provider["type"] == "azure":
            provider = {"baseUrl": fake.url, **provider}
        assert await ask(cli, fake, provider) == "From the program's model."
        assert fake.paths == [path]
        assert fake.headers[0][header[0]] == header[1]
        assert fake.requests[0]["model"] == "gpt-x"
        if provider.get("headers"):
            assert fake.headers[0]["x-team"] == "blue"
    assert not [file for file in cli.files() if KEY.encode() in file.read_bytes()]


async def test_a_key_is_brought_again_on_resume(cli: CommandLine) -> None:
    """Another runtime knows the session, not its key."""
    with FakeOpenAI([Reply(text="One."), Reply(text="Two.")]) as fake:
        provider = {"type": "openai", "baseUrl": fake.base_url, "apiKey": KEY}
        assert await ask(cli, fake, provider) == "One."
        second_program = await Program.start(cli, cli.script(SCRIPT))
        try:
            await second_program.call("session.resume", {"sessionId": "s1"})
            assert "resume with provider" in (await second_program.wait_for_event("session.warning"))["data"]["message"]
            with pytest.raises(ErrorAnswer, match="byok"):
                await second_program.call("session.sendAndWait", {"sessionId": "s1", "prompt": "Go on."})
            await second_program.call("session.resume", {"sessionId": "s1", "provider": provider, "model": "gpt-x"})
            answer = await second_program.call("session.sendAndWait", {"sessionId": "s1", "prompt": "Go on."})
            assert answer["response"]["data"]["content"] == "Two."
        finally:
            await second_program.close()


async def test_a_program_brings_several_models(cli: CommandLine) -> None:
    with FakeOpenAI([Reply(text="One."), Reply(text="Two.")]) as fake:
        config = {
            "providers": [{"name": "alpha", "type": "openai", "baseUrl": fake.base_url, "apiKey": KEY}],
            "models": [
                {"id": "big", "provider": "alpha", "wireModel": "gpt-big"},
                {"id": "small", "provider": "alpha"},
            ],
        }
        program = await Program.start(cli, cli.script(SCRIPT))
        try:
            await program.call("session.create", {"sessionId": "s1", "model": "alpha/big", **config})
            await program.call("session.sendAndWait", {"sessionId": "s1", "prompt": "Hi."})
            await program.call("session.model.switchTo", {"sessionId": "s1", "modelId": "alpha/small"})
            await program.call("session.sendAndWait", {"sessionId": "s1", "prompt": "Hi."})
        finally:
            await program.close()
        assert [request["model"] for request in fake.requests] == ["gpt-big", "small"]


async def test_a_provider_that_cannot_be_used_is_refused(cli: CommandLine) -> None:
    program = await Program.start(cli, cli.script(SCRIPT))
    try:
        for provider, words in [
            ({"type": "openai", "baseUrl": "ftp://x"}, "http"),
            ({"type": "gemini"}, "does not fit"),
        ]:
            with pytest.raises(ErrorAnswer, match=words):
                await program.call("session.create", {"sessionId": "s1", "provider": provider, "model": "m"})
    finally:
        await program.close()
