"""Any program as a model (M-06): a prompt in, text out. `command:NAME` runs the line in TREADLE_COMMAND_NAME,
`command:PROGRAM ARGUMENTS` that program, `gh:openai/gpt-4.1` the `gh` program with a key of its own. It calls no tools
by itself (M-07)."""

import codecs
import errno
import fnmatch
import os
import re
import shlex
import shutil
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, assert_never
from weakref import WeakSet

from treadle.adapters.models.base import ModelBase
from treadle.adapters.models.keys import Secret
from treadle.adapters.models.provider_context import ProviderContext
from treadle.adapters.models.wire.encoder import NO_PICTURES, resolve_pictures
from treadle.adapters.models.wire.failures import classify
from treadle.base.file_system import reach_faultpoint
from treadle.base.subprocesses import Completed, Program
from treadle.base.types import CallKey
from treadle.errors import ConfigError, ModelError, ModelErrorKind
from treadle.ports.model import Memo, ModelInfo, ModelRequest
from treadle.protocol.content import AssistantEntry, Entry, ResultsEntry, UserEntry
from treadle.protocol.deltas import Delta, FinishDelta, TextDelta

_HOW = (
    "What follows is a conversation between a user and an assistant. You are the assistant: write its next message, "
    "and nothing else."
)
_USER = "### User"
_ASSISTANT = "### Assistant"
_RESULTS = "### Results"


def flatten(request: ModelRequest) -> bytes:
    """The prompt, in UTF-8. It ends where the answer is to begin."""
    head = "\n\n".join(filter(None, (request.system.strip(), _HOW))).encode("utf-8", "replace")
    return b"\n\n".join((head, *request.memo.encode_pieces(request.entries, Conversation), f"{_ASSISTANT}\n".encode()))


class Conversation:
    def __init__(self) -> None:
        self._names: Mapping[CallKey, str] = {}

    def __call__(self, entry: Entry) -> bytes:
        return "\n".join(self._format_lines(entry)).encode("utf-8", "replace")

    def _format_lines(self, entry: Entry) -> Iterator[str]:
        match entry:
            case UserEntry():
                yield _USER
                yield resolve_pictures(entry, NO_PICTURES)[0]
            case AssistantEntry(text=text, calls=calls):
                self._names = {call.call: call.name for call in calls}
                yield _ASSISTANT
                if text:
                    yield text
                for call in calls:
                    yield f"[calls {call.name} with {call.arguments}]"
            case ResultsEntry(results=results):
                yield _RESULTS
                for result in results:
                    yield f"[{self._names.get(result.call) or 'a call'} {'gave' if result.success else 'failed'}]"
                    yield result.text
            case _ as never:
                assert_never(never)


PLACE = "{prompt}"  # where the prompt goes in the arguments; without it, the program reads it from standard input
LINE_VARIABLE = "TREADLE_COMMAND_"
PASS_VARIABLE = "TREADLE_PROGRAM_VARIABLES"  # names, or patterns of names, that programs get beside the usual ones
ARGUMENT_CAP = 128 * 1024 - 1  # the most that Linux takes as one argument

_USUAL = (  # the variables that every program may need: for file locations, the user's language and the network
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR", "TMP", "TEMP", "XDG_*"),
    *("DBUS_SESSION_BUS_ADDRESS", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"),
)
_QUIET = {"TERM": "dumb", "NO_COLOR": "1"}  # settings for plain output, because the output is parsed

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_TOO_LONG = re.compile(r"too large|tokens_limit_reached|\b413\b", re.I)
_TOO_OFTEN = re.compile(r"\b429\b", re.I)
_PASSING = re.compile(
    r"\b50[0234]\b|\b529\b|time(d )?-?out|temporar|overloaded|unavailable|try again|connection|network", re.I
)
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASS", re.I)
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_SHOWN_LINES = 3
OUTPUT_CAP = 4 * 1024 * 1024
"""How many characters an answer may have. No model writes so much at once; a program that does may never end."""
_HELD_CAP = 1_000


class CommandLineModel(ModelBase):
    """One program. `argv` is what is run, and `env` all of the environment that it gets."""

    def __init__(
        self, info: ModelInfo, argv: Sequence[str], env: Mapping[str, str], *, hints: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(info)
        self._argv = tuple(argv)
        self._env = dict(env)
        self._hints = hints or {}  # advice about a failure, by words in its message
        self._secrets = [Secret(value) for name, value in env.items() if _SECRET.search(name)]
        self._told: WeakSet[Memo] = WeakSet()  # the conversations in which the notice about missing tools was given

    async def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        program = self._make_program(flatten(request))
        reader = _OutputReader()
        reach_faultpoint("models.request")
        try:
            async with aclosing(program.stream_output()) as output:
                async for data in output:
                    if text := reader.feed(data):
                        yield [*self._make_notices(request), TextDelta(text)]
                    if reader.length > OUTPUT_CAP:
                        break
        except OSError as error:
            kind: ModelErrorKind = "bad_request"
            message = f"{self._argv[0]} cannot be started: {error.strerror or error}"
            if error.errno == errno.E2BIG:
                kind = "context_limit"
                message = f"the conversation is longer than the arguments of {self._info.ref} may be"
            raise ModelError(kind, message) from error
        reach_faultpoint("models.streamed")
        if reader.length > OUTPUT_CAP:
            yield [FinishDelta("length")]
            return
        tail = reader.feed(b"", final=True)
        if program.ended.code or not reader.begun:
            raise self._make_error(program.ended)
        yield [*([TextDelta(tail)] if tail else []), FinishDelta("stop")]

    def _make_notices(self, request: ModelRequest) -> list[Delta]:
        """Return the notices for the first output of a conversation. A program that fails gives none."""
        _, notices = self._fit_effort(request)
        if not request.tools or request.rung == "plain" or request.memo in self._told:
            return [*notices]
        self._told.add(request.memo)
        return [*notices, self._make_notice("no_tools", "cannot call tools: it answers in words only")]

    def _make_program(self, prompt: bytes) -> Program:
        if not any(PLACE in argument for argument in self._argv):
            return Program(self._argv, self._env, prompt)
        if len(prompt) > ARGUMENT_CAP:
            raise ModelError(
                "context_limit",
                f"the conversation has {len(prompt):,} bytes, more than fit an argument of {self._info.ref}; a program "
                f"that reads its standard input takes more: leave {PLACE} out",
            )
        text = prompt.decode().replace("\0", "")
        return Program([argument.replace(PLACE, text) for argument in self._argv], self._env, b"")

    def _make_error(self, completed: Completed) -> ModelError:
        complaint = _ESCAPES.sub("", completed.errors)
        for secret in self._secrets:
            complaint = secret.redact(complaint)
        error_text = "; ".join([line.strip() for line in complaint.splitlines() if line.strip()][-_SHOWN_LINES:])
        hint = next((f". {hint}" for words, hint in self._hints.items() if words in complaint), "")
        description = f"ended with code {completed.code}" if completed.code else "said nothing"
        if completed.code < 0:
            description = f"was killed by signal {-completed.code}"
        message = f"{self._info.ref} {description}{f': {error_text}' if error_text else ''}{hint}"
        # An unknown message is assumed to be of a lasting failure.
        kind = classify(200, error_text)
        if _TOO_LONG.search(error_text):
            kind = "context_limit"
        elif _TOO_OFTEN.search(error_text):
            kind = "rate_limit"
        elif kind == "overloaded" and completed.code >= 0 and not _PASSING.search(error_text):
            kind = "bad_request"
        return ModelError(kind, message)


class _OutputReader:
    """Text from bytes that may be cut anywhere. White space at the end, which programs add, is no part of an answer:
    it is held back until more follows."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._held = ""
        self.begun = False
        self.length = 0

    def feed(self, data: bytes, *, final: bool = False) -> str:
        """At the end, the rest of a truncated character becomes a replacement character."""
        text = self._held + self._decode(data, final)
        if not self.begun:
            text = text.lstrip("\ufeff\r\n")
        stripped = text.rstrip()
        if len(text) - len(stripped) > _HELD_CAP:
            stripped = text
        self.length += len(stripped)
        self._held = text[len(stripped) :]
        self.begun = self.begun or bool(stripped)
        return stripped


def select_environment(env: Mapping[str, str], *needed: str) -> dict[str, str]:
    """The variables that every program needs, that this one needs, and that the user allows. So no key is passed by
    accident (M-13)."""
    patterns = (*_USUAL, *needed, *env.get(PASS_VARIABLE, "").replace(",", " ").split())
    names = [name for name in env if any(fnmatch.fnmatchcase(name, each) for each in patterns)]
    return {name: env[name] for name in names} | _QUIET


def _make_program_info(provider: str, name: str, **limits: int) -> ModelInfo:
    facts: dict[str, Any] = {"temperature": None, "native_tools": False, "efforts": (), "free": True, **limits}
    return ModelInfo(provider, name, **facts)


def find_program(name: str, env: Mapping[str, str]) -> str | None:
    """The absolute path of a program, because it runs in another folder than this process."""
    path = shutil.which(os.path.expanduser(name), path=env.get("PATH"))
    return os.path.abspath(path) if path else None


def connect(name: str, context: ProviderContext) -> CommandLineModel:
    variable = LINE_VARIABLE + name.upper().replace("-", "_")
    configured = context.env.get(variable, "").strip() if _NAME.fullmatch(name) else ""
    line = configured or name
    try:
        argv = shlex.split(line)
    except ValueError as error:
        raise ConfigError(f"{variable if configured else f'command:{name}'} is no command line: {error}") from error
    program = find_program(argv[0], context.env) if argv else None
    if program is None:
        instead = f", and {variable} is not set" if not configured and _NAME.fullmatch(name) else ""
        raise ConfigError(f"command:{name}: there is no program {argv[0] if argv else ''!r} on the PATH{instead}")
    info = _make_program_info("command", name)
    return CommandLineModel(context.catalogue.adjust(info), [program, *argv[1:]], select_environment(context.env))


GH_WINDOW = 8_000  # the input limit of GitHub for most models, regardless of the model's own window
_GH_INSTALL = "gh extension install github/gh-models"
_GH_NAME = re.compile(r"\w[\w./-]*")
_GH_HINTS = {
    'unknown command "models"': f"Get the extension with: {_GH_INSTALL}",
    "gh auth login": "Sign in with: gh auth login",
    "unauthorized": "Sign in with: gh auth login",
}


def connect_gh(name: str, context: ProviderContext) -> CommandLineModel:
    if not _GH_NAME.fullmatch(name):  # it becomes a word of a command line: `--org` would be an order to gh
        raise ConfigError(f"gh:{name} names no model of GitHub; write it as gh:publisher/name")
    program = find_program("gh", context.env)
    if program is None:
        raise ConfigError(f"gh:{name} needs the program gh: install it, then: gh auth login; {_GH_INSTALL}")
    info = _make_program_info("gh", name, window=GH_WINDOW, max_output=GH_WINDOW // 2)
    env = select_environment(context.env, "GH_*", "GITHUB_TOKEN", "GITHUB_ENTERPRISE_TOKEN")
    return CommandLineModel(context.catalogue.adjust(info), [program, "models", "run", name], env, hints=_GH_HINTS)
