"""Check names, sentences and sizes: `python -m scripts.check_style [--list]`. `make check` runs it.

The limits stand in `pyproject.toml` under `[tool.treadle.style]`, one table a folder. A vague name is a participle
or pronoun alone (`told`, `found`, `Which`), of a function also any single word in -ed (`ruled`): it cannot be searched
for and says neither what a thing is nor what a function does. A function without a verb does not begin with a word of
`verbs.txt` or a prefix such as `is_`. A vague sentence begins with "What", "Who" or "Whether", or speaks of "nobody"
or "whoever"."""

import ast
import io
import re
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PARTICIPLES = """
    added answered asked begun bound brought called came changed chosen closed come cut decided done drawn ended felt
    found given gone got heard held hidden kept known laid led left lost made meant moved named offered opened passed
    placed removed rested said seen sent settled shown spoken started stood taken thought told tried understood used
    wanted went written
"""
PRONOUNS = """
    after ahead apart before behind beside can far how may must near nobody other others own rest same somebody then
    thus twice what when where whether which who whole whom whose why
"""
VAGUE = frozenset(f"{PARTICIPLES} {PRONOUNS}".split())
VAGUE_NAMES = dict.fromkeys(("vague_functions", "vague_parameters", "vague_locals"), VAGUE)
VAGUE_NAMES["vague_classes"] = VAGUE | {"run", "read"}
SENTENCE_END = re.compile(r"(?<=[.;:])\s+")
VAGUE_SENTENCE = re.compile(
    r"^\s*(what|who|whoever|whether|whatever)\b|\b(nobody|somebody|whoever|whatever|thereby)\b", re.I
)
VERBS_IN_ED = frozenset(["embed", "exceed", "feed", "need", "proceed", "seed"])
VERBS = frozenset((Path(__file__).parent / "verbs.txt").read_text("utf-8").split())
OTHER_BEGINNINGS = ("__", "action_", "as_", "can_", "from_", "has_", "is_", "on_", "test_", "to_")
UNLIMITED_FILES = ("__init__.py", "__main__.py", "_version.py", "start.py")


class Finding(NamedTuple):
    limit: str
    """The limit in `pyproject.toml` that counts it."""
    place: str
    text: str


def find_in_module(path: Path, source: str) -> Iterator[Finding]:
    """Yield the vague names and sentences of a module, and its functions."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        for limit, name in names_of(node):
            word = (name.lower() if limit == "vague_classes" else name).strip("_")
            is_vague = word in VAGUE_NAMES[limit] or (limit == "vague_functions" and is_participle(word))
            if is_vague and not (is_property(node) and word not in VAGUE):
                yield Finding(limit, f"{path}:{node.lineno}", name)  # type: ignore[attr-defined]
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if not (has_verb(node.name) or is_property(node)):
                yield Finding("functions_without_verb", f"{path}:{node.lineno}", node.name)
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            yield Finding("function_lines", f"{path}:{node.lineno}", f"{node.name} has {length} lines")
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            for sentence in filter(VAGUE_SENTENCE.search, SENTENCE_END.split(node.value.value)):
                yield Finding("vague_sentences", f"{path}:{node.lineno}", " ".join(sentence.split())[:100])
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and VAGUE_SENTENCE.search(token.string.lstrip("# ")):
            yield Finding("vague_sentences", f"{path}:{token.start[0]}", token.string[:100])


def names_of(node: ast.AST) -> Iterator[tuple[str, str]]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            yield "vague_functions", name
        case ast.ClassDef(name=name):
            yield "vague_classes", name
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.arg(arg=name):
            yield "vague_parameters", name
        case ast.Name(id=name, ctx=ast.Store()) | ast.MatchAs(name=str(name)) | ast.ExceptHandler(name=str(name)):
            yield "vague_locals", name


def is_participle(word: str) -> bool:
    return word.endswith("ed") and word.isalpha() and word not in VERBS_IN_ED


def has_verb(name: str) -> bool:
    words = name.strip("_")
    return name.startswith("__") or words.startswith(OTHER_BEGINNINGS) or words.partition("_")[0] in VERBS


def is_property(node: ast.AST) -> bool:
    decorators = getattr(node, "decorator_list", ())
    return any("property" in ast.unparse(decorator) for decorator in decorators)


def count_importers(sources: dict[Path, str]) -> Counter[str]:
    """Count for each module of the package the modules that import it."""
    modules = {".".join(path.with_suffix("").parts[1:]).removesuffix(".__init__"): path for path in sources}
    importers: Counter[str] = Counter({name: 0 for name, path in modules.items() if path.name != "__init__.py"})
    for source in sources.values():
        imported: set[str] = set()
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Import):
                imported.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module)
                imported.update(f"{node.module}.{alias.name}" for alias in node.names)
        importers.update(imported & importers.keys())
    return importers


def check_folder(folder: str, limits: dict[str, int]) -> Iterator[str]:
    """Yield a line for each limit that is exceeded."""
    sources = {path.relative_to(ROOT): path.read_text("utf-8") for path in sorted((ROOT / folder).rglob("*.py"))}
    findings = [finding for path, source in sources.items() for finding in find_in_module(path, source)]
    lengths = {path: source.count("\n") for path, source in sources.items()}
    for name, limit in limits.items():
        if name == "lines":
            if (total := sum(lengths.values())) > limit:
                yield f"{folder}: {total:,} lines, at most {limit:,}"
        elif name == "module_lines":
            yield from (
                f"{path}: {length} lines, at most {limit}" for path, length in lengths.items() if length > limit
            )
        elif name == "least_module_lines":
            small = {path: length for path, length in lengths.items() if path.name not in UNLIMITED_FILES}
            yield from (f"{path}: {length} lines, at least {limit}" for path, length in small.items() if length < limit)
        elif name == "single_importer_modules":
            single = [module for module, count in count_importers(sources).items() if count == 1]
            if len(single) > limit:
                yield f"{folder}: {len(single)} modules have one importer, at most {limit}"
        elif name == "function_lines":
            functions = (finding for finding in findings if finding.limit == name)
            yield from (f"{each.place}: {each.text}" for each in functions if int(each.text.split()[-2]) > limit)
        elif (found_count := sum(finding.limit == name for finding in findings)) > limit:
            yield f"{folder}: {found_count} {name.replace('_', ' ')}, at most {limit}; see --list"
            if limit < 20 or "--list" in sys.argv:
                yield from (f"  {each.place}: {each.text}" for each in findings if each.limit == name)


def main() -> int:
    tables = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["treadle"]["style"]
    problems = [line for folder, limits in tables.items() for line in check_folder(folder, limits)]
    for line in problems:
        print(line, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
