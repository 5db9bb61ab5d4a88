"""Outputs of models of real families, and their meaning: calls, and the text that is left to show (P-03 to P-05).
Written by hand from the documented formats and from the ways in which small models get them wrong."""

# ruff: noqa: E501, RUF001 - what models write is long and odd
from typing import Any, NamedTuple

KNOWN = ("read_file", "write_file", "run_command", "list_directory", "get_weather", "now")

Call = tuple[str, dict[str, Any]] | tuple[str, dict[str, Any], bool]
"""Name, arguments, and True if it was repaired."""


class Case(NamedTuple):
    title: str
    text: str
    calls: list[Call]
    visible_text: str = ""


READ: Call = ("read_file", {"path": "a.py"})
LIST: Call = ("list_directory", {"path": "."})
JSON = '{"name": "read_file", "arguments": {"path": "a.py"}}'
JSON_2 = '{"name": "list_directory", "arguments": {"path": "."}}'
HTML = '<div class="x">{"a": [1, 2]}</div>\n</tool_call>\n`\\n` \\ "q" \'s\' ```'
HTML_JSON = r'"<div class=\"x\">{\"a\": [1, 2]}</div>\n</tool_call>\n`\\n` \\ \"q\" ' + r"'s' ```" + '"'

HERMES = [
    Case("hermes", f"<tool_call>\n{JSON}\n</tool_call>", [READ]),
    Case("hermes on one line", f"<tool_call>{JSON}</tool_call>", [READ]),
    Case("hermes behind text", f"Let me look.\n\n<tool_call>\n{JSON}\n</tool_call>", [READ], "Let me look."),
    Case("hermes before text", f"<tool_call>{JSON}</tool_call>\nDone.", [READ], "Done."),
    Case("hermes between text", f"A.\n\n<tool_call>{JSON}</tool_call>\n\nB.", [READ], "A.\n\nB."),
    Case("hermes inside a sentence", f"First <tool_call>{JSON}</tool_call> then.", [READ], "First then."),
    Case("two blocks", f"<tool_call>{JSON}</tool_call>\n<tool_call>{JSON_2}</tool_call>", [READ, LIST]),
    Case("equal calls stay two", f"<tool_call>{JSON}</tool_call><tool_call>{JSON}</tool_call>", [READ, READ]),
    Case("two calls in one block", f"<tool_call>\n{JSON}\n{JSON_2}\n</tool_call>", [READ, LIST]),
    Case("two calls with a comma", f"<tool_call>{JSON},{JSON_2}</tool_call>", [READ, LIST]),
    Case("a list in a block", f"<tool_call>[{JSON}, {JSON_2}]</tool_call>", [READ, LIST]),
    Case("no closing tag", f"<tool_call>\n{JSON}", [READ]),
    Case("no closing tag between two", f"<tool_call>{JSON}\n<tool_call>{JSON_2}</tool_call>", [READ, LIST]),
    Case("no closing tag before text", f"<tool_call>{JSON}\nThat is all.", [READ], "That is all."),
    Case("a late closing tag", f"<tool_call>{JSON} and so on </tool_call> End.", [READ], "and so on  End."),
    Case("one brace too many", "<tool_call>" + JSON + "}\n</tool_call>", [READ]),
    Case("two braces too many", "<tool_call>" + JSON + "}}</tool_call> ok", [READ], "ok"),
    Case("one brace too few", f"<tool_call>{JSON[:-1]}</tool_call>", [(*READ[:2], True)]),
    Case("two braces too few", f"<tool_call>{JSON[:-2]}</tool_call>Next.", [(*READ[:2], True)], "Next."),
    Case("the tag doubled", f"<tool_call>\n<tool_call>\n{JSON}\n</tool_call>\n</tool_call>", [READ]),
    Case("a fence in the tag", f"<tool_call>\n```json\n{JSON}\n```\n</tool_call>", [READ]),
    Case("the end of the message", f"<tool_call>{JSON}</tool_call><|im_end|>", [READ]),
    Case("plural tag", f"<tool_calls>[{JSON}]</tool_calls>", [READ]),
    Case("function_call tag", f"<function_call>{JSON}</function_call>", [READ]),
    Case("glaive", f"<functioncall> {JSON} <|endoftext|>", [READ]),
    Case("small qwen uses the tools tag", f"<tools>\n{JSON}\n</tools>", [READ]),
    Case("an unknown tool", '<tool_call>{"name": "fly", "arguments": {}}</tool_call>', [("fly", {})]),
    Case("a name before the arguments", '<tool_call>read_file\n{"path": "a.py"}\n</tool_call>', [READ]),
    Case("phi", f"<|tool_call|>[{JSON}]<|/tool_call|>", [READ]),
    Case("pythonic in a tag", '<|tool_call_start|>[read_file(path="a.py")]<|tool_call_end|>', [READ]),
    Case(
        "raw newlines in a string",
        '<tool_call>{"name":"write_file","arguments":{"content":"a\nb\n"}}</tool_call>',
        [("write_file", {"content": "a\nb\n"})],
    ),
    Case(
        "content that looks like markup",
        '<tool_call>{"name": "write_file", "arguments": {"content": ' + HTML_JSON + "}}</tool_call>",
        [("write_file", {"content": HTML})],
    ),
    Case(
        "unicode",
        '<tool_call>{"name":"write_file","arguments":{"content":"ü \\u00fc \\ud83d\\ude00 😀"}}</tool_call>',
        [("write_file", {"content": "ü ü 😀 😀"})],
    ),
    Case(
        "half a surrogate pair",
        '<tool_call>{"name":"write_file","arguments":{"content":"\\ud83d!"}}</tool_call>',
        [("write_file", {"content": "\ufffd!"})],
    ),
    Case(
        "a regex with single backslashes",
        '<tool_call>{"name":"run_command","arguments":{"command":"grep \'\\d+\' a"}}',
        [("run_command", {"command": "grep '\\d+' a"})],
    ),
    Case(
        "nested arguments",
        '<tool_call>{"name":"x","arguments":{"a":{"b":[{"c":null},[]],"d":-1.5e3},"e":true}}</tool_call>',
        [("x", {"a": {"b": [{"c": None}, []], "d": -1500.0}, "e": True})],
    ),
]

QWEN_CODER = "<tool_call>\n<function=write_file>\n<parameter=path>\na.py\n</parameter>\n<parameter=content>\nx = 1\n\n</parameter>\n</function>\n</tool_call>"
WRITE: Call = ("write_file", {"path": "a.py", "content": "x = 1\n"})
XML = [
    Case("qwen3-coder", QWEN_CODER, [WRITE]),
    Case("qwen3-coder behind text", f"I write it.\n{QWEN_CODER}", [WRITE], "I write it."),
    Case("qwen3-coder twice", f"{QWEN_CODER}\n{QWEN_CODER}", [WRITE, WRITE]),
    Case("qwen3-coder without the outer tag", QWEN_CODER[12:-12], [WRITE]),
    Case("qwen3-coder inline", "<function=read_file><parameter=path>a.py</parameter></function>", [READ]),
    Case("qwen3-coder without arguments", "<tool_call><function=x>\n</function></tool_call>", [("x", {})]),
    Case(
        "a closing tag in the content",
        "<function=write_file><parameter=content>\na </parameter> b\n</parameter></function>",
        [("write_file", {"content": "a </parameter> b"})],
    ),
    Case(
        "no closing tag of a parameter",
        "<function=f>\n<parameter=a>\n1\n<parameter=b>\n2\n</function>",
        [("f", {"a": "1", "b": "2"})],
    ),
    Case(
        "markup in the content",
        "<function=write_file><parameter=content>\n<tool_call>{}</tool_call>\n</parameter></function>",
        [("write_file", {"content": "<tool_call>{}</tool_call>"})],
    ),
    Case(
        "cut in a parameter",
        "<tool_call>\n<function=write_file>\n<parameter=path>\na.py\n</parameter>\n<parameter=content>\nx =",
        [("write_file", {"path": "a.py", "content": "x ="}, True)],
    ),
    Case(
        "cut in a closing tag",
        "<function=read_file>\n<parameter=path>\na.py\n</para",
        [("read_file", {"path": "a.py"}, True)],
    ),
    Case(
        "cut behind a parameter",
        "<function=read_file>\n<parameter=path>\na.py\n</parameter>\n</fun",
        [("read_file", {"path": "a.py"}, True)],
    ),
    Case("llama custom", '<function=read_file>{"path": "a.py"}</function>', [READ]),
    Case("llama custom, with its end", '<function=read_file>{"path": "a.py"}</function><|eom_id|>', [READ]),
    Case("llama custom cut", '<function=read_file>{"path": "a.p', [("read_file", {"path": "a.p"}, True)]),
    Case(
        "invoke",
        '<function_calls>\n<invoke name="read_file">\n<parameter name="path">a.py</parameter>\n</invoke>\n</function_calls>',
        [READ],
    ),
    Case(
        "invoke keeps newlines",
        '<invoke name="write_file"><parameter name="content">\na\n</parameter></invoke>',
        [("write_file", {"content": "\na\n"})],
    ),
    Case(
        "minimax",
        '<minimax:tool_call>\n<invoke name="read_file">\n<parameter name="path">a.py</parameter>\n</invoke>\n</minimax:tool_call>',
        [READ],
    ),
    Case(
        "deepseek v3.2",
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="f">\n<｜DSML｜parameter name="a" string="true">1</｜DSML｜parameter>\n<｜DSML｜parameter name="b" string="false">[2]</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
        [("f", {"a": "1", "b": [2]})],
    ),
    Case("glm", "<tool_call>read_file\n<arg_key>path</arg_key>\n<arg_value>a.py</arg_value>\n</tool_call>", [READ]),
    Case(
        "glm, two arguments",
        "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n<arg_key>b</arg_key>\n<arg_value>x < y\n</arg_value>\n</tool_call>",
        [("f", {"a": "1", "b": "x < y\n"})],
    ),
    Case(
        "glm cut", "<tool_call>read_file\n<arg_key>path</arg_key>\n<arg_value>a.", [("read_file", {"path": "a."}, True)]
    ),
]

MISTRAL = [
    Case("mistral", f"[TOOL_CALLS] [{JSON}]", [READ]),
    Case("mistral, two", f"[TOOL_CALLS] [{JSON}, {JSON_2}]", [READ, LIST]),
    Case("mistral behind text", f"I look.[TOOL_CALLS][{JSON}]", [READ], "I look."),
    Case("mistral, one object", f"[TOOL_CALLS]{JSON}", [READ]),
    Case(
        "mistral with ids",
        '[TOOL_CALLS] [{"name": "read_file", "arguments": {"path": "a.py"}, "id": "9Ae3bDc2F"}]</s>',
        [READ],
    ),
    Case("mistral args", '[TOOL_CALLS]read_file[ARGS]{"path": "a.py"}', [READ]),
    Case(
        "mistral args, two",
        '[TOOL_CALLS]read_file[ARGS]{"path": "a.py"}[TOOL_CALLS]list_directory[ARGS]{"path": "."}',
        [READ, LIST],
    ),
    Case("mistral args with an id", '[TOOL_CALLS]read_file[CALL_ID]x1[ARGS]{"path": "a.py"}', [READ]),
    Case("mistral without args", '[TOOL_CALLS]read_file{"path": "a.py"}', [READ]),
    Case(
        "mistral cut in the second",
        f'[TOOL_CALLS] [{JSON}, {{"name": "list_directory", "arguments": {{"pa',
        [READ, ("list_directory", {}, True)],
    ),
    Case(
        "mistral content",
        '[TOOL_CALLS]write_file[ARGS]{"content": "[TOOL_CALLS] [{}] ]"}',
        [("write_file", {"content": "[TOOL_CALLS] [{}] ]"})],
    ),
]

LLAMA = [
    Case("llama json", '{"name": "read_file", "parameters": {"path": "a.py"}}', [READ]),
    Case("llama json with a type", '{"type": "function", "name": "read_file", "parameters": {"path": "a.py"}}', [READ]),
    Case(
        "llama json, two",
        '{"name": "read_file", "parameters": {"path": "a.py"}}; {"name": "list_directory", "parameters": {"path": "."}}',
        [READ, LIST],
        ";",
    ),
    Case("python tag", '<|python_tag|>{"name": "read_file", "parameters": {"path": "a.py"}}', [READ]),
    Case(
        "python tag, two",
        '<|python_tag|>{"name": "read_file", "parameters": {"path": "a.py"}}; {"name": "x", "parameters": {}}<|eom_id|>',
        [READ, ("x", {})],
    ),
    Case(
        "python tag call",
        '<|python_tag|>brave_search.call(query="current weather in Menlo Park")<|eom_id|>',
        [("brave_search", {"query": "current weather in Menlo Park"})],
    ),
    Case(
        "python tag call, more",
        "<|python_tag|>f.call(a='x, \\'y\\'', b=[1, 2], c={'d': None}, e=True)",
        [("f", {"a": "x, 'y'", "b": [1, 2], "c": {"d": None}, "e": True})],
    ),
    Case(
        "python tag code is no call",
        "<|python_tag|>import os\nprint(os.getcwd())",
        [],
        "<|python_tag|>import os\nprint(os.getcwd())",
    ),
    Case("pythonic", '[read_file(path="a.py"), list_directory(path=".")]', [READ, LIST]),
    Case(
        "pythonic cut", '[read_file(path="a.py"), list_directory(path="', [READ, ("list_directory", {"path": ""}, True)]
    ),
    Case("pythonic with an unknown name", '[fly(path="a.py")]', [], '[fly(path="a.py")]'),
    Case("bare behind text", f"Calling: {JSON}", [READ], "Calling:"),
    Case("bare between text", f"I do {JSON} now.", [READ], "I do now."),
    Case("a bracket before it", f"see [{JSON} now", [READ], "see [ now"),
]

_DS = "<｜tool▁calls▁begin｜>"
DEEPSEEK = [
    Case(
        "deepseek v3",
        f'{_DS}<｜tool▁call▁begin｜>function<｜tool▁sep｜>read_file\n```json\n{{"path": "a.py"}}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        [READ],
    ),
    Case(
        "deepseek v3, two",
        f'{_DS}<｜tool▁call▁begin｜>function<｜tool▁sep｜>read_file\n```json\n{{"path": "a.py"}}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>list_directory\n```json\n{{"path": "."}}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>',
        [READ, LIST],
    ),
    Case(
        "deepseek v3.1",
        f'{_DS}<｜tool▁call▁begin｜>read_file<｜tool▁sep｜>{{"path": "a.py"}}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        [READ],
    ),
    Case(
        "deepseek r1 forgets a token",
        f'{_DS}function<｜tool▁sep｜>read_file\n```json\n{{"path": "a.py"}}\n```<｜tool▁call▁end｜>',
        [READ],
    ),
    Case(
        "deepseek r1 forgets the separator",
        f'{_DS}<｜tool▁call▁begin｜>function.read_file\n```json\n{{"path": "a.py"}}\n```<｜tool▁call▁end｜>',
        [READ],
    ),
    Case(
        "deepseek with plain bars",
        '<|tool_calls_begin|><|tool_call_begin|>function<|tool_sep|>read_file\n```json\n{"path": "a.py"}\n```<|tool_call_end|><|tool_calls_end|>',
        [READ],
    ),
    Case(
        "deepseek after thinking",
        f'<think>I need the file.</think>\n\n{_DS}<｜tool▁call▁begin｜>read_file<｜tool▁sep｜>{{"path": "a.py"}}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        [READ],
        "<think>I need the file.</think>",
    ),
    Case(
        "deepseek cut",
        f'{_DS}<｜tool▁call▁begin｜>function<｜tool▁sep｜>read_file\n```json\n{{"path": "a.',
        [("read_file", {"path": "a."}, True)],
    ),
    Case(
        "kimi",
        '<|tool_calls_section_begin|><|tool_call_begin|>functions.read_file:0<|tool_call_argument_begin|>{"path": "a.py"}<|tool_call_end|><|tool_calls_section_end|>',
        [READ],
    ),
]

FENCED = [
    Case("fenced json", f"```json\n{JSON}\n```", [READ]),
    Case("fenced json between text", f"I call it:\n\n```json\n{JSON}\n```\n\nWait.", [READ], "I call it:\n\nWait."),
    Case("fenced list", f"```json\n[{JSON}, {JSON_2}]\n```", [READ, LIST]),
    Case("fenced, two objects", f"```json\n{JSON}\n{JSON_2}\n```", [READ, LIST]),
    Case("fence without a language", f"```\n{JSON}\n```", [READ]),
    Case("fence named tool_call", '```tool_call\n{"name": "fly", "arguments": {}}\n```', [("fly", {})]),
    Case(
        "fence with backticks in content",
        '```json\n{"name": "write_file", "arguments": {"content": "```\\nx\\n```"}}\n```',
        [("write_file", {"content": "```\nx\n```"})],
    ),
    Case("fence around a tag", f"```\n<tool_call>\n{JSON}\n</tool_call>\n```", [READ]),
    Case("fence never closed", f"```json\n{JSON}", [READ]),
    Case(
        "fence cut",
        '```json\n{"name": "write_file", "arguments": {"path": "a", "content": "x',
        [("write_file", {"path": "a", "content": "x"}, True)],
    ),
    Case("gemma tool code", '```tool_code\nprint(default_api.read_file(path="a.py"))\n```', [READ]),
    Case("tool code without print", '```tool_code\nread_file(path="a.py")\n```', [READ]),
    Case(
        "fenced package.json",
        '```json\n{"name": "my-app", "version": "1.0.0"}\n```',
        [],
        '```json\n{"name": "my-app", "version": "1.0.0"}\n```',
    ),
    Case(
        "fenced definition",
        '```json\n{"name": "read_file", "parameters": {"type": "object", "properties": {}}}\n```',
        [],
        '```json\n{"name": "read_file", "parameters": {"type": "object", "properties": {}}}\n```',
    ),
    Case("fenced array", "```json\n[1, 2]\n```", [], "```json\n[1, 2]\n```"),
]

SHAPES = [
    Case("tool and args", '{"tool": "read_file", "args": {"path": "a.py"}}', [READ]),
    Case("function and params", '{"function": "read_file", "params": {"path": "a.py"}}', [READ]),
    Case("top level", '{"tool": "read_file", "path": "a.py"}', [READ]),
    Case("top level with name", '<tool_call>{"name": "read_file", "path": "a.py"}</tool_call>', [READ]),
    Case("arguments as a string", r'{"name": "read_file", "arguments": "{\"path\": \"a.py\"}"}', [READ]),
    Case("arguments first", '{"arguments": {"path": "a.py"}, "name": "read_file"}', [READ]),
    Case("empty string of arguments", '{"name": "read_file", "arguments": ""}', [("read_file", {})]),
    Case("arguments null", '{"name": "read_file", "arguments": null}', [("read_file", {})]),
    Case("no arguments at all", '<tool_call>{"name": "read_file"}</tool_call>', [("read_file", {})]),
    Case(
        "openai",
        '{"id": "call_1", "type": "function", "function": {"name": "read_file", "arguments": "{\\"path\\": \\"a.py\\"}"}}',
        [READ],
    ),
    Case(
        "openai message", '{"tool_calls": [{"function": {"name": "read_file", "arguments": {"path": "a.py"}}}]}', [READ]
    ),
    Case("openai old", '{"function_call": {"name": "read_file", "arguments": {"path": "a.py"}}}', [READ]),
    Case("anthropic", '{"type": "tool_use", "name": "read_file", "input": {"path": "a.py"}}', [READ]),
    Case(
        "a tool's own argument called name",
        '{"tool": "get_weather", "name": "Ada", "path": "x"}',
        [("get_weather", {"name": "Ada", "path": "x"})],
    ),
    Case("list of calls", f"[{JSON}, {JSON_2}]", [READ, LIST]),
    Case(
        "a prefix of the name",
        '<tool_call>{"name": "functions.read_file", "arguments": {"path": "a.py"}}</tool_call>',
        [READ],
    ),
    Case(
        "arguments that are no JSON",
        '<tool_call>{"name": "run_command", "arguments": "ls"}</tool_call>',
        [("run_command", {"arguments": "ls"})],
    ),
]

ODD_JSON = [
    Case("single quotes", "<tool_call>{'name': 'read_file', 'arguments': {'path': 'a.py'}}</tool_call>", [READ]),
    Case("single quotes, bare", "{'name': 'read_file', 'arguments': {'path': 'a.py'}}", [READ]),
    Case(
        "single quotes with double inside",
        "{'name': 'run_command', 'arguments': {'command': 'echo \"hi\"'}}",
        [("run_command", {"command": 'echo "hi"'})],
    ),
    Case(
        "an apostrophe in single quotes",
        r"{'name': 'run_command', 'arguments': {'command': 'echo don\'t'}}",
        [("run_command", {"command": "echo don't"})],
    ),
    Case("smart quotes", "{“name”: “read_file”, “arguments”: {“path”: “a.py”}}", [READ]),
    Case(
        "smart quotes in content",
        '{"name": "write_file", "arguments": {"content": "“x” and ‘y’"}}',
        [("write_file", {"content": "“x” and ‘y’"})],
    ),
    Case(
        "python literals",
        "<tool_call>{'name': 'f', 'arguments': {'a': True, 'b': None, 'c': False}}</tool_call>",
        [("f", {"a": True, "b": None, "c": False})],
    ),
    Case(
        "trailing commas",
        '<tool_call>{"name": "f", "arguments": {"a": [1, 2,], "b": 1,},}</tool_call>',
        [("f", {"a": [1, 2], "b": 1})],
    ),
    Case(
        "comments",
        '<tool_call>{"name": "f", // the tool\n "arguments": {/* none */ "a": 1 # one\n}}</tool_call>',
        [("f", {"a": 1})],
    ),
    Case("keys without quotes", '<tool_call>{name: "f", arguments: {a: 1}}</tool_call>', [("f", {"a": 1})]),
    Case(
        "triple quotes",
        '<tool_call>{"name": "write_file", "arguments": {"content": """a "b"\nc"""}}</tool_call>',
        [("write_file", {"content": 'a "b"\nc'})],
    ),
    Case(
        "backticks as quotes",
        '<tool_call>{"name": "write_file", "arguments": {"content": `a "b"\nc`}}</tool_call>',
        [("write_file", {"content": 'a "b"\nc'})],
    ),
    Case(
        "unescaped quotes",
        '<tool_call>{"name": "run_command", "arguments": {"command": "echo "hi" there"}}</tool_call>',
        [("run_command", {"command": 'echo "hi" there'}, True)],
    ),
    Case(
        "a missing comma",
        '<tool_call>{"name": "f", "arguments": {"a": "x" "b": 2}}</tool_call>',
        [("f", {"a": "x", "b": 2}, True)],
    ),
    Case(
        "a missing bracket",
        '<tool_call>{"name": "f", "arguments": {"a": [1, 2}}</tool_call>',
        [("f", {"a": [1, 2]}, True)],
    ),
    Case(
        "a missing value",
        '<tool_call>{"name": "f", "arguments": {"a": , "b": 2}}</tool_call>',
        [("f", {"a": None, "b": 2}, True)],
    ),
    Case("duplicate keys", '<tool_call>{"name": "f", "arguments": {"a": 1, "a": 2}}</tool_call>', [("f", {"a": 2})]),
    Case(
        "big numbers",
        '<tool_call>{"name": "f", "arguments": {"a": 123456789012345678901234567890, "b": 1e999}}</tool_call>',
        [("f", {"a": 123456789012345678901234567890, "b": "1e999"})],
    ),
    Case(
        "words that are no JSON",
        '<tool_call>{"name": "f", "arguments": {"a": undefined}}</tool_call>',
        [("f", {"a": None}, True)],
    ),
]

_CUT = '<tool_call>{"name": "write_file", "arguments": {"path": "a", "x": '
CUT = [
    Case(f"cut: {rest!r}", _CUT + rest, [("write_file", {"path": "a", **value}, True)])
    for rest, value in (
        ("", {}),
        ('"', {"x": ""}),
        ('"abc', {"x": "abc"}),
        ('"a\\', {"x": "a"}),
        ('"a\\\\', {"x": "a\\"}),
        ('"a\\n', {"x": "a\n"}),
        ('"a\\u00', {"x": "a"}),
        ('"a\\u00fc', {"x": "aü"}),
        ('"a\\ud83d', {"x": "a"}),
        ('"a\\ud83d\\ude', {"x": "a"}),
        ('"abc"', {"x": "abc"}),
        ('"abc",', {"x": "abc"}),
        ('"abc", "y', {"x": "abc"}),
        ('"abc", "y"', {"x": "abc"}),
        ('"abc", "y":', {"x": "abc"}),
        ("[", {"x": []}),
        ("[1,", {"x": [1]}),
        ('[1, "a', {"x": [1, "a"]}),
        ("[[1], [2", {"x": [[1], [2]]}),
        ("{", {"x": {}}),
        ('{"a"', {"x": {}}),
        ('{"a": {"b": [', {"x": {"a": {"b": []}}}),
        ("12", {"x": 12}),
        ("1.5", {"x": 1.5}),
        ("tru", {"x": True}),
        ("fa", {"x": False}),
        ("nul", {"x": None}),
        ("-", {}),
        ("1}", {"x": 1}),
    )
]
CUT += [
    Case("cut in the name", '<tool_call>{"name": "read_fi', [("read_fi", {}, True)]),
    Case("cut behind the name", '<tool_call>{"name": "read_file"', [("read_file", {}, True)]),
    Case("cut before the arguments", '<tool_call>{"name": "read_file", "arguments":', [("read_file", {}, True)]),
    Case("cut before the name", 'Hi. <tool_call>{"na', [], "Hi."),
    Case("cut behind the tag", "Hi.\n<tool_call>\n", [], "Hi."),
    Case("cut in the tag", "Hi. <tool_ca", [], "Hi."),
    Case("cut in bare JSON", '{"name": "read_file", "arguments": {"path": "a.', [("read_file", {"path": "a."}, True)]),
    Case(
        "cut in arguments as a string",
        r'<tool_call>{"name": "read_file", "arguments": "{\"path\": \"a.',
        [("read_file", {"path": "a."}, True)],
    ),
    Case(
        "only the last is cut",
        f'<tool_call>{JSON}</tool_call><tool_call>{{"name": "x", "arguments": {{"a',
        [READ, ("x", {}, True)],
    ),
]

_M3 = "]<]minimax[>["
_HARMONY = '<|channel|>commentary to=functions.read_file <|constrain|>json<|message|>{"path": "a.py"}<|call|>'
_K3_ARGUMENT = '<|open|>argument key="path" type="string"<|sep|>a.py<|close|>argument<|sep|>'
_K3 = f'<|open|>tools<|sep|><|open|>call tool="read_file" index="1"<|sep|>{_K3_ARGUMENT}<|close|>call<|sep|><|close|>tools<|sep|>'
# gpt-oss, Kimi K3, functionary
CHANNELS = [
    Case("harmony", _HARMONY, [READ]),
    Case(
        "harmony after its thinking",
        f"<|channel|>analysis<|message|>I could write <tool_call>{JSON}</tool_call>.<|end|><|start|>assistant{_HARMONY}",
        [READ],
    ),
    Case(
        "harmony, recipient before the channel",
        '<|start|>assistant to=functions.read_file<|channel|>commentary <|constrain|>json<|message|>{"path": "a.py"}<|call|>',
        [READ],
    ),
    Case(
        "harmony without a constraint",
        '<|channel|>commentary to=functions.read_file<|message|>{"path": "a.py"}<|call|>',
        [READ],
    ),
    Case(
        "harmony with words before it",
        f"<|channel|>commentary<|message|>I look.<|end|><|start|>assistant{_HARMONY}",
        [READ],
        "I look.",
    ),
    Case("harmony, two", f"{_HARMONY}<|start|>assistant{_HARMONY}", [READ, READ]),
    Case("harmony without arguments", "<|channel|>commentary to=functions.now<|message|><|call|>", [("now", {})]),
    Case(
        "harmony cut",
        '<|channel|>commentary to=functions.read_file<|message|>{"path": "a.',
        [("read_file", {"path": "a."}, True)],
    ),
    Case("harmony cut in its head", "Hi. <|channel|>commentary to=functions.rea", [], "Hi."),
    Case("kimi k3", _K3, [READ]),
    Case(
        "kimi k3 in its channels",
        f"<|open|>think<|sep|>Hm.<|close|>think<|sep|><|open|>response<|sep|>I look.<|close|>response<|sep|>{_K3}<|close|>message<|sep|><|end_of_msg|>",
        [READ],
        "I look.",
    ),
    Case(
        "kimi k3 with types",
        '<|open|>tools<|sep|><|open|>call tool="f" index="1"<|sep|><|open|>argument key="a&quot;" type="array"<|sep|>[1, 2]<|close|>argument<|sep|>'
        '<|open|>argument key="b" type="string"<|sep|>x <|close|>argument<|sep|> y<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>',
        [("f", {'a"': [1, 2], "b": "x <|close|>argument<|sep|> y"})],
    ),
    Case(
        "kimi k3, json",
        '<|open|>tools<|sep|><|open|>call tool="read_file" index="1"<|sep|><|open|>json type="object"<|sep|>{"path": "a.py"}<|close|>json<|sep|><|close|>call<|sep|><|close|>tools<|sep|>',
        [READ],
    ),
    Case(
        "kimi k3 without arguments",
        '<|open|>tools<|sep|><|open|>call tool="now" index="1"<|sep|><|close|>call<|sep|><|close|>tools<|sep|>',
        [("now", {})],
    ),
    Case(
        "kimi k3 cut",
        '<|open|>tools<|sep|><|open|>call tool="read_file" index="1"<|sep|><|open|>argument key="path" type="string"<|sep|>a.<|clo',
        [("read_file", {"path": "a."}, True)],
    ),
    Case("functionary 3.2", '>>>read_file\n{"path": "a.py"}', [READ]),
    Case("functionary 3.2 behind its prompt", 'read_file\n{"path": "a.py"}', [READ]),
    Case(
        "functionary 3.2 with text",
        '>>>all\nI look.>>>read_file\n{"path": "a.py"}\n>>>list_directory\n{"path": "."}',
        [READ, LIST],
        "I look.",
    ),
    Case("functionary 3.2 cut", '>>>read_file\n{"path": "a.', [("read_file", {"path": "a."}, True)]),
    Case("functionary 2", '<|from|>assistant\n<|recipient|>read_file\n<|content|>{"path": "a.py"}<|stop|>', [READ]),
    Case(
        "functionary 2 behind its prompt",
        '<|recipient|>all\n<|content|>I look.\n<|from|>assistant\n<|recipient|>read_file\n<|content|>{"path": "a.py"}',
        [READ],
        "I look.",
    ),
]
OTHERS = [
    Case("gemma 4", '<|tool_call>call:read_file{path:<|"|>a.py<|"|>}<tool_call|>', [READ]),
    Case(
        "gemma 4 behind text",
        'I look.<|tool_call>call:read_file{path:<|"|>a.py<|"|>}<tool_call|><|tool_call>call:now{}<tool_call|><turn|>',
        [READ, ("now", {})],
        "I look.",
    ),
    Case(
        "gemma 4, values",
        '<|tool_call>call:f{a:true,b:[1,<|"|>x, "y"}<|"|>],c:{d:null,<|"|>e f<|"|>:-2.5}}<tool_call|>',
        [("f", {"a": True, "b": [1, 'x, "y"}'], "c": {"d": None, "e f": -2.5}})],
    ),
    Case(
        "gemma 4, content",
        '<|tool_call>call:write_file{content:<|"|>a "b" \\n\n}<tool_call|><|"|>}<tool_call|>',
        [("write_file", {"content": 'a "b" \\n\n}<tool_call|>'})],
    ),
    Case("gemma 4 cut", '<|tool_call>call:read_file{path:<|"|>a.<|"', [("read_file", {"path": "a."}, True)]),
    Case("functiongemma", "<start_function_call>call:read_file{path:<escape>a.py<escape>}<end_function_call>", [READ]),
    Case(
        "apertus", '<|tools_prefix|>[{"read_file": {"path": "a.py"}}, {"now": {}}]<|tools_suffix|>', [READ, ("now", {})]
    ),
    Case(
        "apertus between text", 'A.<|tools_prefix|>[{"read_file": {"path": "a.py"}}]<|tools_suffix|>B.', [READ], "A.B."
    ),
    Case(
        "apertus cut",
        '<|tools_prefix|>[{"now": {}}, {"read_file": {"path": "a.',
        [("now", {}), ("read_file", {"path": "a."}, True)],
    ),
    Case("minicpm 5", '<function name="read_file"><param name="path">a.py</param></function>', [READ]),
    Case(
        "minicpm 5, cdata",
        '<function name="write_file">\n  <param name="content"><![CDATA[a < b\n</param>]]></param>\n</function>',
        [("write_file", {"content": "a < b\n</param>"})],
    ),
    Case("minicpm 5 without arguments", '<function name="now"></function>', [("now", {})]),
    Case("minicpm 4", '<|tool_call_start|>\n```python\nread_file(path="a.py")\n```\n<|tool_call_end|>', [READ]),
    Case(
        "minicpm 4, two",
        '<|tool_call_start|>\n```python\nread_file(path="a.py")\nlist_directory(path=".")\n```\n<|tool_call_end|>',
        [READ, LIST],
    ),
    Case(
        "minimax m3",
        f'I look.{_M3}<tool_call>{_M3}<invoke name="read_file">{_M3}<path>a.py{_M3}</path>{_M3}</invoke>{_M3}</tool_call>',
        [READ],
        "I look.",
    ),
    Case(
        "minimax m3 on lines",
        f'{_M3}<tool_call>\n{_M3}<invoke name="read_file">\n{_M3}<path>a.py{_M3}</path>\n{_M3}</invoke>\n{_M3}<invoke name="now">\n{_M3}</invoke>\n{_M3}</tool_call>',
        [READ, ("now", {})],
    ),
    Case(
        "minimax m3, nested",
        f'{_M3}<tool_call>{_M3}<invoke name="f">{_M3}<a>{_M3}<b>x < y{_M3}</b>{_M3}<c>{_M3}<item>1{_M3}</item>{_M3}<item>2{_M3}</item>{_M3}</c>{_M3}</a>{_M3}</invoke>{_M3}</tool_call>',
        [("f", {"a": {"b": "x < y", "c": ["1", "2"]}})],
    ),
    Case(
        "minimax m3 cut",
        f'{_M3}<tool_call>{_M3}<invoke name="read_file">{_M3}<path>a.]<]min',
        [("read_file", {"path": "a."}, True)],
    ),
]
# Seed-OSS, LongCat, Nemotron, Command A, InternLM, Llama 4
MORE = [
    Case(
        "seed-oss",
        "<seed:tool_call>\n<function=read_file>\n<parameter=path>a.py</parameter>\n</function>\n</seed:tool_call>",
        [READ],
    ),
    Case("longcat", f"I look.<longcat_tool_call>{JSON}</longcat_tool_call>", [READ], "I look."),
    Case(
        "longcat, keys and values",
        "<longcat_tool_call>read_file\n<longcat_arg_key>path</longcat_arg_key>\n"
        "<longcat_arg_value>a.py</longcat_arg_value>\n</longcat_tool_call>",
        [READ],
    ),
    Case("nemotron", f"<TOOLCALL>[{JSON}, {JSON_2}]</TOOLCALL>", [READ, LIST]),
    Case(
        "command a",
        'I look.<|START_ACTION|>[\n{"tool_call_id": "0", "tool_name": "read_file", "parameters": {"path": "a.py"}}\n]'
        "<|END_ACTION|>",
        [READ],
        "I look.",
    ),
    Case(
        "internlm",
        'I look.<|action_start|><|plugin|>{"name": "read_file", "parameters": {"path": "a.py"}}<|action_end|>',
        [READ],
        "I look.",
    ),
    Case("llama 4", '<|python_start|>[read_file(path="a.py")]<|python_end|><|eot|>', [READ]),
]
EMPTY = [
    Case("nothing but a name", "<tool_call>now</tool_call>", [("now", {})]),
    Case("glm without arguments", "<tool_call>now\n</tool_call>", [("now", {})]),
    Case("a word that is no tool", "<tool_call>later</tool_call>", [], ""),
    Case("mistral without arguments", "[TOOL_CALLS]now[ARGS]</s>", [("now", {})]),
    Case(
        "kimi without arguments",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.now:0<|tool_call_argument_begin|><|tool_call_end|><|tool_calls_section_end|>",
        [("now", {})],
    ),
    Case(
        "kimi, singular section",
        "<|tool_call_section_begin|><|tool_call_begin|>functions.now:0<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_call_section_end|>",
        [("now", {})],
    ),
    Case(
        "deepseek with an empty fence",
        f"{_DS}<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        [("now", {})],
    ),
    Case(
        "deepseek v3.1 without arguments",
        f"{_DS}<｜tool▁call▁begin｜>now<｜tool▁sep｜><｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        [("now", {})],
    ),
    Case("an invoke that closes itself", '<function_calls><invoke name="now"/></function_calls>', [("now", {})]),
    Case("a function that closes itself", "<function=now/>", [("now", {})]),
    Case("a bare name and no arguments", '{"name": "now"}', [("now", {})]),
    Case("pythonic without arguments", "[now()]", [("now", {})]),
    Case("data before a call", f'<tool_call>{{"thought": "I look"}}\n{JSON}</tool_call>', [READ]),
    Case("bare data before a call", f'{{"thought": "I look"}}\n{JSON}', [READ], '{"thought": "I look"}'),
    Case("bare data before a marked call", f'{{"path": "b"}}\n<tool_call>{JSON}</tool_call>', [READ], '{"path": "b"}'),
    Case("a bare call before a marked one", f"{JSON}\n<tool_call>{JSON_2}</tool_call>", [READ, LIST]),
]

_PROSE = [
    "Hello, world.",
    "  spaces stay  \n\n",
    "",
    "a < b and b > c, a[0] = {1: 2}, <b>bold</b>, [link](http://x)",
    "Use the `<tool_call>` tag, or `[TOOL_CALLS]`, to call a tool.",
    f"Write `<tool_call>{JSON}</tool_call>` to call it.",
    f"Write ``<tool_call>{JSON}</tool_call>`` to call it.",
    f"```xml\n<tool_call>\n{JSON}\n</tool_call>\n```",
    f"```python\nx = {JSON}\n```\nThat is it.",
    f"~~~\n<tool_call>{JSON}</tool_call>\n~~~\n",
    f"````markdown\n```json\n{JSON}\n```\n````\n",
    f"<think>\nI could write <tool_call>{JSON}</tool_call>.\n</think>\nNo.",
    "The <tool_call> tag is explained below.",
    "<tool_call>I will read the file</tool_call>",
    "[TOOL_CALLS] are what Mistral writes.",
    ">>> read_file(1)\n{}",
    ">>>fly\n{}",
    "read_file\nis a tool",
    "a ]<] b, x[a]<]y",
    "`<|channel|>final<|message|>` begins it",
    "<|start|>assistant is a token",
    "<|tools_prefix|> begins a list",
    "<function name=x> is XML",
    '{"name": "fly", "arguments": {}}',
    '{"name": "my-app", "version": "1.0.0"}',
    '{"path": "a.py"}',
    '{"log": [{"name": "read_file", "arguments": {}}]}',
    '{"log": [{"name": "x"}, {"name": "read_file", "arguments": {}}]}',
    'function f() { return {"name": x}; }',
    '{"name": "read_file", "description": "d", "parameters": {"type": "object", "properties": {"path": {}}}}',
    "if (a[i] < b) { c(); } // [TOO",
    "</tool_call>",
    "<function=name> is how it begins",
    "<tools>\n"
    + '{"name": "read_file", "description": "d", "parameters": {"type": "object", "properties": {}}}'
    + "\n</tools>",
]
PROSE = [Case(f"prose: {text[:40]!r}", text, [], text) for text in _PROSE]

CASES = [
    *HERMES,
    *XML,
    *MISTRAL,
    *LLAMA,
    *DEEPSEEK,
    *CHANNELS,
    *OTHERS,
    *MORE,
    *EMPTY,
    *FENCED,
    *SHAPES,
    *ODD_JSON,
    *CUT,
    *PROSE,
]
