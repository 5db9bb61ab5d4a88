"""Walks a shell text in the order in which bash would run it, and passes every simple command to the runner.

Both sides of a branch are read, loops once, functions where they are defined. Nothing is run. Text that cannot be
parsed raises the severity: it never counts as harmless.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from treadle.adapters.policy.shell.idioms import ruin, setting
from treadle.adapters.policy.shell.model import UNKNOWN
from treadle.adapters.policy.shell.parse import (
    MARK,
    SPELLED,
    WORDS,
    Heredoc,
    comments_of,
    group,
    has_fork,
    normalise,
    placeholder,
    text_of,
)
from treadle.adapters.policy.shell.run import Record, Runner, Scope, ShellMemory, Simple, TooMuch
from treadle.adapters.policy.shell.words import arithmetic, descend, word

if TYPE_CHECKING:
    from tree_sitter import Node

_MOST_DEPTH = 12
_MOST_NESTING = 120
_ENDLESS = frozenset(("true", ":", "1", "[ 1 ]", "[[ 1 ]]", "((1))", "(( 1 ))", "[ true ]", "true;", ":;"))
_UNREADABLE = "a part of it cannot be read as shell text"
_EVALUATED = re.compile(r"\s-[vR]\s|^\[\[.*\s-(?:eq|ne|lt|le|gt|ge)\s", re.S)
_REDIRECTS = ("file_redirect", "herestring_redirect", "heredoc_redirect")


class Redirections(msgspec.Struct, frozen=True):
    stdin: str | None = None
    writes: tuple[str, ...] = ()
    late: "tuple[Node, ...]" = ()
    """Words behind a redirection, which the grammar takes for more of its targets: `> f rm` is `rm > f`."""


class Walker:
    """One shell that reads one text; `words.word` asks it for what an expansion needs (words.WordReader)."""

    def __init__(self, record: Record, shell: ShellMemory, scope: Scope) -> None:
        self.record = record
        self.shell = shell
        self.scope = scope
        self.heredocs: tuple[Heredoc, ...] = ()
        self.nesting = 0
        self.attached: dict[int, list[Node]] = {}
        """Redirections that belong to a command which comes later."""
        self.runner = Runner(record, self.nested)

    def text(self, text: str, stdin: str | None = None) -> None:
        if self.scope.depth > _MOST_DEPTH:
            raise TooMuch("commands are nested deeper than is looked at")
        normal = normalise(text)
        root = self.record.parse(normal.text)
        self.heredocs = normal.heredocs
        if root.has_error:
            self.record.fail(_UNREADABLE)
        elif not normal.sure or SPELLED in text or list(normal.comments) != comments_of(root, text):
            self.record.fail("it can be read in more than one way")
        self.node(root, stdin)

    def nested(self, text: str, shell: ShellMemory, scope: Scope, stdin: str | None) -> None:
        Walker(self.record, shell, scope).text(text, stdin)

    # ---- statements

    def node(self, node: "Node", stdin: str | None = None) -> str:
        """Reads a statement; returns what it prints, as far as that is literal."""
        self.record.step()
        self.nesting += 1
        if self.nesting > _MOST_NESTING:
            raise TooMuch("it is nested deeper than is looked at")
        printed = self._statement(node, stdin)
        self.nesting -= 1
        return printed or UNKNOWN

    def _statement(self, node: "Node", stdin: str | None) -> str | None:
        if self.attached and node.id in self.attached:
            return self._with(node, self.attached.pop(node.id), stdin)
        match node.type:
            case "command":
                return self._command(node, stdin, Redirections())
            case "pipeline":
                printed, shell = stdin, self.shell
                for child in node.named_children:
                    self.shell = ShellMemory(shell.cwd)
                    printed = self.node(child, printed)
                self.shell = shell
                return printed
            case "redirected_statement":
                return self._redirected(node, stdin)
            case "variable_assignment":
                self._run(Simple(assigned=(self._assigned(node),), text=text_of(node)))
            case "declaration_command" | "unset_command":
                self._declaration(node)
            case "subshell":
                self._walk_subshell(node, stdin)
            case "function_definition":
                self._define(node)
            case "for_statement":
                self._for(node, stdin)
            case "while_statement" | "c_style_for_statement":
                self._loop(node, stdin)
            case "test_command":
                descend(node, self)
                if _EVALUATED.search(text_of(node)):
                    self.evaluated(text_of(node))
            case "compound_statement" if text_of(node).startswith("(("):
                arithmetic(node, self)
            case "comment":
                pass
            case kind if kind in WORDS:
                self._mention(word([node], self))
            case _:
                return self._sequence(node, stdin)
        return None

    def _sequence(self, parent: "Node", stdin: str | None = None) -> str | None:
        printed = [self.node(node, stdin) for node in parent.named_children]
        return printed[0] if len(printed) == 1 else None

    def _walk_subshell(self, node: "Node", stdin: str | None = None, *, captured: bool = False) -> None:
        saved_state = self.shell, self.scope
        self.shell, self.scope = ShellMemory(self.shell.cwd), self._scope(captured)
        self._sequence(node, stdin)
        self.shell, self.scope = saved_state

    def _scope(self, captured: bool) -> Scope:
        return msgspec.structs.replace(self.scope, captured=self.scope.captured or captured)

    def _redirected(self, node: "Node", stdin: str | None) -> str | None:
        body = last = node.child_by_field_name("body")
        redirects = [child for child in node.named_children if child != body]
        while last is not None and last.type in ("list", "pipeline", "negated_command") and last.named_child_count:
            last = last.named_children[-1]
        if body is None or last is None or last == body:
            return self._with(body, redirects, stdin)
        self.attached[last.id] = redirects  # in `a && b > f` the grammar gives the redirection to both
        return self.node(body, stdin)

    def _with(self, body: "Node | None", redirects: "list[Node]", stdin: str | None) -> str | None:
        there = self._redirections(redirects, Redirections())
        if body is not None and body.type == "command":
            return self._command(body, stdin, there)
        if there.late:
            return self._words([], there, stdin)
        if there.writes:
            self._run(Simple(writes=there.writes))
        if body is not None:
            self.node(body, there.stdin if there.stdin is not None else stdin)
        return None

    def _redirections(self, nodes: "Sequence[Node]", there: Redirections) -> Redirections:
        stdin, writes, late = there.stdin, there.writes, there.late
        for node in nodes:
            operator = next((child.type for child in node.children if not child.is_named), "")
            targets = [child for child in node.named_children if child.type != "file_descriptor"]
            if node.type != "file_redirect" or not targets:
                if not operator.endswith("&-"):  # which closes a file
                    self.confused()
                continue
            late += tuple(targets[1:])
            if text_of(targets[0]).startswith(MARK):
                stdin = self._here(targets[0])
                continue
            place = word(targets[:1], self)
            if operator in ("<", "<&"):
                stdin = "" if place == "/dev/null" else UNKNOWN
                self.runner.read_from(place, self.shell)
            elif not (operator == ">&" and place.strip("-").isdigit()):
                writes += (UNKNOWN if re.search(r"[*?\[]", place) else place,)
        return Redirections(stdin, writes, late)

    def _here(self, target: "Node") -> str:
        """Return the content of a here-string or here-document."""
        number = placeholder(text_of(target))
        if number is None or number >= len(self.heredocs):
            return word([target], self).removeprefix(MARK) + "\n"
        heredoc = self.heredocs[number]
        if heredoc.literal or not re.search(r"[$`]", heredoc.body):
            return heredoc.body
        nests = re.search(r"\$[({\[]|[`\\]", heredoc.body)
        root = self.record.parse(': "{}"'.format(heredoc.body if nests else heredoc.body.replace('"', '\\"')))
        command = root.named_children[0] if root.named_child_count else None
        unclear = root.has_error or (nests and re.search('"|<<', heredoc.body))
        if unclear or command is None or command.type != "command":
            self.confused()
            return UNKNOWN
        return " ".join(word(each, self) for each in group(command.children[1:]))

    # ---- simple commands

    def _command(self, node: "Node", stdin: str | None, there: Redirections) -> str | None:
        words: list[Node] = []
        redirects: list[Node] = []
        assigned: list[tuple[str, str]] = []
        for child in node.children:
            if child.type == "variable_assignment" and not words:
                assigned.append(self._assigned(child))
            elif child.type in _REDIRECTS:
                redirects.append(child)
            elif child.type in ("(", ")"):
                self.confused()
            else:
                words.append(child)
        return self._words(words, self._redirections(redirects, there), stdin, tuple(assigned), text_of(node))

    def _words(
        self, words: "list[Node]", there: Redirections, stdin: str | None, assigned: tuple[tuple[str, str], ...] = (),
        text: str = "",
    ) -> str | None:  # fmt: skip
        stdin = there.stdin if there.stdin is not None else stdin
        argv = tuple([word(each, self) for each in group([*words, *there.late])])
        self._run(Simple(argv, assigned, there.writes, stdin, text=text))
        if argv[:1] == ("echo",) and not there.writes and not "".join(argv[1:2]).startswith("-"):
            return " ".join(argv[1:]) + "\n"
        return stdin if argv == ("cat",) and not there.writes else None

    def _run(self, simple: Simple) -> None:
        self.runner.command(simple, self.shell, self.scope)

    def _mention(self, text: str, name: str = "") -> None:
        """A word that no command gets: it matters if it sets what programs obey."""
        self.record.words.append(("=", text))
        self.record.variables += [(name, text)] if name and UNKNOWN not in text else []
        if setting(name, text):
            self._run(Simple(assigned=((name, text),)))

    def _assigned(self, node: "Node") -> tuple[str, str]:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        title = text_of(name) if name is not None else ""
        if name is not None and name.type == "subscript":
            descend(name, self)
            self.evaluated(title)
        if value is not None and value.type == "array" and "[" in text_of(value):
            self.evaluated(text_of(value))
        values = list(value.named_children) if value is not None and value.type == "array" else [value] if value else []
        return title.partition("[")[0], " ".join(word(each, self) for each in group(values))

    def _declaration(self, node: "Node") -> None:
        """export, declare, local, readonly, unset: assignments, and words that may be anything."""
        argv = [text_of(node.children[0])]
        for each in group(node.children[1:]):
            if each[0].type == "variable_assignment":
                variable = self._assigned(each[0])
                self._run(Simple(assigned=(variable,)))
                argv.append(variable[0])
            else:
                argv.append(word(each, self))
        self._run(Simple(tuple(argv), text=text_of(node)))

    # ---- functions and loops

    def _define(self, node: "Node") -> None:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is None or body is None:
            self.record.fail("a function cannot be read")
            return
        title = word([name], self)
        redirects = [child for child in node.named_children if child not in (name, body)]
        there = self._redirections(redirects, Redirections())
        if there.writes:
            self._run(Simple(writes=there.writes))
        cwd, scope, part_count = self.shell.cwd, self.scope, len(self.record.parts)
        self.scope = msgspec.structs.replace(scope, wrapped_by=(*scope.wrapped_by, title))
        self.node(body)
        self.shell.cwd, self.scope = cwd, scope
        callees = {part.program for part in self.record.parts[part_count:]}
        self.record.calls[title] = callees | self.record.calls.get(title, set())
        self.record.forking |= {title} if has_fork(body) else set()
        if any(map(self.record.reaches, self.record.forking)):
            self.record.note("critical", f"{title} starts itself again and again: a fork bomb")

    def _for(self, node: "Node", stdin: str | None) -> None:
        name, body = node.child_by_field_name("variable"), node.child_by_field_name("body")
        values = group([child for child in node.named_children if child not in (name, body)])
        self._mention(" ".join(word(each, self) for each in values), text_of(name) if name else "")
        if body is not None:
            self._sequence(body, stdin)

    def _loop(self, node: "Node", stdin: str | None) -> None:
        condition, body = node.child_by_field_name("condition"), node.child_by_field_name("body")
        text = text_of(condition).strip() if condition is not None else ""
        counted = node.type == "c_style_for_statement"
        until = node.children[0].type == "until"
        endless = text == "false" if until else text in _ENDLESS or (condition is None and counted)
        if endless and body is not None and has_fork(body, ("&",)):
            self.record.note("critical", "starts processes without end")
        if counted and body is not None:
            self.evaluated(text_of(node)[: body.start_byte - node.start_byte])
        self._sequence(body if counted and body is not None else node, stdin)

    # ---- what words ask for (words.WordReader)

    def substituted(self, node: "Node") -> None:
        source = text_of(node)
        if source.startswith("`") or (source.startswith("$(") and "<<" in source):
            inner = re.sub(r"\\([\\`$])", r"\1", source[1:].removesuffix("`")) if source[0] == "`" else source[2:-1]
            self.record.notes += ruin(inner) if "<<" in inner else ()
            self.nested(inner, ShellMemory(self.shell.cwd), self._scope(True).inside(source[0]), None)
        elif node.named_children and all(child.type == "file_redirect" for child in node.named_children):
            self._redirections(node.named_children, Redirections())
        else:
            self._walk_subshell(node, UNKNOWN if source.startswith(">") else None, captured=True)

    def evaluated(self, text: str) -> None:
        self.record.evaluated(text)

    def confused(self) -> None:
        self.record.fail(_UNREADABLE)
