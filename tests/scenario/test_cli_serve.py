"""`treadle serve` and `treadle tokens`: real processes on loopback. Acknowledged requests survive a killed server, a
repeat of the others is harmless, and SIGTERM ends it in good order (faults 1 and 17)."""

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from tests.scenario.command_line import CommandLine, end

pytestmark = pytest.mark.thorough(one_of=8)

HELLO = '[[turn]]\ntext = "Hello."\n'
ASK = '[[turn]]\ncall = [{ name = "weather", args = { city = "Oslo" } }]\n[[turn]]\ntext = "Rain."\n'
TALK = '[[turn]]\ntext = "one two three four five six"\nchunk = 4\ndelay_s = 0.05\n'
WAIT_S = 60


class Served:
    def __init__(self, cli: CommandLine, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        match = re.fullmatch(r"serving (http://127\.0\.0\.1:\d+)/(?:#token=(trd_\S+))?\n", process.stdout.readline())
        assert match, process.communicate()
        self.process = process
        self.address = match[1]
        self.session = requests.Session()
        self.token = match[2] or ""
        self.session.headers["authorization"] = f"Bearer {self.token}"

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> requests.Response:
        header_fields = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.session.request(method, self.address + path, json=body, headers=header_fields, timeout=WAIT_S)

    def until(self, chat: str, kind: str) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = []
        address = f"{self.address}/api/chats/{chat}/events"
        with self.session.get(address, stream=True, timeout=WAIT_S) as response:
            for line in response.iter_lines():
                if line.startswith(b"data: "):
                    events.append(json.loads(line[6:]))
                    if events[-1]["type"] == kind:
                        return events
        raise AssertionError([event["type"] for event in events])


class Servers:
    def __init__(self, cli: CommandLine) -> None:
        self.cli = cli
        self._processes: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str, faults: str = "") -> Served:
        env = {"TREADLE_FAULTS": faults} if faults else {}
        process = self.cli.start("serve", "--port", "0", *arguments, env=env)
        self._processes.append(process)
        return Served(self.cli, process)

    def close(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.communicate(timeout=WAIT_S)


@pytest.fixture
def servers(cli: CommandLine) -> Iterator[Servers]:
    running_servers = Servers(cli)
    yield running_servers
    running_servers.close()


def test_the_token_is_made_once_and_kept(servers: Servers) -> None:  # S-13
    model = servers.cli.script(HELLO)
    first = servers.start("--model", model)
    token_file = servers.cli.home / "serve-token"
    assert token_file.read_text().strip() == first.token
    assert token_file.stat().st_mode & 0o777 == 0o600
    chat = first("POST", "/api/chats", {"content": "Hi."}).json()
    assert chat["root"] == str(servers.cli.project)
    assert first.until(chat["id"], "session.idle")[-1]["data"]["reason"] == "done"
    second = servers.start("--model", model)
    assert second.token == first.token
    assert second("GET", f"/api/chats/{chat['id']}").json()["status"] == "idle"
    assert chat["id"] in servers.cli("chats").out


def test_a_token_for_somebody_else_locks_nobody_out(servers: Servers) -> None:  # S-13
    model = servers.cli.script(HELLO)
    first = servers.start("--model", model)
    servers.cli("tokens", "add", "alice")
    assert first("GET", "/api/me").json()["user"] == "local"
    again = servers.start("--model", model)
    assert again.token == first.token
    assert again("GET", "/api/me").json()["user"] == "local"
    assert "own  local" in servers.cli("tokens").out
    assert "revoked" in servers.cli("tokens", "revoke", "own").out
    for server in (first, again):
        assert server("GET", "/api/me").status_code == 401
    assert not servers.start("--model", model).token


def test_tokens_of_users(servers: Servers) -> None:  # S-13
    cli = servers.cli
    token_result = cli("tokens", "add", "alice", "--label", "laptop")
    secret = token_result.out.strip()
    assert re.fullmatch(r"trd_[\w-]{40,}", secret)
    (listed,) = cli("tokens", "--json").lines
    assert (listed["user"], listed["label"]) == ("alice", "laptop")
    assert secret not in (cli.home / "tokens.json").read_text()
    server = servers.start("--model", cli.script(HELLO))
    assert not server.token
    assert server("GET", "/api/me").status_code == 401
    server.session.headers["authorization"] = f"Bearer {secret}"
    assert server("GET", "/api/me").json()["user"] == "alice"
    refused = server("POST", "/api/chats", {"root": str(cli.project)})
    assert refused.json()["error"]["code"] == "invalid_input"
    assert "serve_roots" in refused.json()["error"]["message"]
    assert "revoked" in cli("tokens", "revoke", listed["id"]).out
    assert server("GET", "/api/me").status_code == 401
    assert cli("tokens", "revoke", "t_none").code == 1
    assert cli("tokens", "add", "no name").code == 2


def test_what_cannot_be_served(servers: Servers) -> None:
    cli = servers.cli
    port = servers.start("--model", cli.script(HELLO)).address.rpartition(":")[2]
    serve_result = cli("serve", "--port", port)
    assert serve_result.code == 2
    assert "cannot be listened on" in serve_result.err
    assert cli("serve", "--host", "no.such.host.invalid").code == 2
    (cli.home / "serve-token").chmod(0o644)
    assert "can be read by others" in cli("serve", "--port", "0").err


@pytest.mark.parametrize(
    "point", ["server.before_command", "append.before:external_tool.completed", "server.after_command"]
)
def test_a_repeat_after_a_crash_does_nothing_twice(servers: Servers, point: str) -> None:  # A-04, fault 5
    """The server dies before the commit, or after it but before its answer; the client sends the same again."""
    model = servers.cli.script(ASK)
    server = servers.start("--model", model, faults=f"kill@{point}#{2 if point.startswith('server') else 1}")
    tools = [{"name": "weather"}]
    body = {"content": "How is it?", "dynamic_tools": tools, "verify": False}
    chat = server("POST", "/api/chats", body, idempotency_key="create").json()["id"]
    events = server.until(chat, "session.action_required")
    (call,) = [action["tool_call_id"] for action in events[-1]["data"]["actions"]]
    results = {"results": [{"tool_call_id": call, "output": "rain"}]}
    with pytest.raises(requests.ConnectionError):
        server("POST", f"/api/chats/{chat}/tool-results", results, idempotency_key="results")
    assert end(server.process).code == -signal.SIGKILL
    again = servers.start("--model", model)
    assert again("POST", "/api/chats", body, idempotency_key="create").json()["id"] == chat
    for _ in range(2):
        response = again("POST", f"/api/chats/{chat}/tool-results", results, idempotency_key="results")
        assert response.status_code == 204
    events = again.until(chat, "session.idle")
    assert sum(event["type"] == "external_tool.completed" for event in events) == 1
    assert len(again("GET", "/api/chats").json()["chats"]) == 1


@pytest.mark.thorough(one_of=8)
def test_the_web_app_on_a_project_of_its_own(cli: CommandLine) -> None:  # U-05
    """`make run-web`: without a key a script plays the model; Ctrl-C ends it, and nothing is left."""
    process = cli.start("web", "--demo", "--no-open", "--port", "0", env={"TMPDIR": str(cli.folder / "user")})
    try:
        served = Served(cli, process)
        assert "<treadle-app>" in served("GET", "/").text
        me = served("GET", "/api/me").json()
        assert (me["user"], me["mode"]) == ("local", "ask")
        assert me["root"].startswith(str(cli.folder / "user" / "treadle-"))
        chat = served("POST", "/api/chats", {"content": "A test fails."}).json()
        actions = served.until(chat["id"], "session.action_required")[-1]["data"]["actions"]
        assert actions[0]["options"] == ["raise an error", "return 0"]
    finally:
        process.send_signal(signal.SIGINT)
        serve_result = end(process)
    assert serve_result.code == 0
    assert "good once" in serve_result.err
    assert not list((cli.folder / "user").glob("treadle-*"))


def test_sigterm_ends_in_good_order(servers: Servers) -> None:  # fault 17
    server = servers.start("--model", servers.cli.script(TALK))
    chat = server("POST", "/api/chats", {"content": "Talk.", "verify": False}).json()["id"]
    address = f"{server.address}/api/chats/{chat}/events"
    with server.session.get(address, stream=True, timeout=WAIT_S) as response:
        lines = response.iter_lines()
        assert any(b"assistant.message_delta" in line for line in lines)
        server.process.send_signal(signal.SIGTERM)
        nonempty_lines = [line for line in lines if line]
    assert nonempty_lines[-1] == b"retry: 1000"
    serve_result = end(server.process)
    assert serve_result.code == 0, serve_result.err
    types = servers.cli("export", chat).types
    assert types[-1] == "session.run_end", "what was under way was recorded"
    assert "assistant.message" in types


def listens(address: str) -> bool:
    try:
        return requests.get(f"{address}/healthz", timeout=WAIT_S).ok
    except requests.ConnectionError:
        return False


def test_a_second_signal_leaves_at_once(servers: Servers) -> None:  # fault 17
    server = servers.start("--model", servers.cli.script('[[turn]]\ntext = "x"\nhang = true\n'))
    chat = server("POST", "/api/chats", {"content": "Talk."}).json()["id"]
    server.until(chat, "assistant.message_delta")
    server.process.send_signal(signal.SIGTERM)
    while listens(server.address):
        pass
    server.process.send_signal(signal.SIGTERM)
    serve_result = end(server.process)
    assert serve_result.code == 0, serve_result.err
    assert servers.cli("export", chat).types[-1] == "assistant.turn_start"


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_server_that_does_not_work(servers: Servers, kind: str, request: pytest.FixtureRequest) -> None:
    model = servers.cli.script(HELLO)
    store = request.getfixturevalue("postgres") if kind == "postgres" else str(servers.cli.folder / "elsewhere.db")
    words = ("--model", model, "--store", store)
    idle = servers.start(*words, "--no-worker")
    chat = idle("POST", "/api/chats", {"content": "Hi."}).json()["id"]
    assert idle("GET", f"/api/chats/{chat}").json()["status"] == "pending"
    servers.start(*words)
    assert idle.until(chat, "session.idle")[-1]["data"]["reason"] == "done"
    assert not (servers.cli.home / "treadle.db").exists()
