"""Vertex AI (M-03): the Gemini protocol at the endpoint of a Google Cloud project. Tokens come from the environment,
from a command, or from the credentials that `google-auth` finds; they are kept in memory only, and fetched again when
they end or are refused (M-11, M-13)."""

import asyncio
import importlib
import importlib.util
import shlex
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from treadle.adapters.models.gemini.adapter import Gemini
from treadle.adapters.models.keys import Secret
from treadle.adapters.models.provider_context import ProviderContext
from treadle.adapters.models.wire.http import Access, hide_credentials
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
    credentials: Any = None  # of google-auth, which know when the token ends


class TokenSource(NamedTuple):
    fetch: Callable[[], Awaitable[Grant]]
    is_fixed: bool = False  # True if there is never another token
    knows_project: bool = False


def make_fixed_tokens(token: Secret) -> TokenSource:
    async def fetch() -> Grant:
        return Grant(token)

    return TokenSource(fetch, is_fixed=True)


def make_command_tokens(line: str, env: Mapping[str, str]) -> TokenSource:
    """A program that prints a token, such as `gcloud auth print-access-token`."""
    try:
        argv = shlex.split(line)
    except ValueError as error:
        raise ConfigError(f"{COMMAND} is no command line: {error}") from error

    async def fetch() -> Grant:
        command = f"the command in {COMMAND} ({argv[0]})"
        try:
            result = await run_program(argv, cwd=".", env=env, timeout_s=COMMAND_S)
        except OSError as error:
            raise ModelError("auth", f"{command} cannot be run: {error.strerror or error}") from error
        if result.ending == "timed_out":
            raise ModelError("auth", f"{command} printed nothing within {COMMAND_S:g} seconds")
        if result.code or not (token := Secret(result.output)):
            raise ModelError("auth", f"{command} printed no token and ended with {result.code}")
        return Grant(token)

    return TokenSource(fetch)


def make_google_tokens() -> TokenSource:
    """The credentials of this machine: a service account, a person's login, or those of the cloud it runs in. The
    library blocks while it asks for a token, so it works in a thread."""
    credentials: Any = None
    project = ""

    def refresh() -> Grant:
        nonlocal credentials, project
        auth: Any = importlib.import_module("google.auth")
        errors: Any = importlib.import_module("google.auth.exceptions")
        transport: Any = importlib.import_module("google.auth.transport.requests")
        try:
            if credentials is None:
                credentials, own_project = auth.default(scopes=SCOPES)
                project = str(own_project or "")
            credentials.refresh(transport.Request())
        except errors.TransportError as error:
            raise ModelError("network", f"no token for Vertex AI could be fetched: {error}") from error
        except (errors.GoogleAuthError, OSError, ValueError) as error:
            advice = f"run `gcloud auth application-default login`, or set {TOKEN}"
            raise ModelError("auth", f"there is no token for Vertex AI: {error}; {advice}") from error
        payer = str(getattr(credentials, "quota_project_id", None) or "")
        return Grant(Secret(credentials.token), project, payer, credentials)

    return TokenSource(lambda: asyncio.to_thread(refresh), knows_project=True)


def find_tokens(env: Mapping[str, str]) -> TokenSource:
    if token := Secret(env.get(TOKEN, "")):
        return make_fixed_tokens(token)
    if line := env.get(COMMAND, "").strip():
        return make_command_tokens(line, env)
    with suppress(ImportError):
        if all(importlib.util.find_spec(name) for name in ("google.auth", "requests")):
            return make_google_tokens()
    raise ConfigError(
        f"vertex needs a token: install the extra `vertex` (google-auth), or set {TOKEN} or {COMMAND}, "
        "for instance to `gcloud auth print-access-token`"
    )


VERSION = "v1beta1"
GLOBAL = "global"
MULTI_REGIONS = ("us", "eu")


class Vertex(Gemini):
    """One model of a project. Its name may say whose it is (`meta/llama…`) or be an endpoint (`endpoints/…`)."""

    def _format_resource(self, name: str) -> str:
        if name.startswith(("publishers/", "endpoints/", "models/")):
            return name
        publisher, slash, model = name.partition("/")
        return f"publishers/{publisher}/models/{model}" if slash else f"publishers/google/models/{name}"


class VertexEndpoint:
    def __init__(self, source: TokenSource, *, project: str = "", location: str = GLOBAL, base_url: str = "") -> None:
        self._source, self._project, self._location = source, project, location
        self._grant: Grant | None = None
        self._fetching = asyncio.Lock()
        self._base_url = base_url.rstrip("/") or build_address(location)

    def __repr__(self) -> str:
        return repr(hide_credentials(self._base_url))

    async def prepare_access(self, request: ModelRequest) -> Access:
        async with self._fetching:
            grant = self._grant
            if grant is None or (grant.credentials is not None and not grant.credentials.valid):
                grant = self._grant = await self._source.fetch()
        project = self._project or grant.project
        if not project:
            raise ModelError("auth", "Vertex AI needs a project: set GOOGLE_CLOUD_PROJECT")
        url = f"{self._base_url}/{VERSION}/projects/{project}/locations/{self._location}"
        return Access(url, grant.token, {"x-goog-user-project": grant.payer} if grant.payer else {})

    def report_refusal(self, access: Access, error: ModelError) -> bool:
        """A token may be revoked, or a machine may have slept past its end."""
        if error.status != 401 or self._source.is_fixed:
            return False
        if self._grant is not None and self._grant.token is access.key:
            self._grant = None  # otherwise someone else has fetched another one already
        return True


def build_address(location: str) -> str:
    if location in MULTI_REGIONS:
        return f"https://aiplatform.{location}.rep.googleapis.com"
    return f"https://{'' if location == GLOBAL else f'{location}-'}aiplatform.googleapis.com"


def make_endpoint(context: ProviderContext) -> VertexEndpoint:
    """ConfigError when there is no way to a token, or no project to use it in."""
    source = find_tokens(context.env)
    project = context.env.get("GOOGLE_CLOUD_PROJECT", "").strip()
    if not project and not source.knows_project:
        raise ConfigError("vertex needs a project: set GOOGLE_CLOUD_PROJECT")
    location = context.env.get("GOOGLE_CLOUD_LOCATION", "").strip() or GLOBAL
    base_url = context.find_address("GOOGLE_VERTEX_BASE_URL")
    return VertexEndpoint(source, project=project, location=location, base_url=base_url)


def connect(name: str, context: ProviderContext) -> Vertex:
    return Vertex(context.catalogue.look_up("vertex", name), endpoint=context.share(make_endpoint), http=context.http)
