"""The model of a chat that names none, over HTTP (U-10): found as everywhere for the user of this machine; others get
only the model that the server is set to."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.scenario.command_line import NO_LOCAL_SERVER
from treadle import Agent
from treadle.errors import InvalidInput
from treadle.frontends.server.admission import Admission
from treadle.frontends.server.service import Service
from treadle.frontends.server.tokens import LOCAL, Tokens
from treadle.protocol.options import ChatOptions
from treadle.testing.fake_openai import FakeOpenAI


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    with FakeOpenAI() as fake:
        env = {**NO_LOCAL_SERVER, "OPENAI_API_KEY": "sk-0123456789abcdef", "OPENAI_BASE_URL": fake.base_url}
        async with Agent(home=tmp_path, env=env) as agent:
            yield Service(agent, Tokens(tmp_path / "tokens.json"), Admission(ChatOptions()))


async def test_it_is_found_and_remembered_for_the_user_of_this_machine(service: Service) -> None:
    assert (await service.begin(LOCAL, {})).model == "openai:fake"
    service.remember_model(LOCAL, "openai:gpt-4.1")
    assert await service.choose_default_model(LOCAL) == "openai:gpt-4.1"
    assert (await service.begin(LOCAL, {"model": "openai:gpt-4o"})).model == "openai:gpt-4o"


async def test_others_get_what_the_server_is_set_to(service: Service) -> None:
    service.remember_model("ada", "openai:gpt-4.1")
    assert await service.choose_default_model(LOCAL) == "openai:fake"
    with pytest.raises(InvalidInput, match="Name a model"):
        await service.begin("ada", {})
