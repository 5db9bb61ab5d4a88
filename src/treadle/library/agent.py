"""The library: an Agent holds a store, models and tools; a Chat is a handle to one conversation in it. This is where
everything is put together, and the only module that knows all adapters.

    async with Agent() as agent:
        chat = agent.chat(model="openai:gpt-4.1", root=".")
        async for event in chat.send("Why does the test fail?"):
            print(event.type, event.data)

A chat lives in the store, not in the object: `agent.chat("c_…")` in any process goes on with it."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack

import msgspec

from treadle.adapters.models.base import check_effort
from treadle.adapters.models.keys import read_stored_access
from treadle.adapters.models.providers import describe_recipient
from treadle.adapters.models.registry import ModelRegistry, OneModel
from treadle.adapters.policy.redaction import Redactor
from treadle.adapters.policy.rules import RuleBook, collect_rules
from treadle.adapters.policy.standard import StandardPolicy
from treadle.adapters.policy.trust import Consent, Trust, render_disclosure
from treadle.adapters.stores import as_store
from treadle.adapters.tools.builtin import make_builtin_tools
from treadle.adapters.tools.registry import Tools
from treadle.adapters.workspace.paths.resolve import identify
from treadle.base import host_patterns
from treadle.base.types import CallKey, ChatId, Clock, SystemClock, get_home, make_chat_id
from treadle.chat.fold import change_options
from treadle.engine.deps import Deps
from treadle.engine.effects import spill
from treadle.engine.hub import Hub
from treadle.engine.log import Log
from treadle.engine.restore import SnapshotRestorer
from treadle.engine.worker import Worker
from treadle.errors import ConfigError, InvalidInput, describe_unknown_names
from treadle.library import model_choice
from treadle.library.chat import Chat, Prepared
from treadle.library.commands import ChatHome
from treadle.library.jobs import Job, JobRegistry
from treadle.library.prompt import build_system_text, read_instructions
from treadle.library.titles import Titles
from treadle.library.tool_setup import ToolSetup, bind_root
from treadle.ports.commands import Allowance
from treadle.ports.hooks import Chain, Hooks
from treadle.ports.model import Model, Models
from treadle.ports.observer import Observer
from treadle.ports.policy import Policy
from treadle.ports.store import RENEW_S, ChatFilter, Listed, Store
from treadle.ports.toolset import Tool, ToolSource
from treadle.ports.workspace import Workspace
from treadle.protocol import options as o
from treadle.protocol.events import ModelNotice
from treadle.protocol.options import ChatOptions, Project
from treadle.protocol.permissions import Rule, check_standing
from treadle.protocol.views import ChildView

if TYPE_CHECKING:
    from treadle.adapters.telemetry.settings import Telemetry
    from treadle.library.mcp_hub.setup import McpServers
    from treadle.library.skills.documents import Documents
    from treadle.library.skills.reading import CustomAgent, OwnCommand
    from treadle.library.subagents.race import AgentSubagents, RunningRace
    from treadle.library.worlds.worlds import Worlds
    from treadle.protocol.http_answers import ModelView


class Agent:
    """Puts a store, models, tools and a policy together and drives chats with them.

    `store`: a Store, the path of an SQLite file, `postgresql://…`, or None for memory. `model`: one model for all
    chats, instead of `models`, which finds them by `provider:name`. `tools`: functions made with `@tool`, beside the
    built-in ones; with `plugins` also those of installed packages (entry point group `treadle.tools`).
    `options`: what chats have unless they say otherwise. `hooks`: what looks at every call before it runs and at every
    result, one or several. `instructions`: whether a new chat is given what the project says to agents (AGENTS.md).
    `skills`: whether it is given the user's skills and the project's trusted ones; `extensions`: folders beside the
    usual ones in which `skills`, `commands` and `agents` lie.
    `redact` takes secrets out of what is recorded; without it those of `env` and known kinds of keys go (S-11).
    `allowance`: what commands are given beside the built-in lists of variables and folders.
    `home` is where standing rules and consents are kept, by default Treadle's own home; `accepted` are providers of
    which the user knows that they get to see the project (S-10). `concurrency`: how many chats may be driven here at
    once; more are left pending, for others or for later. 0 is no limit. `relays`: whether live
    text is passed on to readers in other processes; so it is where the store is shared with other machines.
    `titles`: whether the model makes the title of a chat after its first run (`treadle.library.titles`).
    `mcp`: MCP servers by name, as in `{"git": {"command": "mcp-server-git"}}`; True: those of the user's own file and
    of projects whose files are trusted. `telemetry`: where traces and metrics go; True: where the variables
    of OpenTelemetry say."""

    def __init__(
        self,
        store: Store | Path | str | None = None,
        *,
        model: Model | None = None,
        models: Models | None = None,
        tools: Sequence[Tool] = (),
        builtin: bool = True,
        plugins: bool = False,
        policy: Policy | None = None,
        hooks: Hooks | Sequence[Hooks] = (),
        instructions: bool = True,
        skills: bool = True,
        extensions: Sequence[str] = (),
        redact: Callable[[str], str] | None = None,
        home: Path | str | None = None,
        accepted: Collection[str] = (),
        options: ChatOptions | None = None,
        clock: Clock | None = None,
        env: Mapping[str, str] | None = None,
        allowance: Allowance | None = None,
        retry_base_s: float = 2.0,
        retry_limit_s: float = 20.0,
        silence_s: float = 300.0,
        answer_s: float = 3_600.0,
        renew_s: float = RENEW_S,
        concurrency: int = 0,
        relays: bool = False,
        mcp: bool | Mapping[str, Any] = False,
        telemetry: "bool | Telemetry" = False,
        titles: o.TitleChoice = "off",
    ) -> None:
        self.options = self._prepared = options or ChatOptions()
        self.warnings: list[str] = []
        self._instructions, self._skills, self._extensions = instructions, skills, extensions
        self._env = os.environ if env is None else env
        self._home = self.home = Path(home) if home is not None else get_home(self._env)
        self.rules = RuleBook(self._home, clock)
        self.consent = Consent(self._home, accepted, self._find_recipient if model is None else lambda _: "")
        self._trust, self._standard = Trust(self._home), policy is None
        self._mcp_given = mcp
        self._mcp: McpServers | None = None
        opened_store, now = as_store(store), clock or SystemClock()
        shared = bool(getattr(opened_store, "shared", False))
        secrets = Redactor(self._env, read_stored_access(self._home).keys) if redact is None else redact
        observer = self._make_observer(telemetry, opened_store)
        self._setup = ToolSetup(opened_store, self._env, self._home, secrets, shared, allowance, self._collect_rules)
        self._tools = self._make_tools(tools, builtin=builtin, plugins=plugins)
        log = Log(opened_store, Hub(), now, secrets, relays=relays or shared, observer=observer)
        deps = Deps(
            *(opened_store, OneModel(model) if model is not None else models or self._make_registry(), self._tools),
            *(policy or StandardPolicy(self.rules, now.now_ms), log, now),
            *(lambda files: spill(files, opened_store), build_system_text), retry_base_s=retry_base_s,
            retry_limit_s=retry_limit_s, silence_s=silence_s, answer_s=answer_s, renew_s=renew_s, observer=observer,
            redact=secrets, redact_live=secrets.make_live_text if isinstance(secrets, Redactor) else lambda: secrets,
            shared=shared,
        )  # fmt: skip
        self.deps = self._connect_deps(deps, hooks if isinstance(hooks, Sequence) else [hooks])
        self.worker = Worker(self.deps, concurrency=concurrency)
        self.titles = Titles(self.deps, titles)
        self.job_registry = JobRegistry(self.deps, self._setup.context, self._setup.commands)
        self.chat_home = ChatHome(
            self.deps, self.worker, self.job_registry, lambda rule: self.rules.add(rule), self._check_permission_files,
            self.chat, self.delete_chat, self._list_children, self._list_views, self._claim_world,
        )  # fmt: skip

    def _make_observer(self, telemetry: "bool | Telemetry", store: Store) -> Observer:
        if telemetry is False:
            return Observer()
        from treadle.adapters.telemetry.watcher import make_observer

        return make_observer(telemetry, store, self.warnings.append)

    def _make_tools(self, tools: Sequence[Tool], *, builtin: bool, plugins: bool) -> Tools:
        if plugins:
            from treadle.adapters.tools.function import load_tools

            plugin_tools, warnings = load_tools()
            tools = [*tools, *plugin_tools]
            self.warnings += warnings
        context = msgspec.structs.replace(self._setup.context, subagents=lambda: self.subagents)
        return Tools(make_builtin_tools(context) if builtin else (), [*tools], self._find_mcp_source)

    def _connect_deps(self, deps: Deps, hooks: Sequence[Hooks]) -> Deps:
        project_hooks = self._setup.make_project_hooks(self._trust, self.warnings.append)
        return msgspec.structs.replace(
            deps,
            hooks=Chain([*self._setup.watch_hooks(hooks), *project_hooks]),
            tidy=self._tidy,
            on_chat_released=self._release_chat,
            restorer=SnapshotRestorer(deps.store, self._setup.snapshots_of),
            branch=self._setup.make_run_branch,
            bind=bind_root,
        )

    @property
    def _model_registry(self) -> ModelRegistry | None:
        """None if the agent was given one model for all chats, or models of its own kind."""
        return self.deps.models if isinstance(self.deps.models, ModelRegistry) else None

    async def choose_model(self) -> model_choice.ModelChoice | None:
        """The model for a chat that names none (U-10); None: there is nothing to choose from."""
        registry = self._model_registry
        return await model_choice.choose_model(registry, self._env, self._home) if registry is not None else None

    async def list_models(self) -> list[model_choice.OfferedModel]:
        """The models that front ends offer; empty if the agent was given one model for all chats."""
        registry = self._model_registry
        return await model_choice.list_models(registry, self._env) if registry is not None else []

    async def require_model(self, flag: str = "--model") -> model_choice.ModelChoice:
        """As `choose_model`; ConfigError names the choices. `flag`: the flag or setting that names a model."""
        if (choice := await self.choose_model()) is None:
            registry = self._model_registry
            keys = model_choice.find_providers_with_key(registry) if registry is not None else {}
            raise ConfigError(model_choice.describe_missing_model(keys, flag))
        return choice

    def remember_model(self, model: str) -> None:
        """The user works with this model now: a later chat that names none begins with it."""
        model_choice.LastModel(self._home).remember(model)

    def _find_recipient(self, ref: str) -> str:
        return describe_recipient(ref, {**read_stored_access(self._home).addresses, **self._env})

    def _collect_rules(self, root: str, options: ChatOptions) -> Sequence[Rule]:
        return collect_rules(self.rules, root, options, self.deps.clock.now_ms())

    def _make_registry(self) -> Models:
        registry = ModelRegistry(self._env, home=self._home)
        self.warnings += registry.catalogue.warnings
        return registry

    @property
    def mcp(self) -> "McpServers":
        """The MCP servers of this agent: their prompts and resources, and a way to add more."""
        if self._mcp is None:
            from treadle.library.mcp_hub.setup import McpServers  # most users have none

            servers = self._mcp_given if isinstance(self._mcp_given, Mapping) else {}
            configured = self._mcp_given is True
            context = self._setup.context
            self._mcp = McpServers(self._home, context, self._trust.is_trusted, servers, configured=configured)
        return self._mcp

    @cached_property
    def worlds(self) -> "Worlds":
        """Copy-on-write worlds of projects, in which chats work: see `treadle.library.worlds`."""
        from treadle.library.worlds.worlds import Worlds  # most users have none

        begin = lambda options: self.begin(make_chat_id(), options)  # noqa: E731 - it is given away
        return Worlds(self._setup.worlds, self.deps, self.options, begin, self.job_registry.has_jobs_in)

    @cached_property
    def subagents(self) -> "AgentSubagents":
        """Chats that calls of other chats begin; see `treadle.library.subagents`."""
        from treadle.library.subagents.race import AgentSubagents

        return AgentSubagents(self)

    def race(self, task: str, **race_options: Unpack[o.RaceKeywords]) -> "RunningRace":
        """Several attempts at one task at once, each in a world of its own; the best is committed (L-22). Await it for
        what came of it, or iterate over its rows as they change. `attempts`: how many, else one for each of `models`;
        `check`: a command that must succeed; `judge`: a model that chooses; `all`: none is stopped when one has
        passed. The other options are those of a chat."""
        from treadle.library.subagents.race import RunningRace, make_race

        race, options = make_race(task, race_options, self.options.model)
        return RunningRace(self, self.chat(**options), race)

    def workspace_of(self, project: Project) -> Workspace:
        """The files of a project, or of the world of it."""
        return self._setup.context.workspace_of(*project)

    def _find_mcp_source(self, options: ChatOptions) -> "ToolSource | None":
        servers = self.servers_of(options)
        return servers.hub if servers is not None else None

    def servers_of(self, options: ChatOptions) -> "McpServers | None":
        """None if there is no server to look for, which the names of files tell: then nothing is loaded."""
        has_servers = bool(self._mcp_given)
        if self._mcp_given is True:
            places = [f"{self._home}/mcp.json"]
            places += [f"{options.root}/{name}" for name in (".mcp.json", ".treadle/mcp.json") if options.root]
            has_servers = any(map(os.path.exists, places))
        return self.mcp if has_servers or self._mcp is not None else None

    async def _tidy(self, chat: ChatId, open_calls: Collection[CallKey]) -> None:
        await self._setup.sweep_temporary_folders()
        await self._setup.commands.tidy(chat, open_calls)
        if self._mcp is not None:
            await self._mcp.hub.tidy(chat, open_calls)
        if (state := self.deps.log.peek(chat)) is None or state.jobs:
            await self.job_registry.close_ended(chat)
            state = self.deps.log.peek(chat)
        if not open_calls and (state is None or state.pending_jobs):
            await self.job_registry.settle_pending(chat)

    def _release_chat(self, chat: ChatId) -> None:
        self.titles.consider(chat)
        if self._mcp is not None:
            self._mcp.hub.release_chat(chat)

    def chat(
        self,
        id: str = "",
        *,
        options: ChatOptions | None = None,
        preset: o.Preset | None = None,
        **changes: Unpack[o.OptionKeywords],
    ) -> Chat:
        """A chat, new or by its id. Options may be given as an object, by the name of a preset, and as keywords, each
        of which wins over those before; for a chat that exists they change what they name. Nothing is written before
        the chat is first used."""
        if unknown := describe_unknown_names("option", changes, ChatOptions.__struct_fields__):
            raise InvalidInput(unknown)
        if preset is not None and preset not in o.PRESETS:
            raise InvalidInput(f"there is no preset {preset!r}; there is: {', '.join(o.PRESETS)}")
        option_values: dict[str, Any] = {**(o.PRESETS[preset] if preset else {}), **changes}
        if "root" in option_values:
            option_values["root"] = os.path.abspath(option_values["root"])
        if id:
            all_changes = {**(msgspec.to_builtins(options) if options is not None else {}), **option_values}
            if "dynamic_tools" in all_changes:
                self.tool_warnings(self._change_options(self.options, all_changes))
            if "root" in all_changes:
                o.check_root_name(all_changes["root"])
                all_changes["root_id"] = identify(all_changes["root"])
            return Chat(self.chat_home, ChatId(id), all_changes)
        new_options = self._change_options(options or self.options, option_values)
        if "reasoning_effort" in option_values and not new_options.agent:
            check_effort(self.deps.models, new_options.model, new_options.reasoning_effort)
        return self.begin(make_chat_id(), new_options)

    def begin(self, id: str, options: ChatOptions) -> Chat:
        """A new chat under an id that the caller chose. ChatExists, when it is first used, if there is one already."""
        return Chat(self.chat_home, ChatId(id), self.prepare(options))

    def _check_permission_files(self) -> None:
        if self._standard:
            self.rules.list_rules()
        self._trust.list_trusted()

    def prepare(self, options: ChatOptions, highest: str = "", owner: str = "", own_world: str = "") -> Prepared:
        """Prepare a new chat with these options: bind it to the folder at its root's path, and read the instructions of
        the project, from folders no higher than `highest`. `own_world` is the id of the world that is opened for the
        chat, if it gets one. InvalidInput if its tools cannot be accepted (A-01)."""
        o.check_numbers(options)
        o.check_root_name(options.root)
        derived: dict[str, Any] = {}
        for rule in options.rules:
            check_standing(rule)
        if options.root and not options.root_id:
            derived["root_id"] = identify(options.root)
        if options.world:
            self.tool_warnings(options)  # before a world is opened for a chat that is refused
            derived["world"] = self._setup.worlds.resolve_world(options, owner, own_world)
        options = msgspec.structs.replace(options, **derived)
        if self._instructions and not options.instructions:
            derived["instructions"] = read_instructions(options.root, options.root_id, highest)
        usable = options.tools is None or "use_skill" in options.tools
        if self._skills and usable and options.root and not options.skills:
            # The user's own are for the user: other people's chats on a server get the project's alone.
            derived["skills"] = self.documents.read_skills(options.project, include_own=not highest)
        if (options := msgspec.structs.replace(options, **derived)) == self._prepared:
            options = self._prepared  # chats that begin alike share them, and what is known by them
        self._prepared = options
        return Prepared(options, self._make_notices(options.model), self.tool_warnings(options))

    @cached_property
    def documents(self) -> "Documents":
        """The skills, commands and custom agents that there are for a project, with those that are not trusted."""
        from treadle.library.skills.documents import Documents

        return Documents(self._home, self._env, self._trust.is_trusted, self._extensions)

    def own_commands(self, project: Project, *, include_own: bool = True) -> "dict[str, OwnCommand]":
        """Prompts under a name, by their names: the user's if `own`, and the project's trusted ones."""
        return self.documents.read_commands(project, include_own=include_own)

    def custom_agents(self, project: Project, *, include_own: bool = True) -> "dict[str, CustomAgent]":
        """Ways to work under a name, by their names: the user's if `own`, and the project's trusted ones."""
        return self.documents.read_agents(project, include_own=include_own)

    def tool_warnings(self, options: ChatOptions) -> tuple[str, ...]:
        """Return warnings about the tools that a client declares; InvalidInput if they cannot be accepted (A-01)."""
        return self._tools.list_warnings(options)

    def _change_options(self, options: ChatOptions, changes: dict[str, Any]) -> ChatOptions:
        try:
            new_options = change_options(options, changes)
        except msgspec.ValidationError as error:
            raise InvalidInput(f"These options do not fit: {error}.") from error
        return msgspec.structs.replace(new_options, network=host_patterns.check_choice(new_options.network))

    async def chats(self, *, archived: bool | None = None, limit: int = 0) -> list[Listed]:
        """The chats of the store, newest change first."""
        return await self.deps.store.list(ChatFilter(archived=archived), limit=limit)

    async def delete_chat(self, id: str, *, owner: str | None = None) -> None:
        """Delete a chat with its sub-agents, for good. One that works is refused: stop it first. What stays:
        `treadle.library.deletion`. `owner`: NotFound if the chat belongs to another."""
        from treadle.library.deletion import delete_chat

        await delete_chat(self.deps, self.job_registry, ChatId(id), owner)

    async def _list_children(self, chat: ChatId) -> list[ChildView]:
        from treadle.library.subagents.children import list_descendants

        return await list_descendants(self.deps, chat)

    async def _list_views(self) -> "list[ModelView]":
        return [model_choice.make_model_view(each) for each in await self.list_models()]

    async def _claim_world(self, options: ChatOptions) -> None:
        if options.world:
            await asyncio.to_thread(self._setup.worlds.folders.claim, options.world)

    async def jobs(self) -> list[Job]:
        """The background commands of all chats that have some in this home."""
        return await self.job_registry.list_all_jobs()

    def _make_notices(self, ref: str) -> tuple[ModelNotice, ...]:
        """The notice that the model's provider gets to see the project, if the user has not seen it yet (S-10)."""
        if not (missing_consent := self.consent.find_unknown_recipient(ref)):
            return ()
        if (text := render_disclosure(missing_consent)) not in self.warnings:
            self.warnings.append(text)
        return (ModelNotice("consent", text),)

    async def close(self) -> None:
        """Stop driving, give leases back, close models and store."""
        await self.worker.close()
        await self.titles.close()
        if self._mcp is not None:
            await self._mcp.hub.close()
        if self.deps.log.relay is not None:
            await self.deps.log.relay.close()
        await self.deps.models.close()
        await self._setup.close()
        await self.deps.observer.close()
        await self.deps.store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def __aiter__(self) -> AsyncIterator[Listed]:
        for listed in await self.chats():
            yield listed
