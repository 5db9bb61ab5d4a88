"""Where chats are kept, as a person writes it. A password is never shown."""

import sys
from pathlib import Path

import pytest

from treadle.adapters.stores import open_store, redact_address
from treadle.adapters.stores.postgres import PostgresStore
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.errors import ConfigError


@pytest.mark.parametrize(
    "address", ["postgres://me@there/chats", "postgresql://me:pw@there:5433/chats?sslmode=require"]
)
def test_a_postgresql_address(address: str) -> None:
    assert isinstance(open_store(address), PostgresStore)


@pytest.mark.parametrize("address", ["/data/x.db", "x.db", Path("y.db"), "odd:name.db"])
def test_a_file(address: str | Path) -> None:
    store = open_store(address)
    assert isinstance(store, SqliteStore)
    assert store.path == Path(address)


def test_the_users_home() -> None:
    store = open_store("~/x.db")
    assert isinstance(store, SqliteStore)
    assert store.path == Path.home() / "x.db"


def test_anything_else_is_refused_without_its_password() -> None:
    with pytest.raises(ConfigError, match="mysql://me@there/x") as caught:
        open_store("mysql://me:hidden@there/x")
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("postgresql://me:hidden@there:1/x?password=hidden", "postgresql://me@there:1/x"),
        ("postgresql://:hidden@there/x", "postgresql://there/x"),
        ("postgresql://me:hid%40den@there/x#hidden", "postgresql://me@there/x"),
        ("postgresql://[hidden", "(not a URL)"),
        ("/data/x.db", "/data/x.db"),
        ("", ""),
    ],
)
def test_what_is_shown(address: str, expected: str) -> None:
    assert redact_address(address) == expected


def test_without_the_driver_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("treadle.adapters.stores.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(ConfigError, match=r"treadle\[postgres\]"):
        open_store("postgresql://me:hidden@there/x")
