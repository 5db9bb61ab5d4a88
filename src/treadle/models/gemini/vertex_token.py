"""Tokens for Google Cloud: from the environment, from a command, or from the credentials that `google-auth` finds. They
are kept in memory only, and fetched again when they end or are refused (M-11, M-13)."""

import asyncio
import importlib
import importlib.util
import shlex
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from treadle.errors import ConfigError, ModelError
from treadle.models.keys import Secret
from treadle.subprocesses import run_program

TOKEN = "GOOGLE_ACCESS_TOKEN"
COMMAND = "GOOGLE_ACCESS_TOKEN_COMMAND"
SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
COMMAND_S = 30.0


class Grant(NamedTuple):
    """What opens the door for now."""

    token: Secret
    project: str = ""
    payer: str = ""
    """The project that is charged, if it is another one."""


class Tokens(Protocol):
    knows_project: bool

    async def get(self) -> Grant:
        """ModelError when none can be had."""
        ...

    def forget(self, token: Secret) -> bool:
        """Told that a token was refused; whether another one may be had."""
        ...


class GivenToken:
    """One token for good."""

    knows_project = False

    def __init__(self, token: Secret) -> None:
        self._grant = Grant(token)

    async def get(self) -> Grant:
        return self._grant

    def forget(self, token: Secret) -> bool:
        return False


class CommandTokens:
    """A program that prints a token, such as `gcloud auth print-access-token`. It is asked again when its token was
    refused."""

    knows_project = False

    def __init__(self, command: str, env: Mapping[str, str]) -> None:
        try:
            self._command = shlex.split(command)
        except ValueError as error:
            raise ConfigError(f"{COMMAND} is no command line: {error}") from error
        self._env = env
        self._grant: Grant | None = None
        self._one_at_a_time = asyncio.Lock()

    async def get(self) -> Grant:
        async with self._one_at_a_time:
            if self._grant is None:
                self._grant = Grant(await self._ask())
            return self._grant

    def forget(self, token: Secret) -> bool:
        if self._grant is not None and self._grant.token is token:
            self._grant = None  # otherwise someone else has fetched another one already
        return True

    async def _ask(self) -> Secret:
        try:
            ran = await run_program(self._command, cwd=".", env=self._env, timeout_s=COMMAND_S)
        except OSError as error:
            raise self._failed(f"cannot be run: {error.strerror or error}") from error
        if ran.ending == "timed_out":
            raise self._failed(f"printed nothing within {COMMAND_S:g} seconds")
        token = Secret(ran.output)
        if ran.code or not token:
            raise self._failed(f"printed no token and ended with {ran.code}")
        return token

    def _failed(self, why: str) -> ModelError:
        return ModelError("auth", f"the command in {COMMAND} ({self._command[0]}) {why}")


class GoogleTokens:
    """The credentials of this machine: a service account, a person's login, or those of the cloud it runs in. The
    library blocks while it asks for a token, so it works in a thread."""

    knows_project = True

    def __init__(self) -> None:
        self._credentials: Any = None
        self._project = ""
        self._grant: Grant | None = None
        self._one_at_a_time = asyncio.Lock()

    async def get(self) -> Grant:
        async with self._one_at_a_time:
            if self._grant is None or not self._credentials.valid:
                self._grant = await asyncio.to_thread(self._fetch)
            return self._grant

    def forget(self, token: Secret) -> bool:
        if self._grant is not None and self._grant.token is token:
            self._grant = None
        return True

    def _fetch(self) -> Grant:
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
    if not _installed():
        raise ConfigError(
            f"vertex needs a token: install the extra `vertex` (google-auth), or set {TOKEN} or {COMMAND}, "
            "for instance to `gcloud auth print-access-token`"
        )
    return GoogleTokens()


def _installed() -> bool:
    try:
        return all(importlib.util.find_spec(name) for name in ("google.auth", "requests"))
    except ImportError:
        return False
