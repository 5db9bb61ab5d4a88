"""Chats of a server, by its HTTP API: the app as one more client (`--server URL`)."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import convert

from treadle.client.chats import Chats, ClientChat, Restoration, Run
from treadle.client.client import ClientWorlds
from treadle.client.http import Http
from treadle.diff.changes import is_folder
from treadle.diff.diff import FileDiff
from treadle.errors import InvalidInput, NotFound
from treadle.frontends.tui.connection import (
    ChatLink,
    ChatRow,
    ModelRow,
    OpenQuestion,
    Outcome,
    make_outcome,
    preview_lines,
)
from treadle.frontends.tui.desktop import read_picture
from treadle.library.model_choice import ModelChoice
from treadle.protocol.events import Delivery, Envelope
from treadle.protocol.files import FileChange
from treadle.protocol.http_answers import ChatLine, CommandList, ModelList, RuleList, RuleView
from treadle.protocol.options import ChatOptions

if TYPE_CHECKING:
    from treadle.library.skills.reading import OwnCommand

PATIENCE_S = 60.0


class RemoteChat(ChatLink):
    def __init__(self, chat: ClientChat) -> None:
        self.chat: ClientChat = chat

    async def stream_events(self, after_seq: int = 0) -> AsyncIterator[Sequence[Envelope]]:
        async for envelope in self.chat.events(after_seq):
            yield [envelope]

    async def send(self, text: str, delivery: Delivery = "queued", images: Sequence[str] = ()) -> None:
        read = [await asyncio.to_thread(read_picture, path) for path in images]
        await self.chat.send(text, delivery=delivery, images=read, expand=True)

    async def go_on(self) -> bool:
        return False  # the server's workers take up such runs

    async def list_questions_below(self) -> Sequence[OpenQuestion]:
        actions = [each for each in await self.chat.actions(below=True) if each.chat != self.id]
        people = [each for each in actions if each.action.of_person]
        return [OpenQuestion(each.action, each.chat, each.title, below=True) for each in people]

    async def list_file_diffs(self, *, everything: bool = False) -> Sequence[FileDiff]:
        files = await self.chat.files.changes("all" if everything else "last")
        return [FileDiff(convert(each, FileChange, from_attributes=True), each.hunks, each.notes) for each in files]

    async def undo(
        self, paths: Sequence[str] = (), hunks: Mapping[str, Sequence[int]] | None = None, *, everything: bool = False
    ) -> Outcome:
        run: Run = "all" if everything else "last"
        return _convert_restoration(await self.chat.files.undo(run=run, paths=paths, hunks=hunks or {}))

    async def redo(self) -> Outcome:
        return _convert_restoration(await self.chat.files.redo())

    async def keep(self, paths: Sequence[str] = (), hunks: Mapping[str, Sequence[int]] | None = None) -> Outcome:
        return _convert_restoration(await self.chat.files.keep(run="all", paths=paths, hunks=hunks or {}))

    async def preview_back(self, message: int) -> Sequence[str]:
        return preview_lines(await self.chat.files.preview(since=message - 1))

    async def go_back_to(self, message: int, *, conversation: bool, files: bool) -> Outcome:
        return _convert_restoration(await self.chat.files.back_to(message, conversation=conversation, files=files))


class Remote:
    stays = True
    takes_keys = False

    def __init__(self, url: str, token: str, options: Mapping[str, Any]) -> None:
        self.place = url
        self._http = Http(url, token, PATIENCE_S)
        self._chats = Chats(self._http, list, PATIENCE_S)
        self.worlds = ClientWorlds(self._http, lambda id: ClientChat(self._http, id, PATIENCE_S))
        self._options = options
        self.initial = ChatOptions(model=options.get("model") or "", root=options.get("root") or "")

    @property
    def away(self) -> bool:
        return self._http.away

    async def find_default_model(self) -> ModelChoice | None:
        model = self._options.get("model") or (await self._http.get("/api/models", ModelList)).default
        return ModelChoice(model, "") if model else None

    async def create(self, **options: Any) -> RemoteChat:
        all_options = {**self._options, "interactive": True, **options}
        given = {name: value for name, value in all_options.items() if value not in ("", None)}
        return RemoteChat(await self._chats.create(**given))

    async def open(self, id: str) -> RemoteChat:
        if id == "last":
            async for line in self._chats.list(archived=False):
                return RemoteChat(await self._chats.get(line.id))
            raise NotFound("there is no chat yet")
        return RemoteChat(await self._chats.get(id))

    async def fork(self, id: str, seq: int) -> RemoteChat:
        return RemoteChat(await ClientChat(self._http, id, PATIENCE_S).fork(seq))

    async def list_chat_rows(self, query: str = "", *, archived: bool = False, limit: int = 200) -> Sequence[ChatRow]:
        if query.strip():
            matches = await self._chats.search(query, archived=archived, limit=min(limit, 200))
            return [_make_chat_row(each, each.found) for each in matches]
        rows: list[ChatRow] = []
        async for line in self._chats.list(archived=archived):
            rows.append(_make_chat_row(line))
            if len(rows) >= limit:
                break
        return rows

    async def list_model_rows(self) -> Sequence[ModelRow]:
        listed = await self._http.get("/api/models", ModelList)
        return [
            ModelRow(each.model, each.window, "" if each.usable else each.why, each.vision, each.place, each.efforts)
            for each in listed.models
        ]

    async def store_key(self, provider: str, variable: str, key: str) -> str:
        raise InvalidInput("a server has its own keys: set them where it runs")

    async def add_server(self, url: str, key: str) -> int:
        raise InvalidInput("a server has its own models: name their address where it runs")

    async def list_own_commands(self, root: str, chat: str = "") -> "Mapping[str, OwnCommand]":
        """They say themselves: the server knows their texts."""
        from treadle.library.skills.reading import OwnCommand

        path = f"/api/chats/{chat}/commands" if chat else "/api/commands"
        query = {"root": self.initial.root} if self.initial.root and not chat else {}
        commands = {each.name: each for each in (await self._http.get(path, CommandList, query)).commands}
        texts = {name: f"/{name} $ARGUMENTS" for name in commands}
        return {name: OwnCommand(name, each.description, texts[name], each.hint) for name, each in commands.items()}

    async def list_resource_names(self, root: str, chat: str = "") -> Sequence[str]:
        if not chat:
            return ()
        return [each.mention[1:] for each in await ClientChat(self._http, chat, PATIENCE_S).resources()]

    async def list_custom_agents(self, root: str) -> Mapping[str, Any]:
        return {}

    async def read_rules(self, chat: str = "") -> Sequence[RuleView]:
        return (await self._http.get("/api/rules", RuleList, {"chat": chat} if chat else {})).rules

    async def revoke(self, rule: RuleView) -> None:
        query = {"chat": rule.chat} if rule.chat else {}
        await self._http.change("DELETE", f"/api/rules/{rule.rule.id}", {}, Any, query=query)

    async def get_disclosure(self, model: str) -> str:
        return ""  # the person who runs the server has seen it

    async def record_consent(self, model: str) -> None: ...

    async def close(self) -> None:
        await self._http.close()


def _make_chat_row(line: ChatLine, excerpt: str = "") -> ChatRow:
    updated_ms = round(datetime.fromisoformat(line.updated).timestamp() * 1000)
    return ChatRow(
        line.id, line.title, line.status, line.root, line.model, updated_ms, line.archived, line.head,
        line.parent, excerpt,
    )  # fmt: skip


def _convert_restoration(restoration: Restoration) -> Outcome:
    return make_outcome(restoration, sum(not is_folder(each) for each in restoration.files))
