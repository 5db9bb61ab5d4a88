"""The reference pages that are made from the code: events, errors, the HTTP API, the library and the tools.

python -m scripts.reference            # write them
python -m scripts.reference --check    # fail if one is out of date
"""

import inspect
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from scripts.field_tables import field_table
from scripts.golden import FOLDER, parts
from scripts.http_reference import http_page
from scripts.library_reference import library_page, tools_page
from tests.wires.case import BY_HAND, Case, read_server
from tests.wires.case import FOLDER as WIRES
from treadle import errors
from treadle.protocol import (
    events,
    live_events,
    subagent_events,
    tool_events,
    workspace_events,
)
from treadle.protocol.events import LIVE, RECORDED, Event

DOCS = Path(__file__).parents[1] / "docs" / "reference"
SECTION = re.compile(r"^# -- (.+?) -+$", re.M)
NOTE = "<!-- Made by scripts/reference.py from the code; do not edit. -->"

EVENTS_INTRO = """\
Everything that happened to a chat is an event in its log; a front end sees the same events live, with live-only ones
between them. The list is closed. Names follow the Copilot SDK where it has one: a `session` there is a chat here.

An event on the wire (`treadle run --json`, `treadle export`) is one line of JSON:

```json
{EXAMPLE}
```

| field | what |
|---|---|
| `seq` | its place in the log, from 1 without gaps; a live-only event has none |
| `id` | `chat:seq`, unique |
| `chat` | the chat |
| `time` | when it was recorded; order is by `seq`, never by time |
| `type`, `data` | what happened: see below. On the wire every field of `data` is there; the log leaves out defaults |
| `version` | the version of the type's shape; left out while it is 1. Old versions are read as today's |
| `epoch` | the lease of the worker that wrote it; left out for what a command wrote |
| `ephemeral` | `true` for a live-only event: it is not recorded, and not seen again |
"""

ERRORS_INTRO = """\
Every error that Treadle raises is in one tree, `treadle.errors`. Each class has a `code` that front ends may rely on;
the text is a sentence that says what happened, to what, and what to do.
"""


def doc(kind: type) -> str:
    """A class's own docstring on one line; what it inherits is not about it."""
    return " ".join((kind.__dict__.get("__doc__") or "").split())


def example(name: str) -> Any:
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))["full"]


def event_lines(kind: type[Event]) -> list[str]:
    lines = [f"### {kind.TYPE}", ""]
    if about := doc(kind):
        lines += [about, ""]
    if kind.__struct_fields__:
        lines += [*field_table(kind), ""]
    data = json.dumps(example(kind.TYPE)["data"], ensure_ascii=False)
    return [*lines, "```json", data, "```", ""]


ELSEWHERE = {
    tool_events.__name__: "the tools (V-02)",
    subagent_events.__name__: "the tools (V-02)",
    workspace_events.__name__: "the workspace (V-03)",
    live_events.__name__: "live only (V-05)",
}


def sections() -> list[tuple[str, list[type[Event]]]]:
    """The events under the headings of the source, in its order; those with a module of their own by their number."""
    source = inspect.getsource(events)
    heads = [(source[: match.start()].count("\n"), match[1]) for match in SECTION.finditer(source)]
    found: dict[str, list[type[Event]]] = {title: [] for title in (*(title for _, title in heads), *ELSEWHERE.values())}
    for kind in sorted((RECORDED | LIVE).values(), key=lambda kind: inspect.getsourcelines(kind)[1]):
        line = inspect.getsourcelines(kind)[1]
        title = ELSEWHERE.get(kind.__module__) or [title for at, title in heads if at < line][-1]
        found[title].append(kind)
    return sorted(found.items(), key=lambda item: item[0].rpartition("V-")[2])


def events_page() -> str:
    intro = EVENTS_INTRO.replace("{EXAMPLE}", json.dumps(example("tool.execution_start"), ensure_ascii=False))
    lines = [NOTE, "# Events", "", intro]
    inner: dict[str, type[msgspec.Struct]] = {}
    for title, kinds in sections():
        recorded = "" if title.startswith("live") else ", recorded"
        lines += [f"## {title[0].upper()}{title[1:]}{recorded}", ""]
        for kind in kinds:
            lines += event_lines(kind)
            inner |= {part.__name__: part for part in parts(kind)}
    lines += ["## Parts", "", "What events are made of.", ""]
    for name in sorted(inner):
        lines += [f"### {name}", ""]
        if about := doc(inner[name]):
            lines += [about, ""]
        lines += [*field_table(inner[name]), ""]
    return "\n".join(lines).rstrip() + "\n"


def errors_page() -> str:
    tree = (errors.__doc__ or "").partition("\n\n")[2].rstrip()
    refusals = [f"| `{code}` | {text} |" for code, text in errors.REFUSALS.items()]
    kinds = [f"| `{kind}` | {text} |" for kind, text in errors.MODEL_ERRORS.items()]
    lines = [
        *(NOTE, "# Errors", "", ERRORS_INTRO, "```text", tree, "```", ""),
        *(
            "## Refusals",
            "",
            "A command that the chat's state does not allow raises `Refused` with a `reason`.",
        ),
        *("Nothing was changed.", "", "| reason | means |", "|---|---|", *refusals, ""),
        *(
            "## Failures of a model",
            "",
            "The `kind` of a `ModelError`, and the `class` of `session.error` and `assistant.turn_retry`.",
        ),
        *("", "| kind | means |", "|---|---|", *kinds, ""),
        "Besides these, `session.error` has the classes `config` (a model cannot be used as it is set up),",
        "`turn_cap`, `loop_guard` and `deadline` (a limit ended the run), and `internal` (a fault of Treadle).",
    ]
    return "\n".join(lines).rstrip() + "\n"


CAPABILITIES: dict[str, Callable[[Case], object]] = {
    "text and endings": lambda case: case.answer is not None and (case.answer.text or case.answer.finish),
    "tool calls": lambda case: case.answer is not None and case.answer.calls,
    "thinking and places go back": lambda case: case.back or case.absent,
    "reasoning effort": lambda case: case.effort,
    "usage and cost": lambda case: case.answer is not None and case.answer.usage,
    "context overflow": lambda case: case.error is not None and case.error.kind == "context_limit",
    "other errors": lambda case: case.error is not None and case.error.kind != "context_limit",
}
"""What a case of tests/wires is about."""


def servers_page() -> str:
    """Servers by capability, with the number of their cases in tests/wires, and how each was tried."""
    head = ["server", "model in the cases", *CAPABILITIES, "opened sources", "tried with"]
    lines = [
        "# Servers of models",
        "",
        "Made by `make docs` from the cases in `tests/wires/`, one file a server. A case is a shape written by",
        "hand: bytes that a server sends, and what Treadle makes of them and sends next. The numbers are cases.",
        "All of them are played against the adapters over a real connection; for each server the first case of",
        "each ending and of each error kind is played through the command line, too. With `make conformance` the",
        "requests are checked against the types of the SDKs of OpenAI, Anthropic, Google, Mistral and Ollama, and",
        "random streams are read by those SDKs (but Mistral's) and by the adapters, which must agree.",
        "",
        "**Tried with real software here**: llama.cpp's own server from the package `xllamacpp` with the model",
        "SmolLM2, through the command line, on three wires (Chat Completions, Anthropic Messages, Responses); and",
        "the local model of `treadle[local]`. No other server was reached, and no answer was recorded from one:",
        "all others are tried by shapes alone. That includes Ollama: no usable package with its server or with one",
        "that speaks its protocol was found. *Opened sources* says for how many cases a public page, a file of the",
        "server or a type of the vendor's SDK was opened that tells of the shape; values are made up for the case.",
        "",
        f"| {' | '.join(head)} |",
        f"|{'---|' * len(head)}",
    ]
    for file in sorted(WIRES.glob("*.toml")):
        server = read_server(file)
        counts = [sum(bool(is_about(case)) for case in server.case) for is_about in CAPABILITIES.values()]
        opened = sum(case.source != BY_HAND for case in server.case)
        cells = (server.server, f"`{server.model}`", *map(str, counts), f"{opened} of {len(server.case)}", server.tried)
        lines.append(f"| {' | '.join(cells)} |")
    total = sum(len(read_server(file).case) for file in WIRES.glob("*.toml"))
    return "\n".join([*lines, "", f"{total} cases."]) + "\n"


PAGES = {
    "model-servers.md": servers_page,
    "events.md": events_page,
    "errors.md": errors_page,
    "http-api.md": http_page,
    "library.md": library_page,
    "tools.md": tools_page,
}


def find_outdated_pages(folder: Path = DOCS) -> list[str]:
    """The pages that are not what the code says."""
    found = []
    for name, make in PAGES.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != make():
            found.append(name)
    return found


def main(arguments: list[str]) -> int:
    if "--check" in arguments:
        for name in (found := find_outdated_pages()):
            print(f"docs/reference/{name} is out of date; run: make docs", file=sys.stderr)
        return 1 if found else 0
    DOCS.mkdir(parents=True, exist_ok=True)
    for name, make in PAGES.items():
        (DOCS / name).write_text(make(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
