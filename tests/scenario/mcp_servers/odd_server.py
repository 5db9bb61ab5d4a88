"""An MCP server of the older revisions that behaves badly when it is asked to; without the SDK, so that it starts at
once. The first argument is the file to which its tools write a line each time they do something."""

import base64
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

NOTES = sys.argv[1]
MARK = sys.argv[2] if len(sys.argv) > 2 else ""
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
NONE: dict[str, Any] = {"type": "object"}
TOOLS: dict[str, dict[str, Any]] = {
    "note": {"description": "Write a note.", "inputSchema": TEXT},
    "look": {"description": "Read the notes.", "inputSchema": NONE, "annotations": {"readOnlyHint": True}},
    "die": {"description": "Write a note and die.", "inputSchema": TEXT},
    "die_once": {"description": "Die the first time.", "inputSchema": TEXT, "annotations": {"idempotentHint": True}},
    "hang": {"description": "Never answer.", "inputSchema": TEXT},
    "flood": {"description": "Say very much.", "inputSchema": NONE},
    "line": {"description": "Write a line without end.", "inputSchema": NONE},
    "sample": {"description": "Ask the model for a colour.", "inputSchema": NONE},
    "ask": {"description": "Ask the user for a colour.", "inputSchema": NONE},
    "grow": {"description": "Get one more tool.", "inputSchema": NONE},
    "grow_late": {"description": "Get one more tool after the answer.", "inputSchema": NONE},
    "picture": {"description": "Show a picture.", "inputSchema": NONE},
    "fail": {"description": "Fail.", "inputSchema": NONE},
    "roots": {"description": "Ask for the roots.", "inputSchema": NONE},
    "step": {"description": "Tell of progress.", "inputSchema": NONE},
    "trace": {"description": "Tell the trace.", "inputSchema": NONE},
    "shout": {"description": "Say very often that the tools have changed.", "inputSchema": NONE},
    "how_often": {"description": "Tell how often the tools were listed.", "inputSchema": NONE},
}
LISTINGS = [0]


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def ask_client(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Ask the client something and wait for its answer."""
    send({"id": f"mine-{time.monotonic_ns()}", "method": method, "params": params})
    while True:
        message = json.loads(sys.stdin.readline())
        if "method" not in message:
            return dict(message.get("result") or message)


def tools() -> list[dict[str, Any]]:
    """A file beside the notes holds what `note` says of itself, if it does not say the usual."""
    description_file = Path(f"{NOTES}.description")
    described = {"description": description_file.read_text()} if description_file.exists() else {}
    return [{"name": name, **tool, **(described if name == "note" else {})} for name, tool in TOOLS.items()]


def note(text: str) -> None:
    with open(NOTES, "a", encoding="utf-8") as file:
        file.write(f"{text}\n")


def notes() -> str:
    return Path(NOTES).read_text() if Path(NOTES).exists() else "some notes"


def text_of(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def make_reply(text: str) -> dict[str, Any]:
    return {"content": [text_of(text)]}


def ask() -> dict[str, Any]:
    schema = {"type": "object", "properties": {"colour": {"type": "string", "enum": ["red", "blue"]}}}
    schema["required"] = ["colour"]
    answer = ask_client("elicitation/create", {"message": "Which \x1b[31mcolour?", "requestedSchema": schema})
    note(f"asked {answer.get('action')}")
    return make_reply(f"{answer.get('action')}: {(answer.get('content') or {}).get('colour')}")


def sample() -> dict[str, Any]:
    question = {"role": "user", "content": {"type": "text", "text": "Which colour has the sky?"}}
    request = {"messages": [question], "systemPrompt": "Be \x1b[31mbrief.", "maxTokens": 50}
    answer = ask_client("sampling/createMessage", request)
    if "error" in answer:
        return make_reply(f"the client says: {answer['error']['message']}")
    return make_reply(f"the model says: {answer['content']['text']}")


def call(name: str, arguments: dict[str, Any], meta: dict[str, Any]) -> dict[str, Any]:
    text = str(arguments.get("text", ""))
    match name:
        case "note":
            note(text)
            return make_reply(f"noted {text}")
        case "look":
            return make_reply(notes())
        case "die":
            note(text)
            os._exit(7)
        case "die_once":
            note(text)
            if Path(NOTES).read_text().count(text) == 1:
                os._exit(7)
            return make_reply("done")
        case "hang":
            note(text)
            time.sleep(3_600)
        case "flood":
            return make_reply("\n".join(f"line {n} of many" for n in range(20_000)))
        case "line":
            sys.stdout.write("x" * (17 << 20))
            sys.stdout.flush()
            time.sleep(3_600)
        case "ask":
            return ask()
        case "sample":
            return sample()
        case "grow":
            TOOLS["grown"] = {"description": "Brand new.", "inputSchema": TEXT}
            send({"method": "notifications/tools/list_changed"})
            return make_reply("grown")
        case "grow_late":
            return make_reply("growing")
        case "grown":
            return make_reply(f"grown says {text}")
        case "picture":
            data = base64.b64encode(PNG).decode()
            return {"content": [{"type": "image", "data": data, "mimeType": "image/png"}]}
        case "fail":
            return {"content": [{"type": "text", "text": "it cannot be done"}], "isError": True}
        case "roots":
            return make_reply(json.dumps(ask_client("roots/list", {})))
        case "step":
            params = {"progressToken": meta.get("progressToken"), "progress": 1, "total": 2, "message": "half-way"}
            send({"method": "notifications/progress", "params": params})
            return make_reply("stepped")
        case "shout":
            for _ in range(5_000):
                send({"method": "notifications/tools/list_changed"})
            return make_reply("shouted")
        case "how_often":
            return make_reply(str(LISTINGS[0]))
        case "trace":
            return make_reply(str(meta.get("traceparent", "")))
    raise KeyError(name)


def answer(message: dict[str, Any]) -> dict[str, Any]:
    params = message.get("params") or {}
    match message["method"]:
        case "initialize":
            info = {"name": "odd", "version": "1"}
            has = {"tools": {"listChanged": True}, "prompts": {}, "resources": {}}
            return {"result": {"protocolVersion": "2025-06-18", "capabilities": has, "serverInfo": info}}
        case "tools/list":
            LISTINGS[0] += 1
            return {"result": {"tools": tools()}}
        case "tools/call" if params["name"] in TOOLS:
            return {"result": call(params["name"], params.get("arguments") or {}, params.get("_meta") or {})}
        case "prompts/list":
            arguments = [{"name": "how", "required": True}, {"name": "what"}]
            return {"result": {"prompts": [{"name": "tidy", "description": "Tidy up.", "arguments": arguments}]}}
        case "prompts/get":
            return {"result": {"messages": [{"role": "user", "content": text_of(tidy(params["arguments"]))}]}}
        case "resources/list":
            return {"result": {"resources": [{"name": "notes", "uri": "notes://all"}]}}
        case "resources/templates/list":
            return {"result": {"resourceTemplates": [{"name": "a day", "uriTemplate": "notes://days/{day}"}]}}
        case "resources/read" if params["uri"] == "notes://picture":
            picture = {"uri": params["uri"], "mimeType": "image/png", "blob": base64.b64encode(PNG).decode()}
            return {"result": {"contents": [picture]}}
        case "resources/read" if params["uri"] == "notes://gone":
            os._exit(7)
        case "resources/read":
            return {"result": {"contents": [{"uri": params["uri"], "text": notes()}]}}
    return {"error": {"code": -32601, "message": "no such method"}}


def tidy(arguments: dict[str, str]) -> str:
    return f"Tidy {arguments.get('what', 'all')} {arguments['how']}: {notes()} @odd:notes://of-the-prompt"


def main() -> None:
    sys.stdout.write("this line is no message\n")
    if MARK == "leaves":
        note("started")
    print(f"starting {MARK}", file=sys.stderr, flush=True)
    while MARK == "slow" and not Path(f"{NOTES}.go").exists():
        time.sleep(0.05)
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            send({"id": message["id"], **answer(message)})
            if (message.get("params") or {}).get("name") == "grow_late":
                TOOLS["grown"] = {"description": "Brand new.", "inputSchema": TEXT}
            if MARK == "leaves" and message["method"] == "prompts/list":
                os._exit(0)


main()
