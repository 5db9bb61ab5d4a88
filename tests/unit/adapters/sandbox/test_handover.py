"""Commands that may reach some hosts: in a real sandbox, through a real proxy process."""

import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import pytest

from tests.unit.adapters.sandbox.grounds import (
    NOBODY,
    WAIT_S,
    WATCHES_SIGNALS,
    Grounds,
    becoming,
    grounds,
    missing,
    wait_until_reaped,
)
from treadle.adapters.sandbox.launch.handover import ENDED
from treadle.adapters.sandbox.launcher import Launcher
from treadle.ports.sandbox import PROXY_PORT, Confinement, Hosts

LEVEL = "bubblewrap"
_PROXY = f"http://127.0.0.1:{PROXY_PORT}"
_GET = f"curl -sS -m 20 -x {_PROXY}"


class FixedLauncher(Launcher, frozen=True):
    """Tells the proxy where a host of a name is: tests have no public hosts of their own."""

    fixed: Mapping[str, tuple[str, int]] = {}

    def build_line(self, module: str, spec: Mapping[str, object], argv: Sequence[str] = ()) -> list[str]:
        more = {"fixed": dict(self.fixed)} if module == "handover" else {}
        return super().build_line(module, {**spec, **more}, argv)


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = f"page {self.path} of {self.headers['Host']}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def web() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


@pytest.fixture(params=["own", "nobody"])
def place(request: pytest.FixtureRequest) -> Iterator[Grounds]:
    user = NOBODY if request.param == "nobody" else None
    if skip_reason := missing(LEVEL, user):
        pytest.skip(skip_reason)
    with grounds(user) as base_grounds, web() as port:
        fixed = {"web.test": ("127.0.0.1", port)}
        yield msgspec.structs.replace(
            base_grounds, launcher=FixedLauncher(base_grounds.launcher.python, base_grounds.launcher.package, fixed)
        )


def _reaching(place: Grounds, *patterns: str) -> Confinement:
    return place.confinement(network=Hosts(patterns, str(place.folder / "scratch" / "network")))


def _read_refusals(place: Grounds) -> list[tuple[str, str]]:
    lines = Path(place.folder / "scratch" / "network").read_text().splitlines()
    return [(entry["host"], entry["refused"]) for entry in map(json.loads, lines) if "reached" not in entry]


def test_an_allowed_host_is_reached_and_another_refused(place: Grounds) -> None:  # S-03
    script = f"{_GET} http://web.test/a; {_GET} http://evil.test/; {_GET} http://localhost/; exit 7"
    result = place.run(LEVEL, script, _reaching(place, "web.test", "localhost.test"))
    assert result.returncode == 7
    assert result.stdout.startswith("page /a of web.test\ntreadle: evil.test:80 is not among the hosts")
    refusals = dict(_read_refusals(place))
    assert refusals.keys() == {"web.test", "evil.test", "localhost"}
    assert refusals["web.test"] == ""
    assert "not among" in refusals["evil.test"]


def test_a_program_that_ignores_the_proxy_reaches_nothing(place: Grounds) -> None:  # S-03
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        script = f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo in; curl -sS -m 5 http://203.0.113.80/ && echo in"
        result = place.run(LEVEL, script, _reaching(place, "*.test"))
    assert "in\n" not in result.stdout
    assert result.returncode != 0


def test_socks_works_too(place: Grounds) -> None:  # S-03
    script = f"curl -sS -m 20 --socks5-hostname 127.0.0.1:{PROXY_PORT} http://web.test/s"
    assert place.run(LEVEL, script, _reaching(place, "web.test")).stdout == "page /s of web.test\n"


def test_a_command_without_a_connection_ends_as_it_does(place: Grounds) -> None:
    result = place.run(LEVEL, "ls /proc/self/fd | wc -l; kill -9 $$", _reaching(place, "web.test"))
    plain = place.run(LEVEL, "ls /proc/self/fd | wc -l; kill -9 $$", place.confinement())
    assert (result.stdout, result.returncode) == (plain.stdout, plain.returncode)


def test_protected_paths_are_held_beside_a_network(place: Grounds) -> None:
    confinement = msgspec.structs.replace(_reaching(place, "web.test"), protected=(f"{place.root}/.git",))
    result = place.run(LEVEL, f"{_GET} http://web.test/; mkdir .git/hooks", confinement)
    assert "page / of web.test" in result.stdout
    assert result.returncode != 0
    assert not (place.root / ".git").exists()


def test_without_its_proxy_the_command_reaches_nothing_and_it_is_said(place: Grounds) -> None:  # S-03
    (place.root / "go").unlink(missing_ok=True)
    script = f"{_GET} http://web.test/; echo now; while [ ! -e go ]; do sleep 0.05; done; {_GET} http://web.test/"
    line = place.line(LEVEL, script, _reaching(place, "web.test"))
    place.give()
    process = subprocess.Popen(
        line, cwd=place.root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **becoming(place.user)
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "page / of web.test\n"
    assert process.stdout.readline() == "now\n"
    os.kill(_proxy_of(process.pid), signal.SIGKILL)
    assert "proxy has died" in process.stdout.readline()
    (place.root / "go").touch()
    output, _ = process.communicate(timeout=60)
    assert "Failed to connect" in output or "refused" in output
    assert process.returncode != 0


def _popen(line: list[str], place: Grounds, prefix: str) -> "subprocess.Popen[str]":
    """`prefix` is run in the launcher before it begins."""
    line[4] = prefix + line[4]
    place.give()
    return subprocess.Popen(
        line, cwd=place.root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **becoming(place.user)
    )


def test_a_proxy_that_has_ended_gets_no_signal(place: Grounds) -> None:
    script = "echo now; while [ ! -e go ]; do sleep 0.05; done; exit 3"
    with _popen(place.line(LEVEL, script, _reaching(place, "web.test")), place, WATCHES_SIGNALS) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "now\n"
        proxy = _proxy_of(process.pid)
        os.kill(proxy, signal.SIGKILL)
        wait_until_reaped(proxy)
        (place.root / "go").touch()
        output, errors = process.communicate(timeout=WAIT_S)
    assert (process.returncode, output, errors) == (3, "", f"{ENDED}\n")


_SLOW_CHILDREN = """import os, time
fork = os.fork
def slow():
    pid = fork()
    time.sleep(0 if pid else 1.5)
    return pid
os.fork = slow
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_for_a_proxy_that_has_just_begun_does_not_reach_the_command(place: Grounds, number: int) -> None:
    script = "echo now; while [ ! -e go ]; do sleep 0.05; done; exit 3"
    with _popen(place.line(LEVEL, script, _reaching(place, "web.test")), place, _SLOW_CHILDREN) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "now\n"
        proxy = _proxy_of(process.pid)
        os.kill(proxy, number)
        wait_until_reaped(proxy)
        (place.root / "go").touch()
        process.communicate(timeout=WAIT_S)
    assert process.returncode == 3


def _proxy_of(parent: int) -> int:
    """The child that is no sandbox."""
    for name in os.listdir("/proc"):
        with suppress(OSError, ValueError):
            _, _, fields = Path(f"/proc/{name}/stat").read_text(errors="replace").rpartition(")")
            if int(fields.split()[1]) == parent and "bwrap" not in Path(f"/proc/{name}/comm").read_text(
                errors="replace"
            ):
                return int(name)
    raise AssertionError("there is no proxy")
