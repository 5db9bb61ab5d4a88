"""What the Responses API refuses, in its own words: so that a fake server is as strict as the real one about calls
without results, results without calls, and reasoning that stands alone or was tampered with."""

import hashlib
from collections.abc import Collection, Sequence
from typing import Any

import msgspec


def seal(thinking: str) -> str:
    """What stands for the encrypted form of a thought, the same in every process."""
    return "gAAAAA" + hashlib.sha256(thinking.encode()).hexdigest()


def complaint(body: bytes, sealed: Collection[str]) -> str:
    """The sentence with which a request is refused; empty when it is not. `sealed` holds encrypted thoughts that are
    good whatever their summaries say."""
    try:
        request = msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        return f"We could not parse the JSON body of your request: {error}"
    items = request.get("input")
    if isinstance(items, str):
        return ""
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        return "Invalid type for 'input': expected one of an array of objects or a string."
    if request.get("store") is not False:
        return "" if not _reasoning(items) else "Items of type 'reasoning' are only taken with store=false here."
    return _calls(items) or _thoughts(items, sealed)


def _reasoning(items: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [item for item in items if item.get("type") == "reasoning"]


def _calls(items: Sequence[dict[str, Any]]) -> str:
    asked: set[str] = set()
    answered: set[str] = set()
    for number, item in enumerate(items):
        call = item.get("call_id", "")
        match item.get("type"):
            case "function_call":
                if not isinstance(call, str) or not 0 < len(call) <= 64:
                    return f"Invalid 'input[{number}].call_id': expected a string with length 1 to 64."
                if not item.get("name") or not isinstance(item.get("arguments"), str):
                    return f"Missing required parameter: 'input[{number}].name' or 'input[{number}].arguments'."
                if call in asked:
                    return f"Duplicate function call with call_id {call}."
                asked.add(call)
            case "function_call_output":
                if call not in asked or call in answered:
                    return f"No tool call found for function call output with call_id {call}."
                answered.add(call)
    return f"No tool output found for function call {min(asked - answered)}." if asked - answered else ""


def _thoughts(items: Sequence[dict[str, Any]], sealed: Collection[str]) -> str:
    for item, after in zip(items, [*items[1:], {}], strict=True):
        if item.get("type") != "reasoning":
            continue
        summary = "\n\n".join(part["text"] for part in item.get("summary", ()))
        if item.get("encrypted_content") not in (*sealed, seal(summary)):
            return f"The encrypted content for item {item.get('id')} could not be verified."
        follows = after.get("type") in ("function_call", "reasoning") or after.get("role") == "assistant"
        if not follows:
            return f"Item '{item.get('id')}' of type 'reasoning' was provided without its required following item."
    return ""
