"""The code from the terminal: good once, and not to be guessed (S-13)."""

from pathlib import Path

import pytest

from treadle.frontends.server.replies import Problem
from treadle.frontends.server.sign_in import PAUSE_S, SignIn
from treadle.frontends.server.tokens import LOCAL, Tokens


class SignInCase:
    def __init__(self, folder: Path) -> None:
        self.codes: list[str] = []
        self.now = 0.0
        self.tokens = Tokens(folder / "tokens.json")
        self.sign_in = SignIn(self.tokens, self.codes.append, lambda: self.now)


@pytest.fixture
def told(tmp_path: Path) -> SignInCase:
    return SignInCase(tmp_path)


def test_a_code_is_good_once(told: SignInCase) -> None:
    code = told.sign_in.code
    token = told.sign_in.redeem(f" {code.lower().replace('-', ' ')} ")
    stored_token = told.tokens.find(token)
    assert stored_token is not None
    assert (stored_token.user, stored_token.label) == (LOCAL, "signed in with a code")
    assert told.codes == [told.sign_in.code] != [code]
    with pytest.raises(Problem, match="not the code"):
        told.sign_in.redeem(code)


def test_wrong_ones_have_to_wait(told: SignInCase) -> None:
    with pytest.raises(Problem) as wrong:
        told.sign_in.redeem("AAAA-AAAA")
    assert wrong.value.code == "unauthorized"
    with pytest.raises(Problem) as soon:
        told.sign_in.redeem(told.sign_in.code)
    assert soon.value.code == "too_many_tries"
    told.now += PAUSE_S
    assert told.sign_in.redeem(told.sign_in.code)


def test_without_a_terminal_there_is_no_code(tmp_path: Path) -> None:
    sign_in = SignIn(Tokens(tmp_path / "tokens.json"))
    for code in ("", "-", "AAAA-AAAA"):
        with pytest.raises(Problem):
            sign_in.redeem(code)
        sign_in._wrong = float("-inf")
