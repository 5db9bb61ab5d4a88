"""Jobs over HTTP: listed, read, given input and stopped by their owner, on the server that they run on (S-14, S-12,
A-07)."""

import asyncio
import os
from pathlib import Path

import pytest

from tests.homes import seed
from tests.scenario.http_kit import serving
from treadle.adapters.models.scripted import Call, Say
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.client import Client as RealClient
from treadle.client.chats import ClientJob
from treadle.errors import ApiError

pytestmark = pytest.mark.thorough(one_of=8)

SERVE = "echo made > made; printf 'up \\033]0;evil\\007\\n'; while read -r line; do echo \"got $line\"; done"
STEPS = [Call("run_command", command=SERVE, background=True), Say("It runs.")]
OPTIONS = {"auto_approve_commands": True, "tools": ["run_command"]}


async def await_output(job: ClientJob, expected_text: str) -> str:
    async with asyncio.timeout(30):
        while expected_text not in (text := (await job.tail()).text):  # noqa: ASYNC110 - a fact of another process
            await asyncio.sleep(0.02)
    return text


async def test_a_job_is_listed_read_talked_to_and_stopped_by_its_owner_only(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    store = SqliteStore(tmp_path / "treadle.db")
    async with serving(store, seed(tmp_path / "home"), STEPS, builtin=True) as server:
        local = server.local
        chat = await local.create("Serve.", root=str(project), **OPTIONS)
        await local.until(chat, "session.idle")
        at = f"/api/chats/{chat}/jobs"
        async with RealClient(server.address, local.token) as client:
            [job] = await client.chat(chat).jobs()
            assert (job.view.job, job.view.status, job.view.host) == ("1.0", "running", os.uname().nodename)
            assert "\x1b" not in await await_output(job, "up")
            for _ in range(2):  # the same request once more is not written once more
                reply = await local("POST", f"{at}/1.0/input", {"text": "hi"}, headers={"idempotency-key": "k /1"})
                assert reply.status == 200
            await job.send("there")
            assert (await await_output(job, "got there")).count("got hi") == 1
            page = (await local("GET", f"{at}/1.0/output?offset=0&limit=4")).json
            assert page["offset"] == 0
            other_user = server.user("somebody")
            for method, path in (("GET", ""), ("GET", "/1.0/output"), ("POST", "/1.0/stop"), ("POST", "/1.0/input")):
                refused = await other_user(method, at + path, None if method == "GET" else {})
                assert (refused.status, refused.code) == (404, "not_found")
            assert (await local("GET", f"{at}/9.9/output")).status == 404
            assert (await job.stop()).status == "stopped"
            with pytest.raises(ApiError) as error:
                await job.send("more")
            assert error.value.reason == "tool"
            assert job.view.pending == 1
            assert not (project / "made").exists()  # W-10
            assert "+made" in (await job.changes()).diff
            for method, path in (("GET", "/1.0/changes"), ("POST", "/1.0/commit"), ("POST", "/1.0/discard")):
                refused = await other_user(method, at + path, None if method == "GET" else {})
                assert (refused.status, refused.code) == (404, "not_found")
            await job.commit()
            await local.until(chat, "job.settled")
            await local.until(chat, "session.idle")
            assert (project / "made").read_text() == "made\n"
            [over] = await client.chat(chat).jobs()
            assert over.view.pending == 0
        log = await local.log(chat)
        [end] = [event["data"] for event in log if event["type"] == "job.ended"]
        assert (end["ending"], end["by"]) == ("stopped", "person")
        [changes] = [event["data"] for event in log if event["type"] == "workspace.files_changed"]
        assert [file["path"] for file in changes["files"]] == ["made"]


async def test_an_archived_chat_has_no_jobs(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    store = SqliteStore(tmp_path / "treadle.db")
    async with serving(store, seed(tmp_path / "home"), STEPS, builtin=True) as server:
        local = server.local
        chat = await local.create("Serve.", root=str(project), **OPTIONS)
        await local.until(chat, "session.idle")
        assert (await local("PATCH", f"/api/chats/{chat}", {"archived": True})).status == 200
        [job] = (await local("GET", f"/api/chats/{chat}/jobs")).json["jobs"]
        assert job["status"] == "stopped"
