"""The list of mutants fits the code, and the command tells a test that notices a fault from one that does not."""

import pytest

from scripts.mutants import ROOT, Mutant, all_mutants, apply_mutant, main, try_all


@pytest.mark.parametrize("mutant", all_mutants(), ids=lambda mutant: mutant.name)
def test_every_row_fits_the_code(mutant: Mutant) -> None:
    compile(apply_mutant(mutant, ROOT / "src"), mutant.file, "exec")
    assert mutant.tests
    for test in mutant.tests:
        assert (ROOT / test.partition("::")[0]).exists()


def test_names_are_unique() -> None:
    names = [mutant.name for mutant in all_mutants()]
    assert len(set(names)) == len(names)


@pytest.mark.thorough(one_of=8)
@pytest.mark.slow
def test_killed_and_survived() -> None:
    test = "tests/unit/engine/test_retry.py"
    fault = Mutant("no retries", "engine/silence_timeout.py", "RETRIES = 5", "RETRIES = 0", (test,))
    none = Mutant("nothing", "engine/silence_timeout.py", "RETRIES = 5", "RETRIES = 5  # five", (test,))
    broken = Mutant("no Python", "engine/silence_timeout.py", "RETRIES = 5", "RETRIES = (", (test,))
    old_source = (ROOT / "src/treadle/engine/silence_timeout.py").read_bytes()
    assert [outcome.verdict for outcome in try_all([fault, none, broken], 1)] == ["killed", "survived", "unusable"]
    assert (ROOT / "src/treadle/engine/silence_timeout.py").read_bytes() == old_source


def test_a_row_that_no_longer_fits() -> None:
    stale = Mutant("gone", "engine/silence_timeout.py", "no such text", "", ())
    with pytest.raises(ValueError, match="stands 0 times"):
        apply_mutant(stale, ROOT / "src")


def test_an_unknown_word(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["no such mutant"]) == 2
    assert "no mutant has such a name" in capsys.readouterr().err
