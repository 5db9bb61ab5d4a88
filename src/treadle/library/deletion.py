"""Deletes a chat with the chats that its calls began, in one commit; background commands are stopped before, and what
lies on disk of commands is removed after it. Worlds stay, with changes that were never committed; undo data and
attachments until `treadle gc`; a forked copy has its own log."""

from treadle.base.file_system import reach_faultpoint
from treadle.base.types import ChatId
from treadle.engine.deps import Deps
from treadle.errors import ChatBusy, JobElsewhere, NotFound, Refused
from treadle.library.jobs import JobRegistry
from treadle.library.subagents.children import list_descendants


async def delete_chat(deps: Deps, jobs: JobRegistry, chat: ChatId, owner: str | None = None) -> None:
    """Repeated, it changes nothing. NotFound: no such chat of this owner. Refused, JobElsewhere: it still works."""
    family = await _list_family(deps, chat, owner)
    for member in family:
        await jobs.stop_all(member, "delete")
        if running := (await deps.log.load(member)).jobs:
            raise JobElsewhere(
                f"Chat {member} is not deleted: its background command {', '.join(job.job for job in running)} runs on "
                "another machine. Stop it there first."
            )
    reach_faultpoint("delete.before")
    try:
        await deps.store.delete(family or [chat], owner=owner)
    except ChatBusy as error:
        raise _make_busy_error(chat) from error
    reach_faultpoint("delete.after")
    for member in family:
        deps.log.forget(member)
        await jobs.forget_commands(member)


async def _list_family(deps: Deps, chat: ChatId, owner: str | None) -> list[ChatId]:
    """The chat and all chats below it; empty if it was deleted before. NotFound and Refused: see `delete_chat`."""
    try:
        listed = await deps.store.get(chat)
    except NotFound:
        return []
    if owner not in (None, listed.summary.owner):
        raise NotFound(f"there is no chat {chat}")
    if (parent := listed.summary.parent.partition("/")[0]) and await _is_held(deps, ChatId(parent)):
        raise _make_busy_error(chat)  # the call that began it may still wait for it
    below = [row.chat for row in await list_descendants(deps, chat) if row.status != "not begun"]
    family = list(dict.fromkeys([chat, *below]))
    for member in family:
        if await _is_held(deps, member):
            raise _make_busy_error(chat)
    return family


async def _is_held(deps: Deps, chat: ChatId) -> bool:
    try:
        return (await deps.store.get(chat)).leased
    except NotFound:
        return False


def _make_busy_error(chat: ChatId) -> Refused:
    return Refused("busy", f"Chat {chat} is working, or its parent or a sub-agent is. Stop that first, then delete it.")
