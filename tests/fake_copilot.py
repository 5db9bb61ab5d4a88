"""A fake of GitHub Copilot on loopback: the exchange of tokens, the list of models, and both protocols, scripted for
tests. Tokens can be made to expire, exchanges are counted.

In a test: `with FakeCopilot([Reply(text="Hi")]) as fake:` and give a client the environment `fake.env`.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from treadle.base.types import JsonObject
from treadle.testing.fake_http import END, FakeResponse, Headers, encode_chunk, encode_head, make_json_answer
from treadle.testing.fake_model import Dialect, FakeModelServer, Reply, Script
from treadle.testing.fake_openai import ChatCompletions, encode_sse
from treadle.testing.fake_responses import Responses, seal

__all__ = ["GITHUB_TOKEN", "CopilotService", "FakeCopilot", "Reply", "Script"]

GITHUB_TOKEN = "ghu_fake0123456789abcdef"
_LIMITS = {"max_context_window_tokens": 200_000, "max_prompt_tokens": 128_000, "max_output_tokens": 8_000}


class FakeCopilot(FakeModelServer):
    """A scripted Copilot. `only_responses` names the models that do not speak Chat Completions."""

    def __init__(
        self,
        script: Script = (),
        *,
        in_order: bool = False,
        only_responses: Iterable[str] = (),
        refresh_in: float = 1500,
    ) -> None:
        self.service = CopilotService(frozenset(only_responses), refresh_in)
        super().__init__(script, in_order=in_order, dialect=self.service)

    @property
    def env(self) -> Mapping[str, str]:
        """The environment of a client that is to come here."""
        return {"COPILOT_GITHUB_API_URL": self.url, "COPILOT_GITHUB_TOKEN": GITHUB_TOKEN}

    @property
    def exchanges(self) -> int:
        """How many Copilot tokens were given out."""
        return self.service.exchanges

    def expire(self) -> None:
        """No token that was given out so far is good any more."""
        self.service.good.clear()


class CopilotService(Dialect):
    def __init__(self, only_responses: frozenset[str] = frozenset(), refresh_in: float = 1500) -> None:
        self._chat = ChatCompletions()
        self._responses = Responses()
        self._only_responses = only_responses
        self._refresh_in = refresh_in
        self.exchanges = 0
        self.good: set[str] = set()
        """The tokens with which models may be asked."""
        self.refuses_all = False
        """If true, no token is good, however fresh."""
        self.exchange_refusal: tuple[int, str] | None = None
        """Status and sentence with which every exchange is refused."""
        self.exchange_headers: list[Headers] = []

    def count_answers(self, request: JsonObject) -> int:
        return self._of(request).count_answers(request)

    def stream(self, reply: Reply, request: JsonObject, position: int) -> Iterator[bytes]:
        pieces = self._of(request).stream(reply, request, position)
        return _seal_thinking(pieces, reply) if reply.thinking and "messages" in request else pieces

    def build_answer(self, reply: Reply, request: JsonObject, position: int) -> dict[str, Any]:
        return self._of(request).build_answer(reply, request, position)

    def build_failure(self, status: int, message: str) -> JsonObject:
        return self._chat.build_failure(status, message)

    def answer_other_request(self, method: str, path: str, headers: Headers, body: bytes) -> FakeResponse | None:
        if (method, path) == ("GET", "/copilot_internal/v2/token"):
            return self._exchange(headers)
        if self.refuses_all or headers.get("authorization", "").removeprefix("Bearer ") not in self.good:
            error_body = encode_chunk(b"unauthorized: token expired\n")
            return FakeResponse((encode_head(401, "text/plain; charset=utf-8") + error_body + END,))
        missing = [name for name in ("editor-version", "copilot-integration-id") if not headers.get(name)]
        if missing:
            return make_json_answer(
                400, self.build_failure(400, f"bad request: missing {missing[0]} header for IDE auth")
            )
        match method, path:
            case "GET", "/models":
                return make_json_answer(200, {"object": "list", "data": self._models()})
            case "POST", "/chat/completions":
                return self._refuse_protocol(body)
            case "POST", "/responses":
                return self._responses.answer_other_request(method, path, headers, body)
        return self.answer_unknown_path(method, path)

    def _exchange(self, headers: Headers) -> FakeResponse:
        self.exchange_headers.append(headers)
        if self.exchange_refusal is not None:
            return make_json_answer(self.exchange_refusal[0], {"message": self.exchange_refusal[1], "status": "error"})
        if headers.get("authorization") != f"Bearer {GITHUB_TOKEN}":
            return make_json_answer(401, {"message": "Bad credentials", "documentation_url": "none"})
        self.exchanges += 1
        token = f"tid=fake{self.exchanges};exp=1700000000;sku=fake:{'0' * 32}"
        self.good.add(token)
        endpoints = {"api": f"http://{headers['host']}", "telemetry": "none"}
        times = {"expires_at": 1_700_000_000, "refresh_in": self._refresh_in}
        return make_json_answer(200, {"token": token, "chat_enabled": True, "endpoints": endpoints, **times})

    def _refuse_protocol(self, body: bytes) -> FakeResponse | None:
        model_name = next((name for name in self._only_responses if f'"model":"{name}"'.encode() in body), None)
        if model_name is None:
            return None
        message = f'model "{model_name}" is not accessible via the /chat/completions endpoint'
        return make_json_answer(400, {"error": {"message": message, "code": "unsupported_api_for_model"}})

    def _models(self) -> list[JsonObject]:
        chat = {"type": "chat", "limits": _LIMITS, "supports": {"tool_calls": True}}
        return [
            {"id": "gpt-4.1", "object": "model", "capabilities": chat},
            *({"id": name, "object": "model", "capabilities": chat} for name in sorted(self._only_responses)),
            {"id": "text-embedding-3-small", "object": "model", "capabilities": {"type": "embeddings"}},
        ]

    def _of(self, request: JsonObject) -> ChatCompletions | Responses:
        return self._responses if "input" in request else self._chat


def _seal_thinking(pieces: Iterable[bytes], reply: Reply) -> Iterator[bytes]:
    """A stream of Chat Completions as this service tells thinking: in fields of its own, and sealed."""
    for number, piece in enumerate(pieces):
        yield piece.replace(b'"reasoning_content":', b'"reasoning_text":')
        if not number:
            delta = {"reasoning_opaque": reply.signature or seal(reply.thinking)}
            yield encode_sse({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
