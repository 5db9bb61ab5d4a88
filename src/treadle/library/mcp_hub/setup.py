"""The setup of an agent's MCP servers: their declarations, from the user's file and from projects whose files are
trusted; their environment and sandbox; their stored data in Treadle's home. The only module that knows both the servers
and the packages that they need."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from treadle.adapters.mcp.listing import Listing
from treadle.adapters.mcp.tool import ResultHandling
from treadle.adapters.policy.trust import MAX_BYTES, read
from treadle.adapters.tools.builtin.base import ToolContext
from treadle.adapters.tools.builtin.command.network import make_network, make_proxy_variables
from treadle.adapters.tools.builtin.command.shell import build_command_environment
from treadle.base.file_system import is_below
from treadle.base.home_file import HomeFile
from treadle.base.host_patterns import make_choice
from treadle.base.inert import make_inert_line
from treadle.errors import ConfigError, InvalidInput, SandboxError
from treadle.library.mcp_hub import settings
from treadle.library.mcp_hub.hub import ListingsFile, McpHub, Place
from treadle.library.mcp_hub.offerings import Offerings
from treadle.library.mcp_hub.settings import Declared, OAuthClient, Server, ServersFile
from treadle.ports.sandbox import Confinement, Direct, Unwritable, WorldMount

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

    from treadle.adapters.mcp.connection import McpConnection
    from treadle.adapters.mcp.transport import Errors
    from treadle.base.loopback_redirect import RedirectReceiver

LISTINGS_NAME = "mcp-tools.json"
TOKENS_NAME = "mcp-tokens.json"
NETWORK_LOG = "mcp-network.jsonl"  # hosts that confined servers reached, and those refused to them


class _TokensFile(msgspec.Struct, frozen=True):
    servers: dict[str, dict[str, Any]] = {}


class KeptTokens:
    """Implements `treadle.adapters.mcp.transport.Storage`, for one server, by its address."""

    def __init__(self, home: Path, url: str) -> None:
        self._file = HomeFile(home / TOKENS_NAME, _TokensFile)
        self._url = url

    def get(self, name: str) -> Mapping[str, Any] | None:
        stored_value = self._file.read().servers.get(self._url, {}).get(name)
        return stored_value if isinstance(stored_value, dict) else None

    def put(self, name: str, value: Mapping[str, Any]) -> None:
        self._change(lambda entries: {**entries, name: dict(value)})

    def begin_sign_in(self, redirect: str) -> None:
        """Forget all but the scopes that a refused call wants."""
        back = {"back": {"url": redirect}}
        self._change(lambda entries: {name: value for name, value in entries.items() if name == "wanted"} | back)

    def _change(self, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        url = self._url
        self._file.change(lambda book: _TokensFile({**book.servers, url: change(book.servers.get(url, {}))}))


class Declarations:
    """The user's own file in Treadle's home, for everything that reads or changes it."""

    def __init__(self, home: Path) -> None:
        self.file = HomeFile(home / settings.FILE_NAME, ServersFile)

    def read_servers(self) -> dict[str, Server]:
        return self.file.read().mcpServers

    def add(self, name: str, server: Server) -> None:
        settings.check_server(name, server)
        self.file.change(lambda book: ServersFile({**book.mcpServers, name: server}))

    def remove(self, name: str) -> None:
        self.file.change(lambda book: ServersFile({n: s for n, s in book.mcpServers.items() if n != name}))


class McpServers(Offerings):
    """The MCP servers of an agent: those of the program; with `configured` also the user's and trusted projects'."""

    def __init__(
        self,
        home: Path,
        context: ToolContext,
        trusted: Callable[[str, bytes], bool],
        servers: Mapping[str, Server | Mapping[str, Any]],
        *,
        configured: bool,
    ) -> None:
        self._home, self._context, self._trusted, self._configured = home, context, trusted, configured
        self._given: dict[str, dict[str, Server]] = {"": {}}
        self._brought: dict[str, dict[str, Server]] = {}
        self._alone: set[str] = set()
        self._declarations = Declarations(home)
        for name, server in servers.items():
            self.add(name, server)
        self.keeping = ResultHandling(context.blobs, context.redact)
        self.hub = McpHub(self.list_declared, self._connect, self.keeping, HomeFile(home / LISTINGS_NAME, ListingsFile))
        super().__init__(self.hub)

    def add(self, name: str, server: Server | Mapping[str, Any], root: str = "") -> None:
        """Use one more server as long as this agent lives: in every project, or in one. Nothing is written."""
        new_server = settings.parse_server(server)
        settings.check_server(name, new_server)
        self._given.setdefault(root, {})[name] = new_server

    def bring(
        self, own_servers: str, servers: Mapping[str, Server | Mapping[str, Any]], *, alone: bool = False
    ) -> None:
        """Use exactly these servers for chats that name them (`ChatOptions.own_servers`), as long as this agent lives;
        `alone`: instead of the user's and the project's. Nothing is written. InvalidInput, and nothing is changed, if
        one cannot be."""
        new_servers = {name: settings.parse_server(server) for name, server in servers.items()}
        for name, server in new_servers.items():
            settings.check_server(name, server)
        self._brought[own_servers] = new_servers
        (self._alone.add if alone else self._alone.discard)(own_servers)

    async def take_away(self, own_servers: str) -> None:
        self._brought.pop(own_servers, None)
        self._alone.discard(own_servers)
        await self.hub.leave(own_servers)

    def list_declared(self, root: str, own_servers: str = "") -> tuple[list[Declared], list[str]]:
        """The servers for this root: the program's before the user's before the project's, if trusted (S-09)."""
        warnings: list[str] = []
        by_name: dict[str, Declared] = {}
        if self._configured and own_servers not in self._alone:
            for declared in self._read_project_servers(root, warnings) if root else ():
                by_name.setdefault(declared.name, declared)
            users: dict[str, Server] = {}
            try:
                users = self._declarations.read_servers()
            except ConfigError as error:
                warnings.append(f"The user's MCP servers cannot be used: {error}")
            path = str(self._declarations.file.path)
            by_name |= {name: Declared(name, server, path) for name, server in users.items()}
        if own_servers and own_servers not in self._brought:
            warnings.append("The MCP servers that a program brought for this chat are not here; it must bring them.")
        for given in (self._given[""], self._given.get(root, {}), self._brought.get(own_servers, {})):
            by_name |= {name: Declared(name, server) for name, server in given.items()}
        return sorted(by_name.values(), key=lambda each: each.name), warnings

    def _read_project_servers(self, root: str, warnings: list[str]) -> Sequence[Declared]:
        declarations: list[Declared] = []
        for name in settings.PROJECT_FILES:
            path = os.path.join(root, name)
            if (data := _read_contents(path)) is None:
                continue
            if not self._trusted(path, data):
                warnings.append(f"{name} of this project declares MCP servers and is not trusted: treadle trust {name}")
                continue
            try:
                servers = settings.read_project(data, path, root)
            except ConfigError as error:
                warnings.append(f"The MCP servers of this project cannot be used: {error}")
                continue
            for declared in servers:
                if untrusted := self._find_untrusted_files(declared):
                    file = make_inert_line(os.path.relpath(untrusted[0], os.path.realpath(root)))
                    problem = f"runs {file}, which is not trusted as it is now: treadle trust {file}"
                    warnings.append(f"The MCP server {declared.name} of this project {problem}")
                else:
                    declarations.append(declared)
        return declarations

    def _find_untrusted_files(self, declared: Declared) -> list[str]:
        files = settings.find_executed_files(declared.server, declared.root, self._context.env)
        contents = ((path, _read_contents(path, settings.MOST_BYTES)) for path in files)
        return [path for path, data in contents if data is None or not self._trusted(path, data)]

    async def login(self, name: str, show: "Callable[[str], Awaitable[None]]", root: str = "") -> bool:
        """Sign in to a server in a browser; `show` gets the address. Return True if the server asked for a sign-in."""
        from treadle.adapters.mcp.connection import McpConnection
        from treadle.adapters.mcp.transport import LOGIN_S
        from treadle.base.loopback_redirect import RedirectReceiver

        declared = (await self.hub.get_link(name, root)).declared
        if not declared.server.url:
            raise InvalidInput(f"{name} is a program on this machine; there is nothing to sign in to")
        storage, receiver = KeptTokens(self._home, declared.server.url), RedirectReceiver(show)
        await receiver.open(declared.server.oauth.callback_port if declared.server.oauth is not None else 0)
        storage.begin_sign_in(receiver.url)
        opens = partial(self.open_transport, declared, Place(root), receiver=receiver)
        connection = McpConnection(name, root, opens, LOGIN_S)
        try:
            await connection.ensure_client()
        finally:
            await connection.close()
            await receiver.close()
        return storage.get("tokens") is not None

    # -- the way to a server ------------------------------------------------------------------------------------------
    def _connect(self, declared: Declared, place: Place, listed: Callable[[Listing], None]) -> "McpConnection":
        from treadle.adapters.mcp.connection import McpConnection

        server, opens = declared.server, partial(self.open_transport, declared, place)
        return McpConnection(declared.name, place.root, opens, server.start_s, listed=listed, sampling=server.sampling)

    @asynccontextmanager
    async def open_transport(
        self,
        declared: Declared,
        place: Place,
        errors: "Errors",
        end_event: asyncio.Event,
        receiver: "RedirectReceiver | None" = None,
    ) -> "AsyncIterator[TransportStreams]":
        from treadle.adapters.mcp import transport

        server, env, root = declared.server, self._context.env, place.root
        if server.command:
            if declared.root and any(await asyncio.to_thread(self._find_untrusted_files, declared)):
                raise ConfigError(f"a file that {declared.name} runs was changed since it was trusted")
            argv = [settings.expand_variables(word, env) for word in (server.command, *server.args)]
            server_env = {name: settings.expand_variables(value, env) for name, value in server.env.items()}
            cwd = settings.expand_variables(server.cwd, env) or root or env.get("HOME") or "/"
            if declared.confined or place.world:
                argv = await asyncio.to_thread(self._wrap_command, argv, declared, place, cwd)
            environment = build_command_environment(env, self._context.allowance.env) | server_env
            if declared.confined and server.hosts:
                environment |= make_proxy_variables()
            async with transport.open_program(argv, environment, cwd, errors, end_event) as streams:
                yield streams
            return
        storage = KeptTokens(self._home, server.url)
        auth = None
        if receiver is not None or storage.get("tokens") is not None:
            oauth = server.oauth or OAuthClient()
            scopes = f"{server.scope} {(storage.get('wanted') or {}).get('scope', '')}".split()
            secret, scope = settings.expand_variables(oauth.client_secret, env), " ".join(dict.fromkeys(scopes))
            client = transport.ClientCredentials(oauth.client_id, secret, scope)
            auth = transport.SignIn(declared.name, server.url, client, storage, receiver)
        headers = {name: settings.expand_variables(value, env) for name, value in server.headers.items()}
        opens = transport.open_legacy_sse if server.is_legacy_sse else transport.open_http
        async with opens(declared.name, server.url, headers, auth) as streams:
            yield streams

    def _wrap_command(self, argv: list[str], declared: Declared, place: Place, cwd: str) -> list[str]:
        world = self._context.workspace_of(place.root, "", place.world).world if place.world else None
        if declared.confined:
            return self._confine(argv, declared.server, place.root or cwd, cwd, world)
        assert self._context.sandbox_of is not None
        return self._context.sandbox_of("none").wrap(argv, Confinement(place.root, world=world), cwd)

    def _confine(self, argv: list[str], server: Server, root: str, cwd: str, world: WorldMount | None) -> list[str]:
        advice = "declare it yourself with `sandbox: false` if you trust it"
        if self._context.sandbox_of is None or (sandbox := self._context.sandbox_of("auto")).level == "none":
            raise SandboxError(f"it runs only in a sandbox, and none works here; {advice}")
        guarded = self._context.guarded(root)
        program = shutil.which(argv[0], path=self._context.env.get("PATH")) or argv[0]
        home = guarded.home
        visible = () if home is None else (root, *home.visible, *home.caches)
        is_covered = home is not None and any(is_below(program, covered) for covered in home.covered)
        if is_covered and not any(is_below(program, folder) for folder in visible):
            problem = f"{program} lies in a home, which a confined program does not see"
            raise SandboxError(f"{problem}; name its folder in the setting visible_paths, or {advice}")
        access = Direct() if server.write else Unwritable(live=True)
        choice = make_choice(server.hosts) if server.hosts else server.network
        network = make_network(choice, str(self._home / NETWORK_LOG))
        hidden_paths = guarded.hidden_paths
        confinement = Confinement(
            root, access, network, protected=guarded.protected, hidden_paths=hidden_paths, home=home, world=world
        )
        return sandbox.wrap([program, *argv[1:]], confinement, cwd)


def _read_contents(path: str, most: int = MAX_BYTES) -> bytes | None:
    """Of a file of a project; None if there is none that may be read."""
    try:
        return read(path, most) if os.path.lexists(path) else None
    except InvalidInput:
        return None
