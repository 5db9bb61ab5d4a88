"""Tokens and tickets, without HTTP."""

import threading
from pathlib import Path

import pytest

from treadle.errors import ConfigError, InvalidInput, NotFound
from treadle.frontends.server.tokens import TICKET_S, Tokens, ensure_own_token, get_owner
from treadle.testing.clock import ManualClock


def test_only_hashes_are_kept(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    token, secret = tokens.add("alice")
    assert secret not in (tmp_path / "tokens.json").read_text()
    assert tokens.find(secret) == token
    assert tokens.find(secret + "x") is None
    assert tokens.find("\udcff") is None
    assert Tokens(tmp_path / "tokens.json").find(secret) == token
    tokens.revoke(token.id)
    assert tokens.find(secret) is None
    with pytest.raises(NotFound):
        tokens.revoke(token.id)


@pytest.mark.parametrize("name", ["", "a b", "-x", "x" * 65, "a/b", "ä", "{user}"])
def test_names_that_are_none(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInput):
        Tokens(tmp_path / "tokens.json").add(name)


def test_a_file_that_others_may_write_counts_for_nothing(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    _, secret = tokens.add("alice")
    (tmp_path / "tokens.json").chmod(0o666)
    with pytest.raises(ConfigError):
        Tokens(tmp_path / "tokens.json").find(secret)


def test_a_ticket_ends(tmp_path: Path) -> None:
    clock = ManualClock()
    tokens = Tokens(tmp_path / "tokens.json", clock=clock)
    token, _ = tokens.add("alice")
    other_token, _ = tokens.add("bob")
    ticket = tokens.make_ticket(token)
    assert tokens.redeem(ticket) == token
    assert tokens.redeem(ticket.replace(token.id, other_token.id)) is None
    assert tokens.redeem(ticket.replace(ticket.split(".")[1], "99999999999")) is None
    clock.advance(TICKET_S + 1.0)
    assert tokens.redeem(ticket) is None


def test_of_servers_that_start_at_once_one_makes_the_token(tmp_path: Path) -> None:
    token_texts: list[str] = []
    threads = [
        threading.Thread(target=lambda: token_texts.append(ensure_own_token(tmp_path / "home"))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(token_texts)) == 1
    assert len(token_texts) == 8
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["serve-token"]
    assert Tokens(tmp_path / "tokens.json", tmp_path / "home").find(token_texts[0]) is not None


def test_the_first_token_stays_good_beside_others_until_it_is_revoked(tmp_path: Path) -> None:
    first = ensure_own_token(tmp_path)
    tokens = Tokens(tmp_path / "tokens.json", tmp_path)
    _, second = tokens.add("alice")
    for token_store in (tokens, Tokens(tmp_path / "tokens.json", tmp_path)):
        assert [token.user for token in token_store.list_tokens()] == ["local", "alice"]
        assert token_store.find(first) is not None
        assert token_store.find(second) is not None
    ticket = tokens.make_ticket(tokens.list_tokens()[0])
    assert tokens.redeem(ticket) is not None
    Tokens(tmp_path / "tokens.json", tmp_path).revoke("own")
    assert tokens.find(first) is None
    assert tokens.redeem(ticket) is None
    assert ensure_own_token(tmp_path) != first


def test_no_two_tickets_are_the_same(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / "tokens.json", clock=ManualClock())
    token, _ = tokens.add("alice")
    assert tokens.make_ticket(token) != tokens.make_ticket(token)


def test_a_kept_token_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "serve-token").write_text("")
    (tmp_path / "serve-token").chmod(0o600)
    with pytest.raises(ConfigError):
        ensure_own_token(tmp_path)


def test_the_local_user_owns_what_has_no_owner() -> None:
    assert get_owner("local") == ""
    assert get_owner("alice") == "alice"
