"""A tool asks the chat's model in the middle of its call (E-01): within the chat's budget, and recorded at once."""

from msgspec.structs import replace

from treadle.engine import request as requests
from treadle.engine import side_call
from treadle.engine.deps import Deps
from treadle.engine.tenure import Tenure
from treadle.errors import ConfigError, ToolError
from treadle.ports.model import ModelRequest
from treadle.ports.toolset import AskModel
from treadle.protocol.events import ModelCall
from treadle.types import CallKey


def asking(tenure: Tenure, call: CallKey, deps: Deps) -> AskModel:
    async def ask(wanted: ModelRequest) -> str:
        state = tenure.state
        try:
            model = requests.find_model(state, deps)
        except ConfigError as error:
            raise ToolError(str(error)) from error
        limit = min(wanted.max_tokens or model.info.max_output, model.info.max_output)
        request = replace(wanted, max_tokens=limit, window=state.options.context_window, purpose="sampling")
        expected = side_call.expected(model, request)
        if requests.over(state, sum(tenure.reserved, expected), deps) is not None:
            raise ToolError("The budget does not allow another call of the model.")
        tenure.reserved.append(expected)
        try:
            reply = await side_call.ask(model, request, deps)
            await tenure.record(ModelCall("sampling", reply.usage, reply.text, reply.error, call))
        finally:
            tenure.reserved.remove(expected)
        if reply.error:
            raise ToolError(reply.error)
        return reply.text

    return ask
