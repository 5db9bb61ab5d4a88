"""What all readers of an answer have in common: bytes in, deltas out, read by read; what failed, and what was cut off.
The base of adapters' readers, which know the words of their protocols."""

from abc import ABC, abstractmethod

from treadle.errors import ModelError
from treadle.models.wire.batch import Batch
from treadle.models.wire.body import EventBody
from treadle.protocol.deltas import Delta, FinishDelta

_SHOWN = 80


class AnswerReader(ABC):
    """Takes bytes, gives deltas: text and thinking of one read are joined. `done` when the server has said its last
    word. `where` is the host, for people."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._batch = Batch()
        self._failure: ModelError | None = None
        self.finish_reason: str | None = None
        self.done = False

    def feed(self, chunk: bytes) -> list[Delta]:
        try:
            self._read(chunk)
        except ModelError as error:
            # What the same read brought before counts: it was said, and it is paid for. `end` tells the failure.
            self._failure, self.done = error, True
        return self._batch.take()

    def end(self) -> list[Delta]:
        """The last deltas. Raises when the stream failed or stopped before its end."""
        if self._failure is not None:
            raise self._failure
        self._close()
        if not self._is_whole():
            raise ModelError("cut_stream", f"{self._where} broke off in the middle of its answer")
        self._batch.put(FinishDelta(self.finish_reason or ("tool_calls" if self._batch.called else "stop")))
        return self._batch.take()

    @abstractmethod
    def _read(self, chunk: bytes) -> None:
        """Take in what came. Raises ModelError when the server failed, or when it cannot be understood: never a guess,
        because a lost fragment would be half a call."""

    @abstractmethod
    def _close(self) -> None:
        """The body has ended: take in what can be read only now."""

    def _is_whole(self) -> bool:
        return self.finish_reason is not None or self.done

    def _nonsense(self, data: str | bytes) -> ModelError:
        """The failure for what cannot be understood."""
        text = data if isinstance(data, str) else data[: 4 * _SHOWN + 4].decode("utf-8", "replace")
        shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
        return ModelError("cut_stream", f"{self._where} sent something that is no part of an answer: {shown!r}")


class EventReader(AnswerReader):
    """Of a stream of events, or of one document from a server that does not stream."""

    def __init__(self, where: str) -> None:
        super().__init__(where)
        self._body = EventBody()

    def _close(self) -> None:
        if (document := self._body.document()) is not None:
            self._read_document(document)

    @abstractmethod
    def _read_document(self, document: bytes) -> None:
        """Take in the answer as a whole."""
