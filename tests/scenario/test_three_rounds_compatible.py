"""`treadle run` with providers that are rows of a table: the same task with the same result, also with a server that
wants to see in each request what its model thought (M-01, M-10)."""

from typing import Any

import msgspec

from tests.scenario.command_line import CommandLine
from tests.scenario.three_rounds import DONE, REPLIES, three_rounds
from treadle.testing.fake_openai import FakeOpenAI, Reply
from treadle.types import JsonObject


def test_the_same_task_gives_the_same_result(cli: CommandLine) -> None:
    with FakeOpenAI(REPLIES) as fake:
        done = three_rounds(cli, "openrouter:z-ai/glm-5.2", {"OPENROUTER_BASE_URL": fake.base_url})
    assert done._replace(results=()) == DONE
    assert {request["model"] for request in fake.requests} == {"z-ai/glm-5.2"}


def test_thinking_goes_back_out_of_the_log(cli: CommandLine) -> None:
    thoughts = ["First I look.", "", "Now I run “it”.", "Done."]

    def reply(request: JsonObject) -> Reply:
        messages: Any = request["messages"]
        returned = [message.get("reasoning_content") for message in messages if message["role"] == "assistant"]
        if returned != thoughts[: len(returned)]:
            return Reply(status=400, error={"message": f"reasoning_content must be passed back, not {returned}"})
        return msgspec.structs.replace(REPLIES[len(returned)], thinking=thoughts[len(returned)])

    with FakeOpenAI(reply) as fake:
        done = three_rounds(cli, "deepseek:deepseek-flash", {"DEEPSEEK_BASE_URL": fake.base_url})
    assert done._replace(results=()) == DONE
    assert len(fake.requests) == 4
