from collections.abc import AsyncIterator, Callable
from importlib import import_module
from pathlib import Path

import pytest

from tests.scenario.command_line import CommandLine
from tests.scenario.copilot_kit import Program, Start
from tests.scenario.kit import Stage
from tests.scenario.scenes import World
from treadle.adapters.stores import open_store
from treadle.adapters.stores.memory import MemoryStore
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.ports.store import Store

ON_POSTGRES = pytest.param("postgres", marks=pytest.mark.thorough(one_of=4))


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path)


@pytest.fixture
async def start(cli: CommandLine) -> AsyncIterator[Start]:
    """Starts `treadle copilot` with a script for its model; a program that speaks to it."""
    programs: list[Program] = []

    async def begin(script: str) -> Program:
        programs.append(await Program.start(cli, cli.script(script)))
        return programs[-1]

    yield begin
    for program in programs:
        await program.close()


@pytest.fixture(params=["memory", "sqlite", ON_POSTGRES])
def every_store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "memory":
        return MemoryStore()
    address = request.getfixturevalue("postgres") if request.param == "postgres" else tmp_path / "treadle.db"
    return open_store(address)


@pytest.fixture
async def stage(every_store: Store) -> AsyncIterator[Stage]:
    """The same scenario on every store (D-05)."""
    new_stage = Stage(every_store)
    yield new_stage
    await new_stage.close()


@pytest.fixture(params=["memory", "sqlite"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    """A place for chats of every kind."""
    (tmp_path / "project").mkdir()
    store: Store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "chats.db")
    yield World(store, tmp_path / "project")
    await store.close()


@pytest.fixture(params=["sqlite", ON_POSTGRES])
def open_shared(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    """Opens one database, as often as it is called: for processes that share it."""
    if request.param == "sqlite":
        return lambda: SqliteStore(tmp_path / "treadle.db")
    try:
        address = request.getfixturevalue("postgres")
    except pytest.FixtureLookupError:
        pytest.skip("there is no PostgreSQL to test with")
    open_store = import_module("treadle.adapters.stores").open_store
    return lambda: open_store(address)
