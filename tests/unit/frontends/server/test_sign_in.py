"""The code from the terminal: good once, and not to be guessed (S-13)."""

from pathlib import Path

import pytest

from treadle.frontends.server.replies import Problem
from treadle.frontends.server.service import PAUSE_S, SignIn
from treadle.frontends.server.tokens import LOCAL, Tokens


class SignInCase:
    def __init__(self, folder: Path) -> None:
        self.codes: list[str] = []
        self.now = 0.0
        self.tokens = Tokens(folder / "tokens.json")
        self.sign_in = SignIn(self.tokens, self.codes.append, lambda: self.now)


@pytest.fixture
def sign_in_case(tmp_path: Path) -> SignInCase:
    return SignInCase(tmp_path)


def test_a_code_is_good_once(sign_in_case: SignInCase) -> None:
    code = sign_in_case.sign_in.code
    token = sign_in_case.sign_in.redeem(f" {code.lower().replace('-', ' ')} ")
    stored_token = sign_in_case.tokens.find(token)
    assert stored_token is not None
    assert (stored_token.user, stored_token.label) == (LOCAL, "signed in with a code")
    assert sign_in_case.codes == [sign_in_case.sign_in.code] != [code]
    with pytest.raises(Problem, match="not the code"):
        sign_in_case.sign_in.redeem(code)


def test_wrong_ones_have_to_wait(sign_in_case: SignInCase) -> None:
    with pytest.raises(Problem) as wrong:
        sign_in_case.sign_in.redeem("AAAA-AAAA")
    assert wrong.value.code == "unauthorized"
    with pytest.raises(Problem) as soon:
        sign_in_case.sign_in.redeem(sign_in_case.sign_in.code)
    assert soon.value.code == "too_many_tries"
    sign_in_case.now += PAUSE_S
    assert sign_in_case.sign_in.redeem(sign_in_case.sign_in.code)


def test_without_a_terminal_there_is_no_code(tmp_path: Path) -> None:
    sign_in = SignIn(Tokens(tmp_path / "tokens.json"))
    for code in ("", "-", "AAAA-AAAA"):
        with pytest.raises(Problem):
            sign_in.redeem(code)
        sign_in._wrong = float("-inf")
