"""Hosts that commands may reach, by the public surface: real installs through the proxy, a refused host, a program that
passes the proxy by."""

import json
import os
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.homes import seed
from tests.scenario.command_line import CommandLine
from tests.scenario.kit import Stage, of, play, results
from tests.unit.adapters.sandbox.grounds import missing
from treadle import Chat
from treadle.adapters.models.scripted import Call, Say
from treadle.adapters.stores.memory import MemoryStore
from treadle.chat.state import list_open_actions
from treadle.errors import InvalidInput
from treadle.protocol.events import ExecutionComplete
from treadle.protocol.live_events import OpenAction

_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_CERT = f"--cert {_CERTIFICATES}" if _CERTIFICATES.exists() else ""
PIP = f"pip --isolated download {_CERT} --no-deps --no-cache-dir --retries 0 --timeout 60 -d got six"
_PASSED = ("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


def _reachable(host: str) -> bool:
    with suppress(OSError), socket.create_connection((host, 443), timeout=5):
        return True
    return False


class Network:
    """A project whose commands run for real in the sandbox."""

    def __init__(self, folder: Path, stage: Stage) -> None:
        self.project = folder / "project"
        self.project.mkdir()
        self.home = seed(folder / "treadle")
        environment = {name: os.environ[name] for name in _PASSED if name in os.environ}
        self.env = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], **environment}
        self._stage = stage

    def chat(self, *commands: str, **options: object) -> Chat:
        steps = [*(Call("run_command", command=command) for command in commands), Say("Done.")]
        agent = self._stage.agent(steps, builtin=True, env=self.env, home=self.home)
        return agent.chat(root=str(self.project), **{"verify": False, **options})

    async def run(self, *commands: str, network: bool | tuple[str, ...] = False, **more: object) -> list[str]:
        chat = self.chat(*commands, **{"mode": "autopilot", "network": network, **more})
        await play(chat.send("Go."))
        return list(await results(chat))


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    new_stage = Stage(MemoryStore())
    yield new_stage
    await new_stage.close()


@pytest.fixture
def folder_outside_tmp() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/var/tmp", ignore_cleanup_errors=True) as name:
        yield Path(name).resolve()


@pytest.fixture
def network(folder_outside_tmp: Path, stage: Stage) -> Network:
    if reason := missing("bubblewrap"):
        pytest.skip(reason)
    return Network(folder_outside_tmp, stage)


@pytest.mark.thorough(one_of=8)
@pytest.mark.skipif(not _reachable("pypi.org"), reason="pypi.org cannot be reached from here")
async def test_pip_installs_through_the_proxy(network: Network) -> None:  # S-03
    (output,) = await network.run(PIP, network=("registries",))
    assert "[exit 0]" in output, output
    assert [name for name in os.listdir(network.project / "got") if name.startswith("six-")]


@pytest.mark.thorough(one_of=8)
@pytest.mark.skipif(not shutil.which("npm"), reason="there is no npm")
@pytest.mark.skipif(not _reachable("registry.npmjs.org"), reason="the registry cannot be reached from here")
async def test_npm_installs_through_the_proxy(network: Network) -> None:  # S-03
    (network.project / "package.json").write_text(json.dumps({"name": "x", "version": "1.0.0"}))
    (output,) = await network.run("npm install --no-audit --no-fund --no-package-lock left-pad", network=("npm",))
    assert "[exit 0]" in output, output
    assert (network.project / "node_modules" / "left-pad" / "package.json").exists(), output


@pytest.mark.parametrize(
    ("allowed", "hosts"),
    [
        (True, ("all",)),
        pytest.param(
            ("registries",), ("pypi.org",), marks=pytest.mark.skipif(not _reachable("pypi.org"), reason="offline")
        ),
    ],
)
async def test_hosts_that_a_background_command_reached_are_recorded(
    network: Network, stage: Stage, allowed: bool | tuple[str, ...], hosts: tuple[str, ...]
) -> None:  # S-17, S-19
    line = "true" if allowed is True else "curl -sS -m 20 -o /dev/null https://pypi.org/"
    steps = [Call("run_command", command=line, background=True), Call("check_command", handle="1.0", wait_s=30)]
    agent = stage.agent([*steps, Say("Done.")], builtin=True, env=network.env, home=network.home)
    chat = agent.chat(root=str(network.project), verify=False, mode="autopilot", network=allowed)
    await play(chat.send("Go."))
    outcomes = [event.data for event in await chat.events() if isinstance(event.data, ExecutionComplete)]
    assert hosts in [outcome.hosts for outcome in outcomes], outcomes


async def test_another_host_is_refused(network: Network) -> None:  # S-03
    curl = "curl -sS -m 20 https://example.org/"
    (output,) = await network.run(curl, network=("registries",))
    assert "403" in output
    assert "needs the network: example.org; a person can allow it" in output


async def test_a_name_of_this_machine_is_refused(network: Network) -> None:  # S-03
    (output,) = await network.run(f"curl -sS -m 20 -x $http_proxy http://{socket.gethostname()}.localhost/")
    assert "example" not in output
    (output,) = await network.run("curl -sS -m 20 --noproxy '' http://localhost:80/", network=("pypi",))
    assert "localhost:80 is not among the hosts" in output


async def test_a_program_that_passes_the_proxy_by_reaches_nothing(network: Network) -> None:  # S-03
    with socket.create_server(("127.0.0.1", 0)) as server:
        line = f"exec 3<>/dev/tcp/127.0.0.1/{server.getsockname()[1]} && echo reached"
        (output,) = await network.run(line, network=("registries", "git-hosts"))
    assert "\nreached" not in output
    assert "Connection refused" in output


async def test_the_variables_of_the_proxy_stay_with_their_command(network: Network) -> None:  # T-14
    first, second = await network.run("echo $HTTPS_PROXY; export MINE=1", "echo $HTTPS_PROXY $MINE", network=("npm",))
    assert "http://127.0.0.1:3128" in first
    assert "http://127.0.0.1:3128 1" in second
    (third,) = await network.run("echo [$HTTPS_PROXY]")
    assert "[]" in third


async def test_what_is_no_host_is_refused_at_once(network: Network) -> None:
    with pytest.raises(InvalidInput, match="no host"):
        await network.run("true", network=("make",))


async def test_a_server_of_the_commands_own_needs_no_proxy(network: Network) -> None:
    line = (
        "echo hello > page; python3 -m http.server -b 127.0.0.1 8123 >/dev/null 2>&1 & "
        "for i in $(seq 50); do curl -sS http://127.0.0.1:8123/page 2>/dev/null && break; sleep 0.1; done"
    )
    (output,) = await network.run(line, network=("pypi",))
    assert "hello" in output


# -- asked for --------------------------------------------------------------------------------------------------------

FETCH = "touch made; curl -sS -m 20 -o page https://pypi.org/simple/six/"
AGAIN = "curl -sS -m 20 -o again https://pypi.org/simple/six/"
needs_pypi = pytest.mark.skipif(not _reachable("pypi.org"), reason="pypi.org cannot be reached from here")


async def _open_action(chat: Chat) -> OpenAction:
    (action,) = list_open_actions(await chat.state())
    return action


@needs_pypi
async def test_an_approval_lets_a_command_reach_its_hosts_once(network: Network) -> None:  # S-03, S-08
    chat = network.chat(FETCH, AGAIN, mode="ask", interactive=True)
    await play(chat.send("Go."))
    action = await _open_action(chat)
    assert action.network == ("pypi",)
    assert "it needs the network: pypi" in action.reason
    assert not (network.project / "made").exists()
    events = await play(chat.approve(action))
    assert (network.project / "page").stat().st_size > 0
    (completion,) = of(events, ExecutionComplete)
    assert completion.hosts == ("pypi.org",)  # S-17
    assert "reached pypi.org" in completion.result_summary
    again = await _open_action(chat)  # once is once
    await play(chat.deny(again))
    assert not (network.project / "again").exists()


@pytest.mark.thorough(one_of=8)
@needs_pypi
async def test_a_rule_for_the_chat_answers_the_next_command_too(network: Network) -> None:  # S-07
    chat = network.chat(FETCH, AGAIN, mode="ask", interactive=True)
    await play(chat.send("Go."))
    action = await _open_action(chat)
    await play(chat.approve(action, rule=action.offers[0].rule))
    assert (network.project / "page").stat().st_size > 0
    assert (network.project / "again").stat().st_size > 0
    assert not list_open_actions(await chat.state())


async def test_all_hosts_once(network: Network) -> None:  # S-03
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        line = f"curl -sS -m 3 https://example.org/ -o x; exec 3<>/dev/tcp/127.0.0.1/{port} && echo reached > got"
        chat = network.chat(line, mode="ask", interactive=True)
        await play(chat.send("Go."))
        action = await _open_action(chat)
        events = await play(chat.approve(action, rule=action.offers[-1].rule))
    assert (network.project / "got").read_text() == "reached\n"
    assert (await chat.state()).options.rules == ()
    (completion,) = of(events, ExecutionComplete)
    assert completion.hosts == ("all",)  # S-17: without a proxy the hosts are not seen
    assert "could reach every host" in completion.result_summary


async def test_a_failed_command_is_asked_about_by_what_it_wrote(network: Network) -> None:  # S-03
    (network.project / "fetch.sh").write_text("touch made; curl -sS -m 20 https://example.org/\n")
    chat = network.chat("bash fetch.sh", mode="ask", interactive=True)
    await play(chat.send("Go."))
    action = await _open_action(chat)
    assert action.network == ("example.org",)
    assert "Could not resolve host" in action.text
    await play(chat.deny(action))
    assert not (network.project / "made").exists()


@pytest.mark.usefixtures("network")
def test_a_trial_says_what_it_would_need(cli: CommandLine) -> None:  # W-09
    trial = cli("try", "curl -sS -m 20 https://example.org/")
    assert "it needs the network: --network example.org" in trial.err
    (report,) = cli("try", "--json", "--network", "pypi", "curl -sS -m 20 https://example.org/").lines
    assert (report["code"], report["wants_network"]) == (56, ["example.org"])
