"""`treadle mcp` as it is typed: servers added, listed, shown, tried, used in a run and removed (E-01, S-09)."""

import json
import stat
import sys

import pytest

from tests.scenario.command_line import CommandLine
from tests.scenario.mcp_servers.kit import ODD

pytestmark = pytest.mark.thorough(one_of=8)


@pytest.mark.thorough(one_of=8)
def test_a_server_is_added_tried_used_and_removed(cli: CommandLine) -> None:
    notes = cli.folder / "notes"
    add_result = cli("mcp", "add", "odd", "--env", "MY_KEY=hidden", "--", sys.executable, "-S", ODD, str(notes))
    assert (add_result.code, add_result.out.split(":")[0]) == (0, "added odd")
    assert stat.S_IMODE((cli.home / "mcp.json").stat().st_mode) == 0o600
    show_result = cli("mcp", "show", "odd")
    assert "hidden" not in show_result.out
    assert "MY_KEY" in show_result.out
    test_result = cli("mcp", "test", "odd")
    assert test_result.code == 0, test_result.err
    assert test_result.out.startswith("odd 1 works\n")
    assert "odd__look" in test_result.out
    assert "says: only reads" in test_result.out
    call = '[[turn]]\ncall = [{ name = "odd__note", args = { text = "hi" } }]\n'
    model = cli.script(f'{call}[[turn]]\ntext = "Done."\n')
    denied = cli("run", "Go.", "--json", "--model", model)
    assert "treadle rules add --allow --tool odd__note" in denied.of("tool.execution_complete")[0]["error"]
    assert cli("rules", "add", "--allow", "--tool", "mcp:odd__*").code == 0
    ran = cli("run", "/odd:tidy well the shelf, @odd:notes://all.", "--json", "--model", model)
    assert ran.of("tool.execution_complete")[0]["result"] == "noted hi"
    message_text = ran.of("user.message")[0]["content"]  # a prompt of the server, and what was attached of it
    assert message_text.startswith("Tidy the shelf, @odd:notes://all. well: some notes")
    assert message_text.endswith("\n\n@odd:notes://all, as attached:\n[notes://all]\nsome notes")
    missing = cli("run", "/odd:tidy", "--model", model)
    assert (missing.code, "/odd:tidy needs how" in missing.err) == (2, True)
    assert notes.read_text() == "hi\n"
    assert cli("mcp", "remove", "odd").code == 0
    assert cli("mcp", "list", "--json").lines == []
    assert cli("mcp", "remove", "odd").code == 1


def test_what_is_wrong_is_said(cli: CommandLine) -> None:
    for arguments, words in (
        (("add", "a__b", "--", "x"), "no name for a server"),
        (("add", "a"), "either a command or a URL"),
        (("add", "a", "--url", "ftp://x"), "no address"),
        (("add", "a", "--env", "x", "--", "y"), "NAME=VALUE"),
        (("add", "a", "--url", "https://x", "--client-secret", "s"), "--client-id"),
        (("show", "nope"), "no server 'nope'"),
        (("serve", "--mode", "yolo"), "no mode 'yolo'"),
    ):
        result = cli("mcp", *arguments)
        assert result.code in (1, 2)
        assert words in result.err
    assert cli("mcp", "add", "bad", "--", "/no/such/program").code == 0
    failed = cli("mcp", "test", "bad")
    assert (failed.code, "there is no program /no/such/program" in failed.err) == (1, True)


def test_a_registered_client_is_declared_and_its_secret_not_shown(cli: CommandLine) -> None:  # E-01
    client = ("--client-id", "me", "--client-secret", "hush", "--callback-port", "8765")
    assert cli("mcp", "add", "docs", "--url", "https://x/mcp", "--transport", "sse", *client).code == 0
    declared = json.loads((cli.home / "mcp.json").read_text())["mcpServers"]["docs"]
    assert declared["oauth"] == {"clientId": "me", "clientSecret": "hush", "callbackPort": 8765}
    assert declared["type"] == "sse"
    show_result = cli("mcp", "show", "docs")
    assert ("hush" in show_result.out, "clientId=me" in show_result.out) == (False, True)


def test_trust_in_a_declaration_covers_the_files_that_it_runs(cli: CommandLine) -> None:  # E-01
    (cli.project / "tools").mkdir()
    (cli.project / "tools/server.py").write_text("print(1)\n")
    (cli.project / ".mcp.json").write_text(
        json.dumps({"mcpServers": {"theirs": {"command": "python3", "args": ["-u", "tools/server.py", "/etc/hosts"]}}})
    )
    trusted = cli("trust", ".mcp.json")
    assert "print(1)" in trusted.err
    assert [line.split()[1].rpartition("/")[2] for line in trusted.out.splitlines()] == [".mcp.json", "server.py"]
    assert "theirs" in cli("mcp", "list").out
    (cli.project / "tools/server.py").write_text("print(2)\n")
    listed = cli("mcp", "list")
    assert "theirs" not in listed.out
    assert "treadle trust tools/server.py" in listed.err
    assert cli("trust", "tools/server.py").code == 0
    assert "theirs" in cli("mcp", "list").out


def test_a_projects_servers_are_told_and_count_once_trusted(cli: CommandLine) -> None:
    file = cli.project / ".mcp.json"
    file.write_text(json.dumps({"mcpServers": {"theirs": {"command": "x\x1b[2J"}}}))
    listed = cli("mcp", "list")
    assert "not trusted: treadle trust .mcp.json" in listed.err
    assert "theirs" not in listed.out
    assert cli("trust", ".mcp.json").code == 0
    listed = cli("mcp", "list")
    assert listed.out.split()[:2] == ["confined", "theirs"]
    assert "\x1b" not in listed.out
