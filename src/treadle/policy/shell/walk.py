"""Follows a shell text in the order in which bash would run it, and hands every simple command to the runner.

Both ways of a branch are followed, loops once, functions where they are defined and where they are called. Nothing is
run. What cannot be read raises the severity: it never falls through as harmless.
"""

import contextlib
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from treadle.policy.shell.lexical import MARK, Heredoc, normalise, placeholder
from treadle.policy.shell.model import NEXT, UNKNOWN
from treadle.policy.shell.parse import SPELLED, WORDS, comments_of, group, text_of
from treadle.policy.shell.redirections import Redirections
from treadle.policy.shell.run import Runner
from treadle.policy.shell.sources import as_string, backquoted, has_background, last_of
from treadle.policy.shell.state import Frame, Function, Record, State, TooMuch
from treadle.policy.shell.words import MOST_READINGS, expand, fields

if TYPE_CHECKING:
    from tree_sitter import Node

_MOST_DEPTH = 12
_MOST_NESTING = 120
_ENDLESS = frozenset(("true", ":", "1", "[ 1 ]", "[[ 1 ]]", "((1))", "(( 1 ))", "[ true ]", "true;", ":;"))


class Walker:
    """One shell reading one text; `expand` asks it for everything an expansion needs (words.Surroundings)."""

    def __init__(self, record: Record, state: State, frame: Frame, heredocs: tuple[Heredoc, ...] = ()) -> None:
        self.record = record
        self.state = state
        self.frame = frame
        self.heredocs = heredocs
        self.nesting = 0
        self.attached: dict[int, list[Node]] = {}
        """Redirections that belong to a command which comes later."""
        self.sinks: list[Node] = []
        """Commands that read what the present command writes: `>(…)`."""
        self.runner = Runner(record, self)

    # ---- texts

    def text(self, text: str, stdin: str | None = None) -> str:
        """Judges a whole text; returns what it would print."""
        if self.frame.depth > _MOST_DEPTH:
            raise TooMuch("commands are nested deeper than is looked at")
        normal = normalise(text)
        root = self.record.parse(normal.text)
        self.heredocs = normal.heredocs
        if root.has_error:
            self.record.failed = True
            self.record.note("high", "a part of it cannot be read as shell text")
        elif not normal.sure or SPELLED in text or list(normal.comments) != comments_of(root):
            self.record.failed = True
            self.record.note("high", "it can be read in more than one way")
        return self.node(root, stdin)

    def nested(self, text: str, state: State, frame: Frame, stdin: str | None) -> str:
        return Walker(self.record, state, frame).text(text, stdin)

    def inlined(
        self, function: Function, arguments: tuple[str, ...], state: State, frame: Frame, stdin: str | None
    ) -> str:
        return Walker(self.record, state, frame, function.heredocs).call(function, arguments, stdin)

    def apart(self, text: str) -> Record:
        self.record.step(20)
        self.record.chars -= len(text)
        record = Record(300, min(4_000, max(self.record.chars, 0)))
        with contextlib.suppress(TooMuch):
            Walker(record, State(), Frame(depth=_MOST_DEPTH - 3)).text(text)
        return record

    # ---- statements

    def node(self, node: "Node", stdin: str | None = None) -> str:
        self.record.step()
        self.nesting += 1
        if self.nesting > _MOST_NESTING:
            raise TooMuch("it is nested deeper than is looked at")
        try:
            return self._statement(node, stdin)
        finally:
            self.nesting -= 1

    def _statement(self, node: "Node", stdin: str | None) -> str:
        if self.attached and node.id in self.attached:
            return self._with(node, self.attached.pop(node.id), stdin)
        match node.type:
            case "command":
                return self._command(node, stdin)
            case "pipeline":
                return self._pipeline(node, stdin)
            case "redirected_statement":
                return self._redirected(node, stdin)
            case "variable_assignment":
                self._assignment(node)
            case "declaration_command" | "unset_command":
                return self._declaration(node)
            case "subshell":
                return self._subshell(list(node.children), stdin)
            case "function_definition":
                self._define(node)
            case "for_statement":
                return self._for(node, stdin)
            case "while_statement" | "c_style_for_statement":
                self._endless(node)
                return self._branches(node, stdin)
            case "if_statement" | "case_statement":
                return self._branches(node, stdin)
            case "test_command":
                self.runner.tested(text_of(node), self.state, self.frame)
                return self._sequence(list(node.children), stdin)
            case "comment":
                pass
            case kind if kind in WORDS:
                expand([node], self)
            case _:
                return self._sequence(list(node.children), stdin)
        return ""

    @contextlib.contextmanager
    def _switched(self, frame: Frame) -> Iterator[None]:
        before, self.frame = self.frame, frame
        try:
            yield
        finally:
            self.frame = before

    def _sequence(self, nodes: "list[Node]", stdin: str | None = None) -> str:
        printed = []
        for at, node in enumerate(nodes):
            if not node.is_named:
                continue
            background = at + 1 < len(nodes) and text_of(nodes[at + 1]) == "&"
            with self._switched(self.frame.fork() if background else self.frame):
                printed.append(self.node(node, stdin))
        return "".join(printed)

    def _branches(self, node: "Node", stdin: str | None) -> str:
        with self._switched(self.frame.branching()):
            return self._sequence(list(node.children), stdin)

    def _subshell(self, nodes: "list[Node]", stdin: str | None = None) -> str:
        state = self.state
        self.state = state.copy()
        try:
            with self._switched(self.frame.fork()):
                return self._sequence(nodes, stdin)
        finally:
            self.state = state

    def _pipeline(self, node: "Node", stdin: str | None) -> str:
        printed = stdin
        with self._switched(self.frame.fork()):
            for child in node.named_children:
                printed = self.node(child, printed)
        return printed or ""

    def _redirected(self, node: "Node", stdin: str | None) -> str:
        body = node.child_by_field_name("body")
        redirects = [child for child in node.named_children if child != body]
        last = last_of(body) if body is not None else None
        if body is None or last is None or last == body:
            return self._with(body, redirects, stdin)
        self.attached[last.id] = redirects  # in `a && b > f` the grammar gives the redirection to both
        return self.node(body, stdin)

    def _with(self, body: "Node | None", redirects: "list[Node]", stdin: str | None) -> str:
        there = self._redirections(redirects)
        late = there.late(redirects)
        if body is None and late:
            return self._words(late, [], there, stdin)
        if body is None:
            self.runner.bare(there.writes, self.state, self.frame)
            return there.keep(self.state, "", known=True)
        if body.type == "command":
            return self._command(body, stdin, there, late)
        if there.writes:
            self.runner.bare(there.writes, self.state, self.frame)
        return there.keep(self.state, self.node(body, there.stdin if there.stdin is not None else stdin), known=True)

    def _redirections(self, nodes: "list[Node]") -> Redirections:
        found = Redirections()
        for node in nodes:
            operator = next((text_of(child) for child in node.children if not child.is_named), "")
            words = [child for child in node.named_children if child.type != "file_descriptor"]
            if node.type == "file_redirect" and words:
                self._redirection(operator, words[0], found)
            elif node.is_named:
                self.node(node)
        return found

    def _redirection(self, operator: str, word: "Node", found: Redirections) -> None:
        source = text_of(word)
        if source.startswith(MARK):
            number = placeholder(source)
            if number is None or number >= len(self.heredocs):
                found.stdin = expand([word], self)[0].removeprefix(MARK).replace(NEXT, " ") + "\n"
                return
            heredoc = self.heredocs[number]
            found.stdin = heredoc.body if heredoc.literal else self._expand_body(heredoc.body)
            return
        for reading in expand([word], self):
            found.add(operator, reading.split(NEXT)[0], self.state)
        self.runner.read_from(found.reads, self.state)

    # ---- simple commands

    def _command(
        self, node: "Node", stdin: str | None, there: Redirections | None = None, late: "Sequence[Node]" = ()
    ) -> str:
        words: list[Node] = []
        redirects: list[Node] = []
        assigned: list[tuple[str, tuple[str, ...]]] = []
        for child in node.children:
            if child.type == "variable_assignment" and not words:
                assigned.append(self._value_of(child))
            elif child.type in ("file_redirect", "herestring_redirect", "heredoc_redirect"):
                redirects.append(child)
            elif child.type in ("(", ")"):
                self.confused()
            else:
                words.append(child)
        inner = self._redirections(redirects)
        words += [*inner.late(redirects), *late]
        return self._words(words, assigned, inner if there is None else there.joined(inner), stdin)

    def _words(
        self, words: "list[Node]", assigned: list[tuple[str, tuple[str, ...]]], there: Redirections, stdin: str | None
    ) -> str:
        stdin = there.stdin if there.stdin is not None else stdin
        printed = ""
        for argv in itertools.islice(self._readings(words), MOST_READINGS):
            printed = self.runner.command(argv, assigned, there.writes, stdin, self.state, self.frame)
        sinks, self.sinks = self.sinks, []
        for sink in sinks:
            self._subshell(list(sink.children), f"{stdin or ''}\n{printed}")
        return there.keep(self.state, printed, known=UNKNOWN not in printed)

    def _readings(self, words: "list[Node]") -> Iterator[tuple[str, ...]]:
        choices = [fields(each, self) for each in group(words)]
        for chosen in itertools.product(*choices):
            yield tuple(word for part in chosen for word in part)

    def _value_of(self, node: "Node") -> tuple[str, tuple[str, ...]]:
        name = node.child_by_field_name("name")
        value = node.child_by_field_name("value")
        target = text_of(name) if name is not None else ""
        if value is None:
            values: tuple[str, ...] = ("",)
        elif value.type == "array":
            readings = [fields(each, self) for each in group(list(value.named_children))]
            values = (NEXT.join(word for each in readings for word in each[0]),)
        else:
            values = tuple(each.replace(NEXT, " ") for each in expand([value], self))
        if any(text_of(child) == "+=" for child in node.children if not child.is_named):
            array = NEXT if value is not None and value.type == "array" else ""
            values = tuple(f"{old}{array}{new}" for old in self.state.value(target) for new in values)[:MOST_READINGS]
        return target, values

    def _assignment(self, node: "Node") -> None:
        name, values = self._value_of(node)
        self.assign(name, values)
        self.runner.assigned(name, values, self.state, self.frame)

    def _declaration(self, node: "Node") -> str:
        """export, declare, local, readonly, unset: assignments, and words that may be anything."""
        argv = [text_of(node.children[0])]
        for child in node.named_children:
            if child.type == "variable_assignment":
                self._assignment(child)
                name, _, value = text_of(child).partition("=")
                argv.append(name)
                if any(re.fullmatch(r"-\w*n\w*", word) for word in argv[1:-1]):
                    self.state.references[name] = value.strip("'\"")
            elif child.type in WORDS:
                argv += [word for each in fields([child], self)[:1] for word in each]
            else:
                self.node(child)
        return self.runner.command(tuple(argv), [], (), None, self.state, self.frame)

    # ---- functions and loops

    def _define(self, node: "Node") -> None:
        name = node.child_by_field_name("name")
        body = node.child_by_field_name("body")
        if name is None or body is None:
            self.record.note("high", "a function cannot be read")
            return
        title = expand([name], self)[0]
        redirects = [child for child in node.named_children if child not in (name, body)]
        self.runner.bare(self._redirections(redirects).writes, self.state, self.frame)
        function = Function(title, body, self.heredocs)
        self.state.functions[title] = function
        self.runner.redefined(title)
        with self._switched(self.frame.calling(function)):
            self.call(function, (UNKNOWN,), None)

    def call(self, function: Function, arguments: tuple[str, ...], stdin: str | None) -> str:
        old = self.state.variables.get("@")
        self.state.variables["@"] = (NEXT.join(arguments),)
        try:
            if isinstance(function.body, str):
                return self.text(function.body, stdin)
            return self.node(function.body, stdin)
        finally:
            if old is None:
                self.state.variables.pop("@", None)
            else:
                self.state.variables["@"] = old

    def _for(self, node: "Node", stdin: str | None) -> str:
        name = node.child_by_field_name("variable")
        body = node.child_by_field_name("body")
        values: list[str] = []
        for words in group([child for child in node.named_children if child not in (name, body)]):
            values += [word for reading in fields(words, self) for word in reading]
        self.state.assign(text_of(name) if name else "", tuple(values) or (UNKNOWN,), branch=False)
        with self._switched(self.frame.branching()):
            return self.node(body, stdin) if body is not None else ""

    def _endless(self, node: "Node") -> None:
        condition = node.child_by_field_name("condition")
        text = text_of(condition).strip() if condition is not None else ""
        until = node.child_count > 0 and text_of(node.children[0]) == "until"
        endless = text == "false" if until else text in _ENDLESS or (condition is None and node.type[0] == "c")
        body = node.child_by_field_name("body")
        if endless and body is not None and has_background(body):
            self.record.note("critical", "starts processes without end")

    # ---- what expansions ask for (words.Surroundings)

    def value(self, name: str) -> tuple[str, ...]:
        self.runner.looked_up(name, self.state)
        return self.state.value(name)

    def assign(self, name: str, values: tuple[str, ...]) -> None:
        self.state.assign(name, values, branch=self.frame.branch)

    def capture(self, node: "Node") -> str:
        source = text_of(node)
        if source.startswith("`"):
            state, inner = self.state.copy(), backquoted(source)
            return self.nested(inner, state, self.frame.fork().inside("`"), None).rstrip("\n")
        files = [child for child in node.named_children if child.type == "file_redirect"]
        if node.type == "command_substitution" and files and len(node.named_children) == 1:
            return self._redirections(files).stdin or UNKNOWN
        if source.startswith(">"):
            self.sinks.append(node)
            return self.runner.keep_file(UNKNOWN, self.state)
        printed = self._subshell(list(node.children))
        if node.type == "process_substitution":
            return self.runner.keep_file(printed, self.state)
        return printed.rstrip("\n")

    def inspect(self, node: "Node") -> None:
        for child in node.named_children:
            self.node(child)

    def expand_text(self, text: str) -> tuple[str, ...]:
        if not any(c in text for c in "$`\\'\""):
            return (text,)
        source = text if text.startswith('"') else f'"{text}"' if '"' not in text and "'" not in text else text
        return self._expand_source(f": {source}")

    def _expand_body(self, body: str) -> str:
        """A here-document's body, in which substitutions may hold further here-documents."""
        normal = normalise(f": {as_string(body)}")
        if not normal.sure:
            self.confused()
        outer, self.heredocs = self.heredocs, normal.heredocs
        try:
            return self._expand_source(normal.text)[0]
        finally:
            self.heredocs = outer

    def _expand_source(self, source: str) -> tuple[str, ...]:
        root = self.record.parse(source)
        command = root.named_children[0] if root.named_child_count else None
        words = list(command.children[1:]) if command is not None and command.type == "command" else []
        if root.has_error or not words:
            self.confused()
            return (UNKNOWN,)
        return tuple(" ".join(each) for each in itertools.islice(self._readings(words), MOST_READINGS))

    def confused(self) -> None:
        self.record.failed = True
        self.record.note("high", "a part of it cannot be read as shell text")

    def prompt(self, text: str) -> None:
        self.nested(f': "{text}"', self.state.copy(), self.frame.inside("prompt"), None)
