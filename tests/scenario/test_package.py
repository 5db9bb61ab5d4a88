"""The sdist and the wheel hold what they should, and the program works from there without a checkout."""

from importlib.util import find_spec

import pytest

from scripts.try_package import main

pytestmark = pytest.mark.thorough


@pytest.mark.slow
@pytest.mark.skipif(not (find_spec("hatchling") and find_spec("pip")), reason="needs hatchling and pip")
def test_the_package_works_in_a_clean_environment(capfd: pytest.CaptureFixture[str]) -> None:
    code = main([])
    output = capfd.readouterr()
    assert (code, output.err) == (0, "")
    assert "offline: works in a clean environment" in output.out
