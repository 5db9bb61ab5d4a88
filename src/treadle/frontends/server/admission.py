"""The operator's limits on requests, beyond the rules of chats: folders, models, the confinement of commands, the reach
of a rule. The user of this machine may request everything; others only what is opened to them."""

import os
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec

from treadle.adapters.workspace.paths.resolve import locate, make_root_changed_error
from treadle.base import host_patterns
from treadle.base.file_system import is_below
from treadle.errors import InvalidInput
from treadle.frontends.server.tokens import LOCAL
from treadle.protocol.options import ChatOptions, NetworkChoice, check_root_name
from treadle.protocol.permissions import NETWORK_TOOL, RuleScope

PROGRAMS = ("command", "recorded", "scripted")  # Providers whose models are programs and files of the server.
STRICT = {"sandbox": None, "strict_paths": True, "command_view": True}
"""How commands are confined: as the server has it or, where there is such a value, stricter."""
_WEIGHTS = ".gguf"
_NAME = re.compile(r"\w[\w.:@+-]*(/\w[\w.:@+-]*)*")
"""The form of a model's name in requests of others: a name, not a path, an address or a flag of a program."""


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
        base_options = self.options if user == LOCAL else msgspec.structs.replace(self.options, root="")
        checked = self.resolve_changes(user, changes)
        if user != LOCAL and base_options.world and not checked.get("world", base_options.world):
            raise InvalidInput("On this server every chat works in a world; leave 'world' out.")
        if not checked.get("model", base_options.model):
            raise InvalidInput('Name a model: "model": "provider:name"; this server has no default.')
        try:
            return msgspec.convert({**msgspec.to_builtins(base_options), **checked}, ChatOptions)
        except msgspec.ValidationError as error:
            raise InvalidInput(f"These options do not fit: {error}.") from error

    def require_world(self, user: str, options: ChatOptions) -> None:
        """Where chats work in worlds, a project changes by commits alone: InvalidInput in a chat of one without."""
        if user != LOCAL and self.options.world and options.root and not options.world:
            raise InvalidInput("On this server chats work in worlds, and this one has none; begin another one.")

    def alter(self, user: str, changes: Mapping[str, Any]) -> dict[str, Any]:
        if user != LOCAL and self.options.world and "root" in changes:
            raise InvalidInput("On this server a chat stays in its world; begin another one for another root.")
        return self.resolve_changes(user, changes)

    def resolve_changes(self, user: str, changes: Mapping[str, Any]) -> dict[str, Any]:
        """The options that a user wants, checked; the root without links, and bound to the folder that it is now."""
        checked = dict(changes)
        if checked.get("root"):
            checked["root"], checked["root_id"] = self._resolve_root(user, checked["root"])
        if checked.get("model"):
            self.check_model(user, checked["model"])
        if user != LOCAL:
            for name, strict in STRICT.items():
                if name in checked and checked[name] not in (getattr(self.options, name), strict):
                    raise InvalidInput(f"How commands are confined is set by the server; leave {name!r} out.")
            for rule in checked.get("rules", ()):
                self.check_scope(user, rule.get("scope", "chat"))
                if rule.get("tool") == NETWORK_TOOL and rule.get("effect") == "allow":
                    self.reach(user, host_patterns.read(rule.get("pattern", "")))
        if "network" in checked:
            checked["network"] = host_patterns.check_choice(checked["network"])
            self.reach(user, checked["network"])
        return checked

    def is_operator(self, user: str) -> bool:
        return user == LOCAL or user in self.operators

    def check_scope(self, user: str, scope: RuleScope) -> None:
        """Rules beyond a chat are kept for everybody who uses this home."""
        if user != LOCAL and scope not in ("once", "chat"):
            raise InvalidInput("On this server a rule can hold for a chat, not beyond it.")

    def reach(self, user: str, network: NetworkChoice) -> None:
        default_network = self.options.network
        if user == LOCAL or not network or default_network is True or network == default_network:
            return
        allowed_hosts = (*self.network, *(default_network or ()))
        if isinstance(network, bool) or not host_patterns.is_within(network, allowed_hosts):
            hint = f" Open to you: {', '.join(allowed_hosts)}." if allowed_hosts else ""
            raise InvalidInput(f"The server sets the hosts that commands may reach (serve_network).{hint}")

    def find_open_folder(self, user: str, root: str) -> str:
        """The folder that is open to the user and holds the root; empty: all are. InvalidInput if there is none."""
        if user == LOCAL and (not self.roots or root == self.options.root):
            return ""
        if not self.roots:
            raise InvalidInput("No folders are open to users of this server; its operator can set serve_roots.")
        for folder in (os.path.realpath(each.replace("{user}", user)) for each in self.roots):
            if is_below(root, folder):
                return folder
        raise InvalidInput(f"The root {root!r} lies in no folder that is open to you.")

    def use(self, user: str, options: ChatOptions) -> None:
        """RootChanged or InvalidInput if a chat's root is no longer open to the user. A missing one passes."""
        location = locate(options.root) if options.root else None
        if location is None:
            return
        if options.root_id and location[1] != options.root_id:
            raise make_root_changed_error(options.root)
        self.find_open_folder(user, location[0])

    def _resolve_root(self, user: str, path: str) -> tuple[str, str]:
        if not os.path.isabs(path):
            raise InvalidInput(f"The root {path!r} must be an absolute path.")
        location = locate(path)
        root, identity = location or (os.path.realpath(path), "")
        check_root_name(root)
        allowed_root = self.find_open_folder(user, root)
        if location is None and not self.shared:
            raise InvalidInput(f"The root {path!r} is no folder of the server.")
        if not allowed_root and (root == "/" or root == os.path.realpath(Path.home())):
            raise InvalidInput(f"{path!r} is a whole disk or a home folder; name a project in it.")
        return root, identity

    def check_model(self, user: str, ref: str) -> None:
        if self.models and not any(_matches_model(pattern, ref) for pattern in self.models):
            raise InvalidInput(f"The model {ref!r} is not open to users of this server.")
        if not self.models and user != LOCAL and _is_program(ref):
            raise InvalidInput(f"The model {ref!r} is a program or a file of the server, which is not open to you.")
        if user != LOCAL and not _is_program(ref) and not _NAME.fullmatch(ref.partition(":")[2]):
            raise InvalidInput(f"{ref!r} names no model: write provider:name, without spaces, '..' or a dash in front.")


def _is_program(ref: str) -> bool:
    provider, _, name = ref.partition(":")
    return provider in PROGRAMS or (provider == "local" and name.endswith(_WEIGHTS))


def _matches_model(pattern: str, ref: str) -> bool:
    """A program or a file has to be meant: `*` alone opens none, and `local:*` no file but the models of that name."""
    names_provider = pattern.startswith(ref.partition(":")[0] + ":")
    is_explicit = names_provider and (_WEIGHTS in pattern or not ref.endswith(_WEIGHTS))
    return fnmatchcase(ref, pattern) and (is_explicit or not _is_program(ref))
