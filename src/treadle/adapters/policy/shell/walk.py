"""Walks a shell text in the order in which bash would run it, and rates every simple command. Both sides of a branch
are read, loops once, functions where they are defined. Nothing is run; text that cannot be parsed is never harmless."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from treadle.adapters.policy.shell import model, parse
from treadle.adapters.policy.shell.model import UNKNOWN, Rating, mask_unknown, parse_names, select_worst
from treadle.adapters.policy.shell.places import HOME, rate_read, rate_setting, rate_write, resolve, ruin
from treadle.adapters.policy.shell.programs import is_known, judge, parse_program_name

if TYPE_CHECKING:
    from tree_sitter import Node

_MOST_CHARS = 10_000
_PATTERN = re.compile(r"[*?]|\[.+\]")
_KEYWORDS = parse_names("! { } if then elif else fi for while until do done case esac in select function")
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.S)
_DESCRIPTOR = re.compile(r"\{([A-Za-z_]\w*)\}")  # as in `{fd}>file`, which sets the variable to 10 or more
_MOST_DEPTH = 12
_MOST_NESTING = 120
_ENDLESS = frozenset(("true", ":", "1", "[ 1 ]", "[[ 1 ]]", "((1))", "(( 1 ))", "[ true ]", "true;", ":;"))
_UNREADABLE = "a part of it cannot be read as shell text"
_EVALUATED = re.compile(r"\s-[vR]\s|^\[\[.*\s-(?:eq|ne|lt|le|gt|ge)\s", re.S)
_REDIRECTS = ("file_redirect", "herestring_redirect", "heredoc_redirect")


class TooMuch(Exception):
    """The text is longer, deeper or more branched than is worth following."""


class Scope(msgspec.Struct, frozen=True):
    wrapped_by: tuple[str, ...] = ()
    depth: int = 0
    captured: bool = False  # true if its output becomes a word of another command

    def enter_program(self, program: str) -> "Scope":
        return msgspec.structs.replace(self, wrapped_by=(*self.wrapped_by, program), depth=self.depth + 1)


class ShellMemory(msgspec.Struct):
    """The directory of a shell. A subshell gets a copy."""

    cwd: str = "."


class Record:
    def __init__(self) -> None:
        self.parts: list[model.Part] = []
        self.notes: list[Rating] = []
        self.words: list[tuple[str, str]] = []
        """Pairs of program ("" for a redirection, "=" for a variable) and word, for the search for paths."""
        self.variables: list[tuple[str, str]] = []  # the variables that get a literal value, with it, in their order
        self.calls: dict[str, set[str]] = {}  # the names that each function calls
        self.forking: set[str] = set()
        self.steps = 6_000
        self.chars = 30_000
        """The characters that may still be parsed: on text that is not shell, time grows quadratically."""
        self.failed = False
        self.unseen = False

    def count_step(self, weight: int = 1) -> None:
        self.steps -= weight
        if self.steps < 0:
            raise TooMuch("it has more parts than are looked at")

    def parse(self, text: str) -> "Node":
        self.chars -= len(text)
        if len(text) > _MOST_CHARS or self.chars < 0:
            raise TooMuch("it is longer than is looked at")
        return parse.parse(text)

    def note(self, severity: model.Severity, reason: str) -> None:
        self.notes.append(Rating(severity, reason))

    def fail(self, reason: str) -> None:
        self.failed = True
        self.note("high", reason)

    def is_recursive(self, function: str) -> bool:
        """True if the function calls itself, directly or through functions known so far."""
        reached: set[str] = set()
        while more := {callee for name in reached or {function} for callee in self.calls.get(name, ())} - reached:
            reached |= more
        return function in reached

    def note_evaluation(self, text: str) -> None:
        self.unseen = True
        self.notes += [Rating("medium", "the shell evaluates a part of it, and may run commands by that"), *ruin(text)]


class Simple(msgspec.Struct, frozen=True):
    argv: tuple[str, ...] = ()
    assigned: tuple[tuple[str, str], ...] = ()
    writes: tuple[str, ...] = ()
    stdin: str | None = None
    text: str = ""


class Redirections(msgspec.Struct, frozen=True):
    stdin: str | None = None
    writes: tuple[str, ...] = ()
    late: "tuple[Node, ...]" = ()  # words behind a redirection, which the grammar takes for targets: `> f rm`


class Walker:
    """One shell that reads one text. Implements `parse.WordReader`."""

    def __init__(self, record: Record, shell: ShellMemory, scope: Scope) -> None:
        self.record, self.shell, self.scope = record, shell, scope
        self.heredocs: tuple[parse.Heredoc, ...] = ()
        self.nesting = 0
        self.attached: dict[int, list[Node]] = {}  # redirections that belong to a command which comes later

    def walk_text(self, text: str, stdin: str | None = None) -> None:
        if self.scope.depth > _MOST_DEPTH:
            raise TooMuch("commands are nested deeper than is looked at")
        normal = parse.normalise(text)
        root = self.record.parse(normal.text)
        self.heredocs = normal.heredocs
        if root.has_error:
            self.record.fail(_UNREADABLE)
        elif not normal.sure or parse.SPELLED in text or list(normal.comments) != parse.list_comments(root, text):
            self.record.fail("it can be read in more than one way")
        self.walk_node(root, stdin)

    # ---- statements
    def walk_node(self, node: "Node", stdin: str | None = None) -> str:
        """Reads a statement; returns what it prints, as far as that is literal."""
        self.record.count_step()
        self.nesting += 1
        if self.nesting > _MOST_NESTING:
            raise TooMuch("it is nested deeper than is looked at")
        printed = self._walk_statement(node, stdin)
        self.nesting -= 1
        return printed or UNKNOWN

    def _walk_statement(self, node: "Node", stdin: str | None) -> str | None:
        if self.attached and node.id in self.attached:
            return self._walk_with_redirects(node, self.attached.pop(node.id), stdin)
        match node.type:
            case "command":
                return self._walk_command(node, stdin, Redirections())
            case "pipeline":
                printed, shell = stdin, self.shell
                for child in node.named_children:
                    self.shell = ShellMemory(shell.cwd)
                    printed = self.walk_node(child, printed)
                self.shell = shell
                return printed
            case "redirected_statement":
                return self._walk_redirected_statement(node, stdin)
            case "variable_assignment":
                self._run_simple(Simple(assigned=(self._read_assignment(node),), text=parse.get_text(node)))
            case "declaration_command" | "unset_command":
                self._walk_declaration(node)
            case "subshell":
                self._walk_subshell(node, stdin)
            case "function_definition":
                self._define(node)
            case "for_statement":
                self._walk_for(node, stdin)
            case "while_statement" | "c_style_for_statement":
                self._loop(node, stdin)
            case "test_command":
                parse.descend(node, self)
                if _EVALUATED.search(parse.get_text(node)):
                    self.note_evaluation(parse.get_text(node))
            case "compound_statement" if parse.get_text(node).startswith("(("):
                parse.walk_arithmetic(node, self)
            case "comment":
                pass
            case kind if kind in parse.WORDS:
                self._mention(parse.read_word([node], self))
            case _:
                return self._walk_sequence(node, stdin)
        return None

    def _walk_sequence(self, parent: "Node", stdin: str | None = None) -> str | None:
        printed = [self.walk_node(node, stdin) for node in parent.named_children]
        return printed[0] if len(printed) == 1 else None

    def _walk_subshell(self, node: "Node", stdin: str | None = None, *, captured: bool = False) -> None:
        saved_state = self.shell, self.scope
        self.shell, self.scope = ShellMemory(self.shell.cwd), self._make_scope(captured)
        self._walk_sequence(node, stdin)
        self.shell, self.scope = saved_state

    def _make_scope(self, captured: bool) -> Scope:
        return msgspec.structs.replace(self.scope, captured=self.scope.captured or captured)

    def _walk_redirected_statement(self, node: "Node", stdin: str | None) -> str | None:
        body = last = node.child_by_field_name("body")
        redirects = [child for child in node.named_children if child != body]
        while last is not None and last.type in ("list", "pipeline", "negated_command") and last.named_child_count:
            last = last.named_children[-1]
        if body is None or last is None or last == body:
            return self._walk_with_redirects(body, redirects, stdin)
        self.attached[last.id] = redirects  # in `a && b > f` the grammar gives the redirection to both
        return self.walk_node(body, stdin)

    def _walk_with_redirects(self, body: "Node | None", redirects: "list[Node]", stdin: str | None) -> str | None:
        there = self._read_redirections(redirects, Redirections())
        if body is not None and body.type == "command":
            return self._walk_command(body, stdin, there)
        if there.late:
            return self._walk_words([], there, stdin)
        if there.writes:
            self._run_simple(Simple(writes=there.writes))
        if body is not None:
            self.walk_node(body, there.stdin if there.stdin is not None else stdin)
        return None

    def _read_redirections(self, nodes: "Sequence[Node]", there: Redirections) -> Redirections:
        stdin, writes, late = there.stdin, there.writes, there.late
        for node in nodes:
            operator = next((child.type for child in node.children if not child.is_named), "")
            targets = [child for child in node.named_children if child.type != "file_descriptor"]
            if node.type != "file_redirect" or not targets:
                if not operator.endswith("&-"):  # which closes a file
                    self.mark_unreadable()
                continue
            late += tuple(targets[1:])
            if parse.get_text(targets[0]).startswith(parse.MARK):
                stdin = self._read_here_text(targets[0])
                continue
            place = parse.read_word(targets[:1], self)
            if operator in ("<", "<&"):
                stdin = "" if place == "/dev/null" else UNKNOWN
                self.record.words.append(("", place))
                self.record.notes += [rating] if (rating := rate_read(place, self.shell.cwd)) else []
            elif not (operator == ">&" and place.strip("-").isdigit()):
                writes += (UNKNOWN if re.search(r"[*?\[]", place) else place,)
        return Redirections(stdin, writes, late)

    def _read_here_text(self, target: "Node") -> str:
        number = parse.parse_placeholder(parse.get_text(target))
        if number is None or number >= len(self.heredocs):
            return parse.read_word([target], self).removeprefix(parse.MARK) + "\n"
        heredoc = self.heredocs[number]
        if heredoc.literal or not re.search(r"[$`]", heredoc.body):
            return heredoc.body
        nests = re.search(r"\$[({\[]|[`\\]", heredoc.body)
        root = self.record.parse(': "{}"'.format(heredoc.body if nests else heredoc.body.replace('"', '\\"')))
        command = root.named_children[0] if root.named_child_count else None
        unclear = root.has_error or (nests and re.search('"|<<', heredoc.body))
        if unclear or command is None or command.type != "command":
            self.mark_unreadable()
            return UNKNOWN
        return " ".join(parse.read_word(each, self) for each in parse.group_nodes(command.children[1:]))

    # ---- simple commands
    def _walk_command(self, node: "Node", stdin: str | None, there: Redirections) -> str | None:
        words: list[Node] = []
        redirects: list[Node] = []
        assigned: list[tuple[str, str]] = []
        for child in node.children:
            if child.type == "variable_assignment" and not words:
                assigned.append(self._read_assignment(child))
            elif child.type in _REDIRECTS:
                redirects.append(child)
            elif child.type in ("(", ")"):
                self.mark_unreadable()
            else:
                words.append(child)
        return self._walk_words(
            words, self._read_redirections(redirects, there), stdin, tuple(assigned), parse.get_text(node)
        )

    def _walk_words(
        self, words: "list[Node]", there: Redirections, stdin: str | None, assigned: tuple[tuple[str, str], ...] = (),
        text: str = "",
    ) -> str | None:  # fmt: skip
        stdin = there.stdin if there.stdin is not None else stdin
        argv = tuple([parse.read_word(each, self) for each in parse.group_nodes([*words, *there.late])])
        assigned += tuple((match[1], "10") for word in argv if (match := _DESCRIPTOR.fullmatch(word)))
        self._run_simple(Simple(argv, assigned, there.writes, stdin, text=text))
        if argv[:1] == ("echo",) and not there.writes and not "".join(argv[1:2]).startswith("-"):
            return " ".join(argv[1:]) + "\n"
        return stdin if argv == ("cat",) and not there.writes else None

    def _run_simple(self, simple: Simple) -> None:
        self._run_command(simple, self.shell, self.scope)

    def _mention(self, text: str, name: str = "") -> None:
        """A word that no command gets: it matters if it sets what programs obey."""
        self.record.words.append(("=", text))
        self.record.variables += [(name, text)] if name and UNKNOWN not in text else []
        if rate_setting(name, text):
            self._run_simple(Simple(assigned=((name, text),)))

    def _read_assignment(self, node: "Node") -> tuple[str, str]:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        title = parse.get_text(name) if name is not None else ""
        if name is not None and name.type == "subscript":
            parse.descend(name, self)
            self.note_evaluation(title)
        if value is not None and value.type == "array" and "[" in parse.get_text(value):
            self.note_evaluation(parse.get_text(value))
        values = list(value.named_children) if value is not None and value.type == "array" else [value] if value else []
        return title.partition("[")[0], " ".join(parse.read_word(each, self) for each in parse.group_nodes(values))

    def _walk_declaration(self, node: "Node") -> None:
        """export, declare, local, readonly, unset: assignments, and words that may be anything."""
        argv = [parse.get_text(node.children[0])]
        for each in parse.group_nodes(node.children[1:]):
            if each[0].type == "variable_assignment":
                variable = self._read_assignment(each[0])
                self._run_simple(Simple(assigned=(variable,)))
                argv.append(variable[0])
            else:
                argv.append(parse.read_word(each, self))
        self._run_simple(Simple(tuple(argv), text=parse.get_text(node)))

    # ---- programs
    def _run_command(self, simple: Simple, shell: ShellMemory, scope: Scope) -> None:
        self.record.count_step(4)
        while simple.argv and scope.wrapped_by and (match := _ASSIGNED.fullmatch(simple.argv[0])):
            assigned = (*simple.assigned, (match[1], match[2]))
            simple = msgspec.structs.replace(simple, argv=simple.argv[1:], assigned=assigned)
        if simple.argv and simple.argv[0] in _KEYWORDS:  # the grammar took a keyword for a program, as in `! ! ls`
            self.record.fail("a part of it cannot be read as shell text")
            return self._run_command(msgspec.structs.replace(simple, argv=simple.argv[1:]), shell, scope)
        meanings: list[model.Meaning] = [
            rating for name, value in simple.assigned for rating in rate_setting(name, value)
        ]
        meanings += [rating for place in simple.writes if (rating := rate_write(place, shell.cwd))]
        if simple.argv:
            meanings += self._judge_program(simple, shell)
        self._record_part(simple, [each for each in meanings if isinstance(each, Rating)], scope)
        for meaning in meanings:
            if isinstance(meaning, model.NestedCommand) and meaning.argv:
                there = shell if meaning.cwd is None else ShellMemory(resolve(meaning.cwd, shell.cwd))
                inner = Simple(meaning.argv, stdin=meaning.stdin)
                self._run_command(inner, there, scope.enter_program(mask_unknown(simple.argv[0])))
            elif isinstance(meaning, model.Script) and meaning.text.strip(UNKNOWN + " \n\t"):
                there = shell if simple.argv[0] in ("eval", "trap") else ShellMemory(shell.cwd)
                stdin = None if meaning.text == simple.stdin else simple.stdin
                Walker(self.record, there, scope.enter_program(mask_unknown(simple.argv[0]))).walk_text(
                    meaning.text, stdin
                )

    def _judge_program(self, simple: Simple, shell: ShellMemory) -> list[model.Meaning]:
        name, args = simple.argv[0], simple.argv[1:]
        if UNKNOWN in name or (_PATTERN.search(name) and name not in ("[", "[[")):
            return self._judge_unknown_program(simple, shell)
        base, usual = parse_program_name(name)
        if base in ("cd", "pushd"):
            operands = [word for word in args if word == "-" or not word.startswith("-")]
            path = resolve(UNKNOWN if operands[:1] == ["-"] else operands[0] if operands else "~", shell.cwd)
            shell.cwd = "~" + path[len(HOME) :] if path.startswith(HOME) else path
        call = model.ShellCall(base, args, shell.cwd, simple.stdin)
        if usual:
            return [*judge(call)]
        reason = f"{mask_unknown(name)} is a program in another folder, despite its name"
        return [Rating("medium", reason, unseen=True), *(judge(call) if is_known(base) else ruin(call.line))]

    def _judge_unknown_program(self, simple: Simple, shell: ShellMemory) -> list[model.Meaning]:
        """The name is not literal: it may be nothing, and the next word the program; or it may be rm."""
        name, arguments = simple.argv[0].replace(UNKNOWN, ""), simple.argv[1:]
        meanings: list[model.Meaning] = [
            Rating("high", "which program runs is not known before it does", unseen=True, hides_commands=True),
            *ruin(" ".join(simple.argv)),
        ]
        as_rm = judge(model.ShellCall("rm", arguments, shell.cwd))
        meanings += [each for each in as_rm if isinstance(each, Rating) and each.severity == "critical"]
        if not _PATTERN.search(name):
            meanings.append(model.NestedCommand((name, *arguments) if name else arguments))
        return meanings

    def _record_part(self, simple: Simple, ratings: list[Rating], scope: Scope) -> None:
        name, usual = parse_program_name(simple.argv[0]) if simple.argv else ("", True)
        program = name if usual else simple.argv[0]
        self.record.parts.append(
            model.Part(
                program=mask_unknown(program),
                words=tuple([mask_unknown(word) for word in simple.argv]),
                unknown=UNKNOWN in "".join((*simple.argv, *simple.writes, *(value for _, value in simple.assigned))),
                wrapped_by=scope.wrapped_by,
                writes=tuple([mask_unknown(place) for place in simple.writes]),
                assigns=tuple([variable for variable, _ in simple.assigned]),
                severity=select_worst([each.severity for each in ratings]),
                reasons=tuple(dict.fromkeys([each.reason for each in ratings if each.severity != "none"])),
                network=any([each.network for each in ratings]),
                text=simple.text,
                reads_input=bool(simple.stdin),
                hides_commands=any([each.hides_commands for each in ratings]),
            )
        )
        self.record.unseen |= any([each.unseen for each in ratings])
        self.record.words += [("=", value) for _, value in simple.assigned]
        self.record.variables += [each for each in simple.assigned if UNKNOWN not in each[1]]
        self.record.words += [("" if scope.captured else program, word) for word in simple.argv[1:]]
        self.record.words += [("", place) for place in simple.writes]

    # ---- functions and loops
    def _define(self, node: "Node") -> None:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is None or body is None:
            self.record.fail("a function cannot be read")
            return
        title = parse.read_word([name], self)
        redirects = [child for child in node.named_children if child not in (name, body)]
        there = self._read_redirections(redirects, Redirections())
        if there.writes:
            self._run_simple(Simple(writes=there.writes))
        cwd, scope, part_count = self.shell.cwd, self.scope, len(self.record.parts)
        self.scope = msgspec.structs.replace(scope, wrapped_by=(*scope.wrapped_by, title))
        self.walk_node(body)
        self.shell.cwd, self.scope = cwd, scope
        callees = {part.program for part in self.record.parts[part_count:]}
        self.record.calls[title] = callees | self.record.calls.get(title, set())
        self.record.forking |= {title} if parse.has_fork(body) else set()
        if any(map(self.record.is_recursive, self.record.forking)):
            self.record.note("critical", f"{title} starts itself again and again: a fork bomb")

    def _walk_for(self, node: "Node", stdin: str | None) -> None:
        name, body = node.child_by_field_name("variable"), node.child_by_field_name("body")
        values = parse.group_nodes([child for child in node.named_children if child not in (name, body)])
        self._mention(" ".join(parse.read_word(each, self) for each in values), parse.get_text(name) if name else "")
        if body is not None:
            self._walk_sequence(body, stdin)

    def _loop(self, node: "Node", stdin: str | None) -> None:
        condition, body = node.child_by_field_name("condition"), node.child_by_field_name("body")
        text = parse.get_text(condition).strip() if condition is not None else ""
        counted = node.type == "c_style_for_statement"
        until = node.children[0].type == "until"
        endless = text == "false" if until else text in _ENDLESS or (condition is None and counted)
        if endless and body is not None and parse.has_fork(body, ("&",)):
            self.record.note("critical", "starts processes without end")
        if counted and body is not None:
            self.note_evaluation(parse.get_text(node)[: body.start_byte - node.start_byte])
        self._walk_sequence(body if counted and body is not None else node, stdin)

    # ---- what words ask for (parse.WordReader)
    def walk_substitution(self, node: "Node") -> None:
        source = parse.get_text(node)
        if source.startswith("`") or (source.startswith("$(") and "<<" in source):
            inner = re.sub(r"\\([\\`$])", r"\1", source[1:].removesuffix("`")) if source[0] == "`" else source[2:-1]
            self.record.notes += ruin(inner) if "<<" in inner else ()
            Walker(self.record, ShellMemory(self.shell.cwd), self._make_scope(True).enter_program(source[0])).walk_text(
                inner
            )
        elif node.named_children and all(child.type == "file_redirect" for child in node.named_children):
            self._read_redirections(node.named_children, Redirections())
        else:
            self._walk_subshell(node, UNKNOWN if source.startswith(">") else None, captured=True)

    def note_evaluation(self, text: str) -> None:
        self.record.note_evaluation(text)

    def mark_unreadable(self) -> None:
        self.record.fail(_UNREADABLE)
