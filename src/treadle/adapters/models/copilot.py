"""GitHub Copilot (M-01): Chat Completions behind an endpoint of its own, and the Responses API for those of its models
that speak nothing else. A GitHub token is exchanged for a Copilot token, which lives for half an hour and is kept in
memory only (M-11, M-13). All Copilot models of a process share one endpoint."""

import asyncio
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from treadle._version import __version__
from treadle.adapters.models.keys import Secret, find_key
from treadle.adapters.models.openai_chat.adapter import ChatOrResponses, OpenAIChat
from treadle.adapters.models.openai_responses import OpenAIResponses
from treadle.adapters.models.provider_context import ProviderContext
from treadle.adapters.models.wire.http import Access, Endpoint, Http, format_host, hide_credentials
from treadle.base.subprocesses import run_program
from treadle.errors import ConfigError, ModelError
from treadle.ports.model import ModelInfo, ModelRequest
from treadle.protocol.content import UserEntry

GITHUB_API_URL = "https://api.github.com"
BASE_URL = "https://api.githubcopilot.com"
VARIABLES = ("COPILOT_GITHUB_TOKEN", "GH_TOKEN", "GITHUB_TOKEN")  # searched before the command `gh` is asked
HEADERS: Mapping[str, str] = {
    "Accept": "application/json",
    "Copilot-Integration-Id": "vscode-chat",  # the service knows its integrations by name and refuses others
    "Editor-Plugin-Version": f"treadle/{__version__}",
    "Editor-Version": f"Treadle/{__version__}",
    "Openai-Intent": "conversation-agent",
    "User-Agent": f"Treadle/{__version__}",
    "X-GitHub-Api-Version": "2025-04-01",
}
MARGIN_S = 60.0  # so long before its end a token is no longer used
LIFE_S = 20 * 60.0  # how long a token is used when nothing is said about its end
GH_S = 10.0


class _Endpoints(msgspec.Struct):
    api: str | None = None


class _Token(msgspec.Struct):
    token: str
    refresh_in: float | None = None
    expires_at: float | None = None
    endpoints: _Endpoints | None = None


class _Pass(NamedTuple):
    key: Secret
    base_url: str
    until: float
    exchanged: bool


class CopilotEndpoint:
    def __init__(
        self, env: Mapping[str, str], http: Http, *, now: Callable[[], float] = time.monotonic, home: Path | None = None
    ) -> None:
        self._env, self._home, self._http, self._now = env, home, http, now
        self._api = (env.get("COPILOT_GITHUB_API_URL", "").strip() or GITHUB_API_URL).rstrip("/")
        self._base_url = env.get("COPILOT_BASE_URL", "").strip().rstrip("/")
        self._pass: _Pass | None = None
        self._one_at_a_time = asyncio.Lock()

    def __repr__(self) -> str:
        return repr(hide_credentials(self._base_url or self._api))

    async def prepare_access(self, request: ModelRequest) -> Access:
        async with self._one_at_a_time:
            if self._pass is None or self._pass.until <= self._now():
                self._pass = await self._fetch()
            current_pass = self._pass
        headers = {**HEADERS, "X-Initiator": choose_initiator(request)}
        if request.pictures and any(isinstance(entry, UserEntry) and entry.images for entry in request.entries):
            headers["Copilot-Vision-Request"] = "true"
        return Access(current_pass.base_url, current_pass.key, headers)

    def report_refusal(self, access: Access, error: ModelError) -> bool:
        """A token may be revoked, or a machine may have slept past its end."""
        if error.status != 401 or (self._pass is not None and not self._pass.exchanged):
            return False
        if self._pass is not None and self._pass.key is access.key:
            self._pass = None  # otherwise someone else has fetched another one already
        return True

    async def _fetch(self) -> _Pass:
        github, source = await self._require_github_key()
        try:
            document = await self._http.get(f"{self._api}/copilot_internal/v2/token", HEADERS, github)
        except ModelError as error:
            # Tokens of `gh` and fine-grained ones are not exchanged: Copilot takes them as they are.
            if error.status == 404 or (error.status == 403 and "personal access token" in str(error).lower()):
                return _Pass(github, self._base_url or BASE_URL, self._now() + LIFE_S, exchanged=False)
            if error.kind == "auth":
                raise ModelError("auth", f"{error} (the GitHub token of {source})", status=error.status) from error
            raise
        try:
            token = msgspec.json.decode(document, type=_Token, strict=False)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            host = format_host(self._api)
            raise ModelError("auth", f"{host} gave no Copilot token; has the account a subscription?") from error
        base_url = self._base_url or choose_base_url(self._api, (token.endpoints and token.endpoints.api) or "")
        life = token.refresh_in or 0.0  # the relative lifetime comes first: clocks may be wrong
        if life <= 0:
            life = max(0.0, token.expires_at - time.time() - MARGIN_S) if token.expires_at else LIFE_S
        return _Pass(Secret(token.token), base_url, self._now() + life, exchanged=True)

    async def _require_github_key(self) -> tuple[Secret, str]:
        for variable in VARIABLES:
            if key := find_key(self._env, variable, keyring=variable == VARIABLES[0], home=self._home):
                return key, variable
        if key := await ask_gh(self._env):
            return key, "gh auth token"
        raise ModelError("auth", "GitHub does not know you: run `gh auth login`, or set COPILOT_GITHUB_TOKEN")


def make_endpoint(context: ProviderContext) -> CopilotEndpoint:
    """ConfigError when there is no way to a GitHub token."""
    for variable in ("COPILOT_GITHUB_API_URL", "COPILOT_BASE_URL"):
        context.find_address(variable)
    has_key = any(context.find_key(variable, stored=variable == VARIABLES[0]) for variable in VARIABLES)
    if not has_key and not _find_gh(context.env):
        raise ConfigError(
            "copilot needs a GitHub token: set COPILOT_GITHUB_TOKEN, or install gh and run `gh auth login`"
        )
    return CopilotEndpoint(context.env, context.http, home=context.home)


async def ask_gh(env: Mapping[str, str]) -> Secret:
    if (gh := _find_gh(env)) is None:
        return Secret("")
    result = await run_program([gh, "auth", "token"], cwd=".", env=env, timeout_s=GH_S)
    return Secret(result.output if result.code == 0 else "")


def choose_base_url(api: str, models_url: str) -> str:
    """The address of an account's models, as told with its token. A token that came by HTTPS never leaves by HTTP."""
    open_line = models_url.startswith("http://") and api.startswith("http://")
    return models_url.rstrip("/") if open_line or models_url.startswith("https://") else BASE_URL


def choose_initiator(request: ModelRequest) -> str:
    """Return the initiator of a request: a person's message counts against the plan, the agent's own steps do not."""
    last = request.entries[-1] if request.entries and request.purpose == "turn" else None
    return "user" if isinstance(last, UserEntry) and last.source == "person" else "agent"


def _find_gh(env: Mapping[str, str]) -> str | None:
    return shutil.which("gh", path=env.get("PATH", ""))


def connect(name: str, context: ProviderContext) -> ChatOrResponses:
    return make_model(context.catalogue.look_up("copilot", name), context.share(make_endpoint), context.http)


def make_model(info: ModelInfo, endpoint: Endpoint, http: Http) -> ChatOrResponses:
    return ChatOrResponses(
        OpenAIChat(info, endpoint=endpoint, http=http),
        lambda: OpenAIResponses(info, thinking=True, endpoint=endpoint, http=http),
    )


class _Limits(msgspec.Struct):
    max_context_window_tokens: int = 0
    max_prompt_tokens: int = 0
    max_output_tokens: int = 0


class _Capabilities(msgspec.Struct):
    type: str = "chat"
    limits: _Limits = msgspec.field(default_factory=_Limits)


class _Listed(msgspec.Struct):
    id: str
    capabilities: _Capabilities = msgspec.field(default_factory=_Capabilities)


class _List(msgspec.Struct):
    data: list[_Listed]


async def list_models(context: ProviderContext) -> list[ModelInfo]:
    access = await context.share(make_endpoint).prepare_access(ModelRequest("", ()))
    document = await context.http.get(f"{access.base_url}/models", HEADERS, access.key)
    try:
        listing = msgspec.json.decode(document, type=_List, strict=False)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ModelError("bad_request", f"{hide_credentials(access.base_url)} gave no list of models") from error
    infos = []
    for listed in listing.data:
        if listed.capabilities.type == "chat":
            info, limits = context.catalogue.look_up("copilot", listed.id), listed.capabilities.limits
            window = limits.max_context_window_tokens or limits.max_prompt_tokens or info.window
            max_output = limits.max_output_tokens or info.max_output
            infos.append(msgspec.structs.replace(info, window=window, max_output=max_output))
    return infos
