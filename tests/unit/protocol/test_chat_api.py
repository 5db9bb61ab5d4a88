"""A chat has the same interface in this process and over HTTP."""

import inspect

import pytest

from treadle import sync
from treadle.client import ClientChat, chats, client
from treadle.client import sync as client_sync
from treadle.client.chats import ClientJob
from treadle.library.chat import Chat
from treadle.library.jobs import Job
from treadle.protocol.chat_api import ChatApi, JobApi
from treadle.sync import Chat as SyncChat

METHODS = sorted(name for name, value in vars(ChatApi).items() if inspect.isfunction(value) and name[0] != "_")


def accept_both(chat: Chat, client_chat: ClientChat) -> tuple[ChatApi, ChatApi]:
    """The type checker sees that both are a ChatApi, with the types of all parameters and results."""
    return chat, client_chat


@pytest.mark.parametrize("kind", [Chat, ClientChat, SyncChat, client_sync.ClientChat])
@pytest.mark.parametrize("name", METHODS)
def test_a_chat_has_every_method_with_its_parameters(kind: type, name: str) -> None:
    wanted = inspect.signature(getattr(ChatApi, name)).parameters
    own = inspect.signature(getattr(kind, name)).parameters
    assert {each: (own[each].kind, own[each].default) for each in wanted} == {
        each: (wanted[each].kind, wanted[each].default) for each in wanted
    }
    more = [own[each] for each in own if each not in wanted]
    assert all(each.default is not inspect.Parameter.empty for each in more), "more is allowed, but not required"


@pytest.mark.parametrize(
    ("kind", "sync_kind"),
    [
        (ClientChat, client_sync.ClientChat),
        (ClientJob, client_sync.ClientJob),
        (chats.Chats, client_sync.Chats),
        (chats.ClientFiles, client_sync.ClientFiles),
        (client.ClientRace, client_sync.ClientRace),
        (client.ClientWorlds, client_sync.ClientWorlds),
        (Job, sync.Job),
    ],
)
def test_a_class_without_async_has_every_method(kind: type, sync_kind: type) -> None:  # E-05
    methods = {name for name in dir(kind) if name[0] != "_" and callable(getattr(kind, name))}
    assert methods - set(dir(sync_kind)) == set()


@pytest.mark.parametrize("kind", [Job, ClientJob])
def test_a_job_has_every_method(kind: type) -> None:
    names = {name for name, value in vars(JobApi).items() if inspect.isfunction(value) and name[0] != "_"}
    assert names <= set(dir(kind))
