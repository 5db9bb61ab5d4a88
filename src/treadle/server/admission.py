"""Admission: what the operator lets users ask for, beyond what their chats allow: folders, models, how commands are
confined, and how far a rule may reach. The user of this machine may ask for everything; others only for what was opened
to them."""

import os
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec

from treadle import host_patterns
from treadle.errors import InvalidInput
from treadle.file_system import is_below
from treadle.protocol.options import ChatOptions, NetworkChoice, check_root_name
from treadle.protocol.permissions import NETWORK_TOOL, RuleScope
from treadle.server.tokens import LOCAL
from treadle.workspace.paths.identity import changed, locate

PROGRAMS = ("command", "recorded", "scripted")
"""Providers whose models are programs and files of the server."""
STRICT = {"sandbox": None, "strict_paths": True, "command_view": True}
"""Options that say how commands are confined. Users take them as the server has them, or, where there is such a value,
stricter."""
_WEIGHTS = ".gguf"
_NAME = re.compile(r"\w[\w.:@+-]*(/\w[\w.:@+-]*)*")
"""What others may call a model: a name, not a path, an address or a flag of a program."""


class Admission(msgspec.Struct, frozen=True):
    """`roots` are folders below which projects may lie, with `{user}` for the user's name; empty: anywhere for the user
    of this machine, nowhere for others. `models` are patterns such as `openai:*`; empty: all, but for others none that
    is a program or a file here. `shared`: chats may run on other machines, so that a folder need not exist here.
    `operators` are users who may look at the server as a whole, beside the user of this machine."""

    options: ChatOptions = ChatOptions()
    roots: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    shared: bool = False
    operators: tuple[str, ...] = ()
    network: tuple[str, ...] = ()
    """Hosts that users may let their commands reach, beside those of the server's own options."""

    def begin(self, user: str, changes: Mapping[str, Any]) -> ChatOptions:
        """The options of a new chat."""
        own = self.options if user == LOCAL else msgspec.structs.replace(self.options, root="")
        checked = self.change(user, changes)
        if user != LOCAL and own.world and not checked.get("world", own.world):
            raise InvalidInput("On this server every chat works in a world; leave 'world' out.")
        if not checked.get("model", own.model):
            raise InvalidInput('Name a model: "model": "provider:name"; this server has no default.')
        try:
            return msgspec.convert({**msgspec.to_builtins(own), **checked}, ChatOptions)
        except msgspec.ValidationError as error:
            raise InvalidInput(f"These options do not fit: {error}.") from error

    def work(self, user: str, options: ChatOptions) -> None:
        """Where chats work in worlds, a project changes by commits alone: InvalidInput in a chat of one without."""
        if user != LOCAL and self.options.world and options.root and not options.world:
            raise InvalidInput("On this server chats work in worlds, and this one has none; begin another one.")

    def alter(self, user: str, changes: Mapping[str, Any]) -> dict[str, Any]:
        """What may be changed of a chat that has begun."""
        if user != LOCAL and self.options.world and "root" in changes:
            raise InvalidInput("On this server a chat stays in its world; begin another one for another root.")
        return self.change(user, changes)

    def change(self, user: str, changes: Mapping[str, Any]) -> dict[str, Any]:
        """The options that a user wants, checked; the root without links, and bound to the folder that it is now."""
        checked = dict(changes)
        if checked.get("root"):
            checked["root"], checked["root_id"] = self._root(user, checked["root"])
        if checked.get("model"):
            self.model(user, checked["model"])
        if user != LOCAL:
            for name, strict in STRICT.items():
                if name in checked and checked[name] not in (getattr(self.options, name), strict):
                    raise InvalidInput(f"How commands are confined is set by the server; leave {name!r} out.")
            for rule in checked.get("rules", ()):
                self.scope(user, rule.get("scope", "chat"))
                if rule.get("tool") == NETWORK_TOOL and rule.get("effect") == "allow":
                    self.reach(user, host_patterns.read(rule.get("pattern", "")))
        if "network" in checked:
            checked["network"] = host_patterns.checked(checked["network"])
            self.reach(user, checked["network"])
        return checked

    def operator(self, user: str) -> bool:
        return user == LOCAL or user in self.operators

    def scope(self, user: str, scope: RuleScope) -> None:
        """Rules beyond a chat are kept for everybody who uses this home."""
        if user != LOCAL and scope not in ("once", "chat"):
            raise InvalidInput("On this server a rule can hold for a chat, not beyond it.")

    def reach(self, user: str, network: NetworkChoice) -> None:
        """InvalidInput if the user may not let commands reach these hosts."""
        own = self.options.network
        if user == LOCAL or not network or own is True or network == own:
            return
        opened = (*self.network, *(own or ()))
        if isinstance(network, bool) or not host_patterns.within(network, opened):
            shown = f" Open to you: {', '.join(opened)}." if opened else ""
            raise InvalidInput(f"The server sets the hosts that commands may reach (serve_network).{shown}")

    def highest(self, user: str, root: str) -> str:
        """The folder that is open to the user and holds the root; empty for the user of this machine, to whom all are.
        InvalidInput if there is none."""
        if user == LOCAL and (not self.roots or root == self.options.root):
            return ""
        if not self.roots:
            raise InvalidInput("No folders are open to users of this server; its operator can set serve_roots.")
        for folder in (os.path.realpath(each.replace("{user}", user)) for each in self.roots):
            if is_below(root, folder):
                return folder
        raise InvalidInput(f"The root {root!r} lies in no folder that is open to you.")

    def use(self, user: str, options: ChatOptions) -> None:
        """See that the root of a chat is still what was opened to the user. RootChanged or InvalidInput if it is not;
        what is not there at all is told by whoever looks into it."""
        found = locate(options.root) if options.root else None
        if found is None:
            return
        if options.root_id and found[1] != options.root_id:
            raise changed(options.root)
        self.highest(user, found[0])

    def _root(self, user: str, named: str) -> tuple[str, str]:
        if not os.path.isabs(named):
            raise InvalidInput(f"The root {named!r} must be an absolute path.")
        found = locate(named)
        root, identity = found or (os.path.realpath(named), "")
        check_root_name(root)
        opened = self.highest(user, root)
        if found is None and not self.shared:
            raise InvalidInput(f"The root {named!r} is no folder of the server.")
        if not opened and (root == "/" or root == os.path.realpath(Path.home())):
            raise InvalidInput(f"{named!r} is a whole disk or a home folder; name a project in it.")
        return root, identity

    def model(self, user: str, ref: str) -> None:
        """InvalidInput if the model is not open to the user."""
        if self.models and not any(_opens(pattern, ref) for pattern in self.models):
            raise InvalidInput(f"The model {ref!r} is not open to users of this server.")
        if not self.models and user != LOCAL and _is_program(ref):
            raise InvalidInput(f"The model {ref!r} is a program or a file of the server, which is not open to you.")
        if user != LOCAL and not _is_program(ref) and not _NAME.fullmatch(ref.partition(":")[2]):
            raise InvalidInput(f"{ref!r} names no model: write provider:name, without spaces, '..' or a dash in front.")


def _is_program(ref: str) -> bool:
    provider, _, name = ref.partition(":")
    return provider in PROGRAMS or (provider == "local" and name.endswith(_WEIGHTS))


def _opens(pattern: str, ref: str) -> bool:
    """A program or a file has to be meant: `*` alone opens none, and `local:*` no file but the models of that name."""
    if not fnmatchcase(ref, pattern):
        return False
    meant = pattern.startswith(ref.partition(":")[0] + ":") and (_WEIGHTS in pattern or not ref.endswith(_WEIGHTS))
    return meant or not _is_program(ref)
