"""A chat from elsewhere has no power here that it brought along (S-09), and a file that was cut is refused (D-08)."""

import json
import stat
from typing import Any

import pytest

from tests.scenario.command_line import CommandLine

pytestmark = pytest.mark.thorough(one_of=8)

HELLO = '[[turn]]\ntext = "Hello."\n'
READ = '[[turn]]\ncall = [{ name = "read_file", args = { path = "a" } }]\n[[turn]]\ntext = "Read."\n'


def replace_options(exported: str, at: int, **options: Any) -> str:
    """An export in which a chat says other options of itself."""
    lines = exported.splitlines()
    first = json.loads(lines[at])
    first["data"]["options"] |= options
    return "\n".join([*lines[:at], json.dumps(first), *lines[at + 1 :]])


def cut_export(exported: str, last: str) -> str:
    """An export of a chat that had not come further than the first event of a type."""
    lines = [json.loads(line) for line in exported.splitlines()]
    kept_lines = lines[: next(line["seq"] for line in lines if line["type"] == last)]
    kept_lines[0]["events"] = len(kept_lines)
    return "\n".join(json.dumps(line) for line in kept_lines)


def test_a_program_that_a_chat_names_is_not_run_here(cli: CommandLine) -> None:
    """An imported `command:` model ran on the next worker that came by."""
    program = cli.folder / "evil"
    program.write_text(f"#!/bin/sh\ntouch {cli.folder}/ran\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    cli("run", "Hello?", "--model", cli.script(HELLO))
    waiting = cut_export(cli("export", "last").out, "user.message")
    evil = replace_options(
        waiting, 0, model=f"command:{program}", mode="autopilot", auto_approve_commands=True, sandbox="none"
    )
    imported = cli("import", "--new-id", "-", input=evil, env={"TREADLE_MODEL": "scripted:demo"})
    chat = imported.out.strip()
    assert "scripted:demo, mode ask" in imported.err
    assert "nothing to do" in cli("resume", chat).err
    assert not (cli.folder / "ran").exists()
    chat_json = cli("show", "--json", chat).lines[0]
    assert (chat_json["status"], chat_json["last_end"]) == ("idle", "interrupted")
    options = chat_json["options"]
    assert (options["model"], options["mode"], options["sandbox"]) == ("scripted:demo", "ask", "auto")
    assert (options["auto_approve_commands"], options["root"]) == (False, str(cli.project))


def test_an_imported_chat_goes_on_with_what_is_here(cli: CommandLine) -> None:
    (cli.project / "a").write_text("a\n")
    cli("run", "Read a.", "--model", cli.script(READ))
    calling = cut_export(cli("export", "last").out, "tool.execution_start")
    chat = cli("import", "--new-id", "-", input=calling).out.strip()
    went_on = cli("run", "Go on.", "--chat", chat, "--model", cli.script(READ), "--json")
    assert went_on.code == 0
    assert "session.run_end" in went_on.types
    assert "brought here from elsewhere" in cli("show", chat).out


def test_a_file_that_was_cut_is_refused(cli: CommandLine) -> None:  # D-08
    cli("run", "Hello?", "--model", cli.script(HELLO))
    lines = cli("export", "last").out.splitlines()
    for kept_lines in (lines[:-1], lines[:2], [*lines[:-1], lines[-1][:-9]]):
        refused = cli("import", "--new-id", "-", input="\n".join(kept_lines))
        assert refused.code in (1, 2)
        assert "Nothing was imported" in refused.err
    assert len(cli("chats", "--json").lines) == 1
