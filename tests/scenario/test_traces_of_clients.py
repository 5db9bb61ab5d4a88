"""A client's trace goes on in ours, by whichever protocol it came; and ours in the servers that we call (E-04)."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.collector import Collector
from tests.lazily import lazily
from tests.scenario.command_line import CommandLine
from tests.scenario.copilot_kit import Program
from tests.scenario.editor import begin, editing
from tests.scenario.mcp_servers.kit import Kit, collect_events, results
from treadle.adapters.models.scripted import Call, Say
from treadle.adapters.telemetry.settings import Telemetry
from treadle.protocol.trace_context import extract_traceparent

acp, mcp, serving = lazily("acp"), lazily("mcp"), lazily("treadle.frontends.mcp_server.server")
OUTSIDE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
HELLO = '[[turn]]\ntext = "Hello."\n'


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as new_collector:
        yield new_collector


@pytest.fixture
async def kit(tmp_path: Path) -> AsyncIterator[Kit]:
    new_kit = Kit(tmp_path)
    yield new_kit
    await new_kit.close()


async def has_joined_trace(collector: Collector) -> bool:
    await asyncio.to_thread(collector.until, lambda: bool(collector.find_spans("invoke_agent treadle")))
    run = collector.one("invoke_agent treadle")
    return (run.trace, run.parent) == tuple(OUTSIDE.split("-")[1:3])


async def test_a_prompt_of_an_editor_joins_its_trace(cli: CommandLine, collector: Collector) -> None:
    traced = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
    async with editing(cli, "--model", cli.script(HELLO), env=traced) as editor:
        session = await begin(editor, cli)
        blocks = [acp.text_block("Say hello.")]
        await editor.agent.prompt(session_id=session, prompt=blocks, traceparent=OUTSIDE)  # the SDK's way to say _meta
        assert await has_joined_trace(collector)


async def test_a_message_of_a_program_joins_its_trace(cli: CommandLine, collector: Collector) -> None:
    cli.environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = collector.url
    program = await Program.start(cli, cli.script(HELLO))
    await program.call("session.create", {"sessionId": "s1"})
    await program.call("session.sendAndWait", {"sessionId": "s1", "prompt": "Say hello.", "traceparent": OUTSIDE})
    assert await has_joined_trace(collector)
    await program.close()


async def test_a_program_is_told_the_span_in_which_its_tool_is_waited_for(
    cli: CommandLine, collector: Collector
) -> None:
    cli.environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = collector.url
    program = await Program.start(cli, cli.script(f'[[turn]]\n[[turn.call]]\nname = "lookup"\n{HELLO}'))
    tool = {"name": "lookup", "parameters": {"type": "object"}, "skipPermission": True}
    await program.call("session.create", {"sessionId": "s1", "tools": [tool]})
    await program.call("session.send", {"sessionId": "s1", "prompt": "Look.", "traceparent": OUTSIDE})
    request = (await program.wait_for_event("external_tool.requested"))["data"]
    answer = {"sessionId": "s1", "requestId": request["requestId"], "result": "42"}
    await program.call("session.tools.handlePendingToolCall", answer)
    assert await has_joined_trace(collector)
    waited = collector.one("wait client_tool")
    assert request["traceparent"] == f"00-{waited.trace}-{waited.id}-01"
    await program.close()


async def test_a_task_of_another_agent_joins_its_trace(kit: Kit, collector: Collector) -> None:
    agent = kit.agent([Say("Hello.")], {}, telemetry=Telemetry(collector.url))
    async with mcp.Client(serving.TaskTools(agent, [str(kit.root)]).make_server()) as client:
        arguments = {"prompt": "Say hello."}
        start_result = await client.call_tool("start_task", arguments, meta={"traceparent": OUTSIDE})
        await client.call_tool("follow_task", {"task": (start_result.structured_content or {})["task"], "after": 3})
    await agent.close()
    assert await has_joined_trace(collector)


async def test_a_server_of_tools_is_told_the_span_of_its_call(kit: Kit, collector: Collector) -> None:
    agent = kit.agent([Call("odd__trace"), Say("Done.")], telemetry=Telemetry(collector.url))
    events = await collect_events(kit.chat(agent).send("Look.", traceparent=OUTSIDE))
    await agent.close()
    (completion,) = results(events)
    span = collector.one("execute_tool odd__trace")
    assert completion.result == f"00-{span.trace}-{span.id}-01"
    assert await has_joined_trace(collector)


@pytest.mark.parametrize("carrier", [None, {}, {"traceparent": 7}, {"traceparent": "00-none"}, {"tracestate": "a=b"}])
def test_what_is_no_trace_is_none(carrier: dict[str, object] | None) -> None:
    assert extract_traceparent(carrier) == ""
