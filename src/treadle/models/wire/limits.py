"""How much a server may send (M-11). What is over a limit ends the call with the kind `answer_limit`: nothing of it is
kept, and it is not asked for again. The largest honest answers stay far below."""

from treadle.errors import ModelError

EVENT_BYTES = 16 * 1024 * 1024
"""One event, line or document. The largest honest one repeats a whole answer with its encrypted reasoning."""
ANSWER_BYTES = 128 * 1024 * 1024
"""All of one answer, as it is after decompression. Every token may come in a chunk of some hundred bytes."""


class TooMuch(Exception):
    """More than `limit` bytes of one thing. Raised by decoders, which do not know who sent it."""

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(what)
        self.what = what
        self.limit = limit


def over_limit(where: str, over: TooMuch) -> ModelError:
    said = f"{where} sent {over.what} of more than {over.limit // (1024 * 1024)} MiB; the answer was given up"
    return ModelError("answer_limit", said)
