"""Jobs: background commands belong to a chat. They are listed, read, given input and stopped from the library; each
ends for good, and its changes are recorded by any process (S-14, W-10, L-07, T-05; faults 2, 6)."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.scenario.kit import of, play
from treadle import Agent, Chat
from treadle.adapters.models.scripted import Call, Say, ScriptedModel
from treadle.adapters.sandbox.supervisor.folder import OWNER
from treadle.base.types import make_id
from treadle.errors import JobElsewhere, NotFound, ToolError
from treadle.library.jobs import Job
from treadle.ports.commands import Allowance
from treadle.protocol import events as e

pytestmark = pytest.mark.thorough(one_of=8)

MARK = make_id("mark")
SERVE = f'echo made > made; echo up; while read -r line; do echo "got $line"; done; sleep 1000 # {MARK}'


class Home:
    """A home with a project; every agent on it is another process as far as it knows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.project = folder / "project"
        self.project.mkdir()
        self.agents: list[Agent] = []

    def agent(self, *steps: Any, home: str = "home", **settings: Any) -> Agent:
        place = self.folder / home
        model = ScriptedModel([*steps])
        new_agent = Agent(self.folder / "home" / "chats.db", model=model, home=place, **settings)
        self.agents.append(new_agent)
        return new_agent

    async def start_job(self, command: str = SERVE, *, view: bool = True, **settings: Any) -> tuple[Agent, Chat, Job]:
        """A chat whose run has ended, and its job, which has not. Without a view it writes to the project itself."""
        call = Call("run_command", command=command, background=True)
        agent = self.agent(call, Say("It runs."), **settings)
        chat = agent.chat(root=str(self.project), mode="autopilot", command_view=view)
        events = await play(chat.send("Serve."))
        assert len(of(events, e.JobStarted)) == 1
        [job] = await chat.jobs()
        return agent, chat, job

    async def close(self) -> None:
        for agent in self.agents:
            for job in await agent.jobs():
                if job.view.status == "running":
                    await job.stop()
            await agent.close()


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    (tmp_path / "home").mkdir()
    new_home = Home(tmp_path)
    yield new_home
    await new_home.close()


async def until(fact: Callable[[], Any]) -> None:
    async with asyncio.timeout(30):
        while not fact():  # noqa: ASYNC110 - a fact of other processes
            await asyncio.sleep(0.01)


async def wait_for_output(job: Job, expected: str) -> str:
    async with asyncio.timeout(30):
        while expected not in (text := (await job.tail()).text):  # noqa: ASYNC110 - a fact of other processes
            await asyncio.sleep(0.01)
    return text


async def over(job: Job) -> str:
    """How it ended, once it has."""
    async with asyncio.timeout(30):
        while (await job.look()).status == "running":  # noqa: ASYNC110 - a fact of other processes
            await asyncio.sleep(0.01)
    return job.view.status


def living() -> list[str]:
    """Processes of the command, by their numbers outside of its sandbox."""
    return [pid for pid in os.listdir("/proc") if pid.isdigit() and MARK.encode() in _line(pid)]


def _line(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.thorough(one_of=8)
async def test_a_job_is_listed_read_talked_to_and_stopped_by_another_process(home: Home) -> None:
    _, chat, _ = await home.start_job()
    other_agent = home.agent()
    [job] = await other_agent.jobs()
    assert (job.view.chat, job.view.command, job.view.status) == (chat.id, SERVE, "running")
    assert job.view.host == os.uname().nodename
    await wait_for_output(job, "up\n")
    await job.send("hello", token="once")
    await job.send("hello", token="once")
    await job.send("world")
    assert await wait_for_output(job, "got world\n") == "up\ngot hello\ngot world\n"
    assert living()
    assert (await job.stop()).status == "stopped"
    assert not living()
    log = await other_agent.chat(chat.id).events()
    [job_end] = of(log, e.JobEnded)
    assert job_end == e.JobEnded(job.view.job, "stopped", job_end.code, "person", pending=1)
    assert of(log, e.FilesChanged) == []
    assert not (home.project / "made").exists()
    with pytest.raises(ToolError, match="ended"):
        await job.send("more")
    assert not (await other_agent.chat(chat.id).state()).jobs


@pytest.mark.thorough(one_of=8)
async def test_what_a_job_wrote_is_read_from_a_byte_on_in_whole_lines(home: Home) -> None:
    _, _, job = await home.start_job("for n in 1 2 3; do echo line $n; done; printf 'no end'; sleep 1000")
    await wait_for_output(job, "no end")
    first = await job.tail(0, 10)
    assert (first.text, first.offset, first.next, first.size) == ("line 1\n", 0, 7, 27)
    assert (await job.tail(first.next)).text == "line 2\nline 3\nno end"
    assert (await job.tail(-10)).text == "no end"
    assert (await job.tail(27)).text == ""


@pytest.mark.thorough(one_of=8)
async def test_what_is_shown_is_inert_and_without_secrets(home: Home) -> None:
    # S-11, S-12
    secret = "sk-proj-0123456789abcdefABCDEF0123456789abcdefABCDEF"
    _, _, job = await home.start_job(f"printf '\\033]0;title\\007\\033[31mred\\033[0m {secret}\\n'; sleep 1000")
    output = await wait_for_output(job, "red")
    assert "\x1b" not in output
    assert secret not in output
    assert secret not in job.view.command


@pytest.mark.thorough(one_of=8)
async def test_one_that_ends_by_itself_is_closed_by_whoever_looks_next_once(home: Home) -> None:
    _, chat, _ = await home.start_job("until [ -e go ]; do sleep 0.01; done; echo made > made; exit 3", view=False)
    (home.project / "go").touch()
    await until((home.project / "made").exists)
    lookers = [home.agent().chat(chat.id) for _ in range(3)]
    async with asyncio.timeout(30):
        while (await lookers[0].state()).jobs:
            await asyncio.gather(*(looker.jobs() for looker in lookers))
    log = await chat.events()
    assert of(log, e.JobEnded) == [e.JobEnded("1.0", "exited", 3)]
    [change] = of(log, e.FilesChanged)
    assert "made" in [file.path for file in change.files]
    [job] = await chat.jobs()
    assert (job.view.status, job.view.code) == ("exited", 3)


@pytest.mark.thorough(one_of=8)
async def test_what_would_have_been_asked_for_is_told_when_it_is_closed(home: Home) -> None:
    # W-10, S-06: its words do not say it, and no person was there when it was written
    _, chat, job = await home.start_job("name=.e; echo A=1 > ${name}nv; sleep 1000", view=False)
    await until((home.project / ".env").exists)
    await job.stop()
    [job_end] = of(await chat.events(), e.JobEnded)
    assert any(".env" in reason for reason in job_end.concerns)
    await chat.files.undo(paths=[".env"])
    assert not (home.project / ".env").exists()


@pytest.mark.thorough(one_of=8)
async def test_the_next_run_finds_it_closed_and_tells_its_changes_no_second_time(home: Home) -> None:
    _, chat, job = await home.start_job("until [ -e go ]; do sleep 0.01; done; echo made > made", view=False)
    (home.project / "go").touch()
    await until((home.project / "made").exists)
    assert await over(job) == "exited"
    again = home.agent(Call("check_command", handle="1.0"), Say("Done.")).chat(chat.id)
    events = await play(again.send("And?"))
    assert of(events, e.FilesChanged) == []
    log = await chat.events()
    assert len(of(log, e.JobEnded)) == len(of(log, e.FilesChanged)) == 1
    await chat.files.undo(paths=["made"])
    assert not (home.project / "made").exists()


@pytest.mark.thorough(one_of=8)
async def test_a_closer_that_died_is_followed_by_another(home: Home) -> None:
    """fault 2: between the claim to tell what it changed and the record of it."""
    agent, chat, job = await home.start_job("echo made > made", view=False)
    command = await agent.job_registry._commands.find(chat.id, "1.0")  # type: ignore[arg-type]
    assert command is not None
    await command.wait(30)
    assert command.is_first_token("closed")
    await job.look()
    log = await chat.events()
    assert len(of(log, e.JobEnded)) == len(of(log, e.FilesChanged)) == 1


@pytest.mark.thorough(one_of=8)
async def test_one_whose_supervisor_was_killed_is_lost_and_nothing_of_it_lives(home: Home) -> None:
    """fault 6"""
    agent, chat, job = await home.start_job()
    await wait_for_output(job, "up")
    command = await agent.job_registry._commands.find(chat.id, "1.0")  # type: ignore[arg-type]
    assert command is not None
    os.kill(int((Path(command.folder) / OWNER).read_text().split()[0]), signal.SIGKILL)
    assert await over(job) == "lost"
    assert not living()
    assert of(await chat.events(), e.JobEnded) == [e.JobEnded("1.0", "lost")]


@pytest.mark.thorough(one_of=8)
async def test_an_archived_chat_has_no_jobs(home: Home) -> None:
    _, chat, job = await home.start_job()
    await wait_for_output(job, "up")
    same_chat = home.agent().chat(chat.id, archived=True)
    await same_chat.open()
    assert not living()
    [job_end] = of(await chat.events(), e.JobEnded)
    assert (job_end.ending, job_end.by) == ("stopped", "archive")


@pytest.mark.thorough(one_of=8)
async def test_a_chat_that_was_archived_elsewhere_is_found_by_the_sweep(home: Home) -> None:
    agent, chat, job = await home.start_job()
    await wait_for_output(job, "up")
    far_agent = home.agent(home="far")
    far_agent.job_registry._commands.folder = str(home.folder / "far" / "commands")
    [far_job] = await far_agent.chat(chat.id).jobs()
    assert (far_job.view.status, far_job.view.host) == ("elsewhere", os.uname().nodename)
    for act in (far_job.tail(), far_job.send("x"), far_job.stop()):
        with pytest.raises(JobElsewhere, match=os.uname().nodename):
            await act
    await far_agent.chat(chat.id, archived=True).open()
    assert (await job.look()).status == "running"
    await agent.job_registry.sweep(everything=True)
    assert (await job.look()).status == "stopped"
    assert not (await chat.state()).jobs


@pytest.mark.thorough(one_of=8)
async def test_one_that_nobody_needs_ends(home: Home) -> None:
    _, chat, job = await home.start_job("echo up; sleep 1000", allowance=Allowance(job_idle_s=0.5))
    async with asyncio.timeout(30):
        while (await chat.state()).jobs:
            await asyncio.sleep(0.05)
            await home.agents[0].job_registry.sweep()
    assert (await job.look()).status == "idle"


@pytest.mark.thorough(one_of=8)
async def test_what_is_no_job_is_not_found(home: Home) -> None:
    agent, chat, _ = await home.start_job()
    with pytest.raises(NotFound):
        await agent.job_registry.find(chat.id, "9.9")
