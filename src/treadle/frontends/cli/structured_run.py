"""`treadle run --output-schema`: the answer of a run as one JSON value on standard output, and nothing else there."""

import os

import msgspec

from treadle.base.inert import inert_line, print_note
from treadle.errors import InvalidInput
from treadle.frontends.cli.drive import JsonLines, drive
from treadle.frontends.cli.options import EXIT_ERROR, EXIT_OK
from treadle.frontends.cli.terminal import write_json_line
from treadle.frontends.presentation.notices import notice
from treadle.library.chat import Chat
from treadle.library.structured import AGAIN, REPAIRS, Shape, Unfit
from treadle.protocol import commands as c
from treadle.protocol import events as e


class _LastWords(JsonLines):
    """Keeps what the model said last, and tells what goes wrong."""

    text = ""

    def event(self, envelope: e.Envelope) -> None:
        match envelope.data:
            case e.AssistantMessage(content=content) if content:
                self.text = content
            case e.SessionError() | e.TurnRetry() | e.LimitReached() as odd:
                styled_notice = notice(odd)
                _say(styled_notice[0] if styled_notice is not None else "")
            case _:
                pass


async def print_output(chat: Chat, text: str, schema: str, after_seq: int) -> int:
    """Give the task, and again what is wrong with the answer, until it fits; then print it."""
    shape = _shape(schema)
    await chat.command(c.ChangeOptions({"output_schema": shape.schema}))
    show = _LastWords()
    for repairs_left in range(REPAIRS, -1, -1):
        code = await drive(chat, chat.send(text, traceparent=os.environ.get("TRACEPARENT", "")), show, after_seq)
        after_seq = (await chat.state()).head
        if code != EXIT_OK:
            return code
        try:
            output = shape.read(show.text)
        except Unfit as unfit:
            _say(f"the answer does not fit the output schema{'; asked again' if repairs_left else ''}:\n{unfit}")
            text = AGAIN.format(problem=unfit)
            continue
        write_json_line(msgspec.json.format(msgspec.json.encode(output), indent=2))
        return EXIT_OK
    return EXIT_ERROR


def _shape(schema: str) -> Shape[object]:
    try:
        read = msgspec.json.decode(schema)
    except msgspec.DecodeError as error:
        raise InvalidInput(f"the output schema is no valid JSON: {error}") from error
    if not isinstance(read, dict):
        raise InvalidInput("the output schema must be a JSON object")
    return Shape(read)


def _say(text: str) -> None:
    for line in text.split("\n"):
        print_note(f"treadle: {inert_line(line, 500)}")
