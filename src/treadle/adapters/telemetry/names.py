"""The names of spans and metrics: those of OpenTelemetry's GenAI conventions where there is one, else `treadle.…`."""

from treadle.protocol.deltas import FinishDelta

SCHEMA_URL = "https://opentelemetry.io/schemas/1.41.0"  # The version of the conventions that the names are from.
OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
CONVERSATION = "gen_ai.conversation.id"
AGENT = "gen_ai.agent.name"
AGENT_VERSION = "gen_ai.agent.version"
MODEL = "gen_ai.request.model"
RESPONSE_ID = "gen_ai.response.id"
RESPONSE_MODEL = "gen_ai.response.model"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"
FINISH = "gen_ai.response.finish_reasons"
FIRST_TOKEN = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHED_TOKENS = "gen_ai.usage.cache_read.input_tokens"
REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens"
TOOL = "gen_ai.tool.name"
TOOL_TYPE = "gen_ai.tool.type"
TOOL_CALL = "gen_ai.tool.call.id"
ERROR = "error.type"
TOKEN_TYPE = "gen_ai.token.type"

COST = "treadle.cost.usd"
ESTIMATED = "treadle.usage.estimated"
PURPOSE = "treadle.purpose"
TURN = "treadle.turn"
CALL = "treadle.call"
WAIT = "treadle.wait"
TOOL_TIME = "treadle.tool.time"
QUEUED = "treadle.queue.time"

# Content of messages, calls and results: exported only if the settings ask for it.
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
ARGUMENTS = "gen_ai.tool.call.arguments"
RESULT = "gen_ai.tool.call.result"

_PROVIDERS = {
    "copilot": "github.copilot", "gemini": "gcp.gemini", "mistral": "mistral_ai", "openai-responses": "openai",
    "vertex": "gcp.vertex_ai", "xai": "x_ai",
}  # fmt: skip


def describe_response(ending: FinishDelta) -> dict[str, str | int]:
    answer = {RESPONSE_ID: ending.response_id, RESPONSE_MODEL: ending.response_model}
    server: dict[str, str | int] = {SERVER_ADDRESS: ending.server_address, SERVER_PORT: ending.server_port}
    return {name: value for name, value in (server | answer).items() if value}


def describe_model(ref: str) -> dict[str, str]:
    provider, _, name = ref.partition(":")
    return {PROVIDER: _PROVIDERS.get(provider, provider), MODEL: name or provider} if ref else {}
