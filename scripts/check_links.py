"""Find dead links in the Markdown files: relative targets and `#anchors` must exist, and so must what a code span names
in `src/`, `tests/`, `bench/`, `scripts/` or `docs/`. The changelog may name what once was.

Addresses with a scheme are not followed; code blocks are not read.
Anchors follow GitHub's rules for headings.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})[^\n]*\n.*?(?:^ {0,3}\1[`~]*[ \t]*$|\Z)", re.M | re.S)
COMMENT = re.compile(r"<!--.*?-->", re.S)
SPAN = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.S)
OWN_FILE = re.compile(r"`((?:src|tests|bench|scripts|docs)/[\w./-]+)`")
HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+(.+?)(?:[ \t]+#+)?[ \t]*$", re.M)
SETEXT = re.compile(r"^(?! {0,3}(?:[-=#>|]|\s))([^\n]+)\n {0,3}(?:=+|-+)[ \t]*$", re.M)
HTML_ANCHOR = re.compile(r"""<[a-z]\w*\s[^>]*?\b(?:id|name)=["']([^"']+)["']""", re.I)
INLINE = re.compile(r"\]\(\s*(?:<([^>\n]*)>|((?:[^\s()]|\([^\s()]*\))+))[^)\n]*\)")
REFERENCE = re.compile(r"^ {0,3}\[[^\]\n^][^\]\n]*\]:[ \t]*<?([^\s>]+)", re.M)
HTML_LINK = re.compile(r"""<(?:a|img|source)\s[^>]*?\b(?:href|src)=["']([^"']+)["']""", re.I)
SCHEME = re.compile(r"^(?:[a-z][a-z0-9+.-]*:|//)", re.I)


def markdown_files(root: Path) -> list[Path]:
    """The files that are checked: `*.md` beside the README, and all of `docs/`."""
    return sorted([*root.glob("*.md"), *root.glob("docs/**/*.md")])


def slug(heading: str) -> str:
    """The anchor GitHub gives a heading."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    text = re.sub(r"<[^>]+>", "", text).replace("`", "").replace("*", "")
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")


def anchors(text: str) -> set[str]:
    """Every anchor of a Markdown text; a repeated heading gets `-1`, `-2`, …"""
    text = COMMENT.sub("", FENCE.sub("", text))
    found = {match[1] for match in HTML_ANCHOR.finditer(text)}
    seen: dict[str, int] = {}
    headings = sorted([*HEADING.finditer(text), *SETEXT.finditer(text)], key=lambda match: match.start())
    for match in headings:
        name = slug(match[1])
        count = seen.get(name, 0)
        seen[name] = count + 1
        found.add(f"{name}-{count}" if count else name)
    return found


def links(text: str) -> Iterator[str]:
    """Every link target of a Markdown text that has no scheme."""
    text = SPAN.sub("", COMMENT.sub("", FENCE.sub("", text)))
    for pattern in (INLINE, REFERENCE, HTML_LINK):
        for match in pattern.finditer(text):
            target = next(group for group in match.groups() if group is not None)
            if not SCHEME.match(target):
                yield target


def dead_links(root: Path) -> list[str]:
    """One line `file: target (reason)` for each dead link below `root`."""
    root = root.resolve()
    dead = []
    for file in markdown_files(root):
        for target in links(file.read_text(encoding="utf-8")):
            path, _, anchor = target.partition("#")
            path = unquote(path)
            base = root if path.startswith("/") else file.parent
            goal = (base / path.lstrip("/")).resolve() if path else file
            if not goal.is_relative_to(root):
                reason = "outside the repository"
            elif not goal.exists():
                reason = "no such file"
            elif anchor and goal.suffix == ".md" and unquote(anchor) not in anchors(goal.read_text(encoding="utf-8")):
                reason = "no such anchor"
            else:
                continue
            dead.append(f"{file.relative_to(root)}: {target} ({reason})")
        if file.name != "CHANGELOG.md":
            named = (match[1] for match in OWN_FILE.finditer(file.read_text(encoding="utf-8")))
            dead += [f"{file.relative_to(root)}: {name} (no such file)" for name in named if not (root / name).exists()]
    return dead


def main() -> int:
    dead = dead_links(Path(__file__).parent.parent)
    for line in dead:
        print(line, file=sys.stderr)
    return 1 if dead else 0


if __name__ == "__main__":
    sys.exit(main())
