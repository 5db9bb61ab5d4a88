"""Which MCP servers there are: how one is declared, in the user's own file and in a project's `.mcp.json`. Data and its
reading; starts nothing and loads no SDK."""

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from treadle.adapters.mcp.listing import Sampling
from treadle.base.file_system import is_below
from treadle.base.host_patterns import ALL
from treadle.base.host_patterns import check_pattern as check_host
from treadle.errors import ConfigError, InvalidInput, suggest_name

FILE_NAME = "mcp.json"  # In Treadle's home, for its owner alone
PROJECT_FILES = (".treadle/mcp.json", ".mcp.json")  # once trusted (S-09); of one name the first file's counts

MOST_BYTES = 64 << 20  # Of one file: servers are often one file that a bundler made
_STARTED = ("__main__.py", "index.js", "index.mjs", "index.cjs", "index.ts", "package.json")
"""The files that interpreters run when their argument is a folder."""
_LOOKED_FOR = {
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun", "npx", "deno"), ("package.json", "deno.json")),
    **dict.fromkeys(("make", "gmake"), ("Makefile", "makefile", "GNUmakefile")),
    **dict.fromkeys(("uv", "poetry", "pdm", "hatch"), ("pyproject.toml",)),
    "just": ("justfile", "Justfile"),
    "cargo": ("Cargo.toml", "build.rs"),
    "docker": ("Dockerfile", "compose.yaml", "docker-compose.yml"),
}  # by program: the files in its folder that say what it runs
_NAME = re.compile(r"(?!.*__)[a-zA-Z0-9][a-zA-Z0-9_-]{0,31}")
_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


class OAuthClient(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Treadle as a client that was registered by hand, for servers that do not register clients by themselves."""

    client_id: str = ""
    client_secret: str = ""  # `${NAME}` is filled in from the environment
    callback_port: int = 0  # Of the redirect http://127.0.0.1:PORT/callback; 0: any free port


class Server(msgspec.Struct, frozen=True, omit_defaults=True):
    """How one server is reached, and what is taken from it. The first fields are those of other programs, too."""

    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}  # beside a small environment; `${NAME}` and `${NAME:-default}` are filled in
    cwd: str = ""
    url: str = ""
    headers: dict[str, str] = {}
    type: Literal["", "stdio", "http", "streamable-http", "sse"] = ""
    disabled: bool = False
    tools: tuple[str, ...] | None = None  # Patterns of the tools that are offered; None: all
    accept_hints: bool = False  # trust its read-only and idempotent hints; never taken from a project
    timeout_s: float = 120.0  # How long one call may take
    start_s: float = 60.0  # How long the start may take; a first `npx` loads the program before
    sandbox: bool | None = None  # confined; None: if it is a project's. Never taken from a project
    write: bool = False  # True if a confined program may write in the project
    network: bool = True  # a confined program has it; never taken from a project, which has `hosts` only
    hosts: tuple[str, ...] = ()  # for a confined program, through a proxy; `network` does not count then
    scope: str = ""  # OAuth scopes that are asked for beside those that the server names
    oauth: OAuthClient | None = None  # The client to sign in as; None: Treadle registers itself there
    sampling: Sampling = "refuse"  # its requests to the chat's model; a project can set at most `ask`

    @property
    def place(self) -> str:
        return self.url or " ".join([self.command, *self.args])

    @property
    def is_legacy_sse(self) -> bool:
        """True for the transport HTTP+SSE; servers that speak it are at `/sse` by custom."""
        return self.type == "sse" or (not self.type and urlsplit(self.url).path.rstrip("/").endswith("/sse"))

    def accepts_tool(self, tool: str) -> bool:
        return self.tools is None or any(fnmatchcase(tool, pattern) for pattern in self.tools)


class Declared(msgspec.Struct, frozen=True):
    name: str
    server: Server
    source: str = ""  # The file that declares it; empty: the program that uses the library
    root: str = ""  # The project that declares it; empty: it is the user's, and there for every project

    @property
    def confined(self) -> bool:
        return bool(self.root) if self.server.sandbox is None else self.server.sandbox

    @property
    def mark(self) -> str:
        """A hash of the declaration; the key under which the server's listing is stored."""
        return hashlib.sha256(msgspec.json.encode([self.name, self.root, self.server], order="sorted")).hexdigest()[:32]


class ServersFile(msgspec.Struct, frozen=True):
    mcpServers: dict[str, Server] = {}


def check_server(name: str, server: Server) -> None:
    """InvalidInput for what no server can be."""
    if not _NAME.fullmatch(name):
        hint = "use 1 to 32 letters, digits, hyphens and single underscores."
        raise InvalidInput(f"{name[:80]!r} is no name for a server: {hint}")
    if bool(server.command) == bool(server.url):
        raise InvalidInput(f"the server {name!r} needs either a command or a URL")
    if server.url and not server.url.startswith(("http://", "https://")):
        raise InvalidInput(f"{server.url!r} is no address of a server; it begins with https:// or http://")
    if server.type == "sse" and not server.url:
        raise InvalidInput(f"the server {name!r} has the transport sse, which needs a URL")
    if server.oauth is not None and not server.oauth.client_id:
        raise InvalidInput(f"the client of the server {name!r} needs an id (oauth.clientId)")
    if server.oauth is not None and not 0 <= server.oauth.callback_port <= 65_535:
        raise InvalidInput(f"the callback port of the server {name!r} is no port")
    for host in (host for host in server.hosts if host != ALL):
        check_host(host)
    if server.timeout_s <= 0 or server.start_s <= 0:
        raise InvalidInput(f"the times of the server {name!r} must be more than 0")


def read_project(data: bytes, path: str, root: str) -> tuple[Declared, ...]:
    """The servers that a trusted file of a project declares. ConfigError if it cannot be read."""
    try:
        document = msgspec.json.decode(data)
        servers = document.get("mcpServers", document.get("servers", {})) if isinstance(document, dict) else {}
        servers_by_name = msgspec.convert(servers, dict[str, Server])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error
    declarations: list[Declared] = []
    for name, server in servers_by_name.items():
        try:
            check_server(name, server)
        except InvalidInput as error:
            raise ConfigError(f"{path}: {error}") from error
        asks: Sampling = "ask" if server.sampling == "allow" else server.sampling
        if ALL in server.hosts:
            raise ConfigError(f"{path}: the server {name!r} of a project reaches hosts that it names, not all of them")
        modest = msgspec.structs.replace(server, accept_hints=False, sampling=asks, network=False, sandbox=None)
        declarations.append(Declared(name, modest, path, root))
    return tuple(declarations)


def parse_server(declaration: "Server | Mapping[str, Any]") -> Server:
    """A server from what a program wrote. InvalidInput if it does not fit."""
    if isinstance(declaration, Server):
        return declaration
    if odd := [key for key in declaration if key not in Server.__struct_fields__]:
        raise InvalidInput(f"an MCP server has no {odd[0]!r}{suggest_name(odd[0], Server.__struct_fields__)}")
    try:
        return msgspec.convert(dict(declaration), Server)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"this is no MCP server: {error}") from error


def expand_variables(text: str, environment: Mapping[str, str]) -> str:
    """With the values of the variables that it names. ConfigError if one has none."""

    def replace_variable(match: re.Match[str]) -> str:
        name, default = match[1], match[2]
        if (set_ := environment.get(name)) is None and default is None:
            raise ConfigError(f"the variable {name} is not set, and an MCP server needs it")
        return set_ if set_ is not None else default

    return _VARIABLE.sub(replace_variable, text)


def find_executed_files(server: Server, root: str, environment: Mapping[str, str]) -> tuple[str, ...]:
    """The project's files that a server executes: those that it names, and those that the program looks for; absolute,
    without links. To trust a declaration is to trust them (E-01, S-09). Imports are not followed: the sandbox bounds
    the rest."""
    if not server.command:
        return ()
    try:
        words = [expand_variables(word, environment) for word in (server.command, *server.args)]
        cwd = expand_variables(server.cwd, environment)
    except ConfigError:  # it cannot be started either
        return ()
    real = os.path.realpath(root)
    folder = os.path.join(real, cwd)
    argument_paths = (path for number in range(len(words)) for path in _find_word_paths(words, number, folder))
    looked_for = (os.path.join(folder, name) for name in _LOOKED_FOR.get(os.path.basename(words[0]), ()))
    paths = (os.path.realpath(path) for path in (*argument_paths, *looked_for))
    return tuple(dict.fromkeys(path for path in paths if is_below(path, real) and os.path.isfile(path)))


def _find_word_paths(words: list[str], number: int, folder: str) -> Iterator[str]:
    word = words[number]
    if number and words[number - 1] == "-m":
        module = word.replace(".", "/")
        places = (f"{module}.py", f"{module}/__main__.py")
        yield from (os.path.join(folder, top, place) for top in ("", "src") for place in places)
        return
    path = os.path.join(folder, word.rpartition("=")[2] if word.startswith("-") else word)
    if "\0" in path or (not number and "/" not in word):  # a program of the search path
        return
    yield path
    if os.path.isdir(path):
        yield from (os.path.join(path, name) for name in _STARTED)
