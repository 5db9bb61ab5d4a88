"""Vertex AI (M-03): the Gemini protocol at the endpoint of a Google Cloud project. Tokens come from the environment,
from a command, or from the credentials that `google-auth` finds; they are kept in memory only, and fetched again when
they end or are refused (M-11, M-13)."""

import asyncio
import importlib
import importlib.util
import shlex
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from treadle.adapters.models.gemini.adapter import Gemini
from treadle.adapters.models.keys import Secret
from treadle.adapters.models.provider_context import ProviderContext
from treadle.adapters.models.wire.http_model import Access
from treadle.base.subprocesses import run_program
from treadle.errors import ConfigError, ModelError
from treadle.ports.model import ModelRequest

TOKEN = "GOOGLE_ACCESS_TOKEN"
COMMAND = "GOOGLE_ACCESS_TOKEN_COMMAND"
SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
COMMAND_S = 30.0


class Grant(NamedTuple):
    token: Secret
    project: str = ""
    payer: str = ""  # the project that is charged, if it is another one


class Tokens(ABC):
    """One token at a time, fetched when it is needed, and again when it was refused or has ended."""

    knows_project = False

    def __init__(self) -> None:
        self._grant: Grant | None = None
        self._one_at_a_time = asyncio.Lock()

    async def get(self) -> Grant:
        async with self._one_at_a_time:
            if self._grant is None or self._has_expired():
                self._grant = await self._fetch()
            return self._grant

    def forget(self, token: Secret) -> bool:
        """Discard a refused token. Return True if another one may be available."""
        if self._grant is not None and self._grant.token is token:
            self._grant = None  # otherwise someone else has fetched another one already
        return True

    def _has_expired(self) -> bool:
        return False

    @abstractmethod
    async def _fetch(self) -> Grant: ...


class GivenToken(Tokens):
    def __init__(self, token: Secret) -> None:
        super().__init__()
        self._token = token

    def forget(self, token: Secret) -> bool:
        return False

    async def _fetch(self) -> Grant:
        return Grant(self._token)


class CommandTokens(Tokens):
    """A program that prints a token, such as `gcloud auth print-access-token`."""

    def __init__(self, command: str, env: Mapping[str, str]) -> None:
        super().__init__()
        try:
            self._command = shlex.split(command)
        except ValueError as error:
            raise ConfigError(f"{COMMAND} is no command line: {error}") from error
        self._env = env

    async def _fetch(self) -> Grant:
        command = f"the command in {COMMAND} ({self._command[0]})"
        try:
            result = await run_program(self._command, cwd=".", env=self._env, timeout_s=COMMAND_S)
        except OSError as error:
            raise ModelError("auth", f"{command} cannot be run: {error.strerror or error}") from error
        if result.ending == "timed_out":
            raise ModelError("auth", f"{command} printed nothing within {COMMAND_S:g} seconds")
        if result.code or not (token := Secret(result.output)):
            raise ModelError("auth", f"{command} printed no token and ended with {result.code}")
        return Grant(token)


class GoogleTokens(Tokens):
    """The credentials of this machine: a service account, a person's login, or those of the cloud it runs in. The
    library blocks while it asks for a token, so it works in a thread."""

    knows_project = True

    def __init__(self) -> None:
        super().__init__()
        self._credentials: Any = None
        self._project = ""

    def _has_expired(self) -> bool:
        return not self._credentials.valid

    async def _fetch(self) -> Grant:
        return await asyncio.to_thread(self._refreshed)

    def _refreshed(self) -> Grant:
        auth: Any = importlib.import_module("google.auth")
        errors: Any = importlib.import_module("google.auth.exceptions")
        transport: Any = importlib.import_module("google.auth.transport.requests")
        try:
            if self._credentials is None:
                self._credentials, project = auth.default(scopes=SCOPES)
                self._project = str(project or "")
            self._credentials.refresh(transport.Request())
        except errors.TransportError as error:
            raise ModelError("network", f"no token for Vertex AI could be fetched: {error}") from error
        except (errors.GoogleAuthError, OSError, ValueError) as error:
            advice = f"run `gcloud auth application-default login`, or set {TOKEN}"
            raise ModelError("auth", f"there is no token for Vertex AI: {error}; {advice}") from error
        payer = str(getattr(self._credentials, "quota_project_id", None) or "")
        return Grant(Secret(self._credentials.token), self._project, payer)


def find_tokens(env: Mapping[str, str]) -> Tokens:
    if token := Secret(env.get(TOKEN, "")):
        return GivenToken(token)
    if command := env.get(COMMAND, "").strip():
        return CommandTokens(command, env)
    with suppress(ImportError):
        if all(importlib.util.find_spec(name) for name in ("google.auth", "requests")):
            return GoogleTokens()
    raise ConfigError(
        f"vertex needs a token: install the extra `vertex` (google-auth), or set {TOKEN} or {COMMAND}, "
        "for instance to `gcloud auth print-access-token`"
    )


VERSION = "v1beta1"
EVERYWHERE = "global"
MULTI_REGIONS = ("us", "eu")


class Vertex(Gemini):
    """One model of a project. Its name may say whose it is (`meta/llama…`) or be an endpoint (`endpoints/…`)."""

    def _resource(self, name: str) -> str:
        if name.startswith(("publishers/", "endpoints/", "models/")):
            return name
        publisher, slash, model = name.partition("/")
        return f"publishers/{publisher}/models/{model}" if slash else f"publishers/google/models/{name}"


class VertexEndpoint:
    def __init__(self, tokens: Tokens, *, project: str = "", location: str = EVERYWHERE, base_url: str = "") -> None:
        self._tokens = tokens
        self._project = project
        self._location = location
        self._base_url = base_url.rstrip("/") or address_of(location)

    def __repr__(self) -> str:
        return repr(self._base_url)

    async def access(self, request: ModelRequest) -> Access:
        grant = await self._tokens.get()
        project = self._project or grant.project
        if not project:
            raise ModelError("auth", "Vertex AI needs a project: set GOOGLE_CLOUD_PROJECT")
        url = f"{self._base_url}/{VERSION}/projects/{project}/locations/{self._location}"
        return Access(url, grant.token, {"x-goog-user-project": grant.payer} if grant.payer else {})

    def refused(self, access: Access, error: ModelError) -> bool:
        """A token may be revoked, or a machine may have slept past its end."""
        return error.status == 401 and self._tokens.forget(access.key)


def address_of(location: str) -> str:
    if location in MULTI_REGIONS:
        return f"https://aiplatform.{location}.rep.googleapis.com"
    return f"https://{'' if location == EVERYWHERE else f'{location}-'}aiplatform.googleapis.com"


def make_endpoint(context: ProviderContext) -> VertexEndpoint:
    """ConfigError when there is no way to a token, or no project to use it in."""
    tokens = find_tokens(context.env)
    project = context.env.get("GOOGLE_CLOUD_PROJECT", "").strip()
    if not project and not tokens.knows_project:
        raise ConfigError("vertex needs a project: set GOOGLE_CLOUD_PROJECT")
    location = context.env.get("GOOGLE_CLOUD_LOCATION", "").strip() or EVERYWHERE
    base_url = context.address("GOOGLE_VERTEX_BASE_URL")
    return VertexEndpoint(tokens, project=project, location=location, base_url=base_url)


def connect(name: str, context: ProviderContext) -> Vertex:
    return Vertex(context.catalogue.look_up("vertex", name), endpoint=context.shared(make_endpoint), http=context.http)
