"""Names and sizes that `make check` refuses."""

from pathlib import Path

import pytest

from scripts import check_style

LIMITS = {
    "lines": 200,
    "module_lines": 150,
    "least_module_lines": 30,
    "function_lines": 65,
    "single_importer_modules": 0,
    "vague_functions": 0,
    "functions_without_verb": 0,
    "vague_classes": 0,
    "vague_parameters": 0,
    "vague_locals": 0,
    "vague_sentences": 0,
}
FILLER = "# A line.\n" * 30


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("def record_outcome(outcome):\n    return outcome\n" + FILLER, ""),
        ("def _told():\n    return 1\n" + FILLER, "1 vague functions"),
        ("def _ruled():\n    return 1\n" + FILLER, "1 vague functions"),
        ("def feed():\n    return 1\n" + FILLER, ""),
        ("class Rule:\n    @property\n    def expired(self):\n        return 1\n" + FILLER, ""),
        ("def _outcome_of():\n    return 1\n" + FILLER, "1 functions without verb"),
        ("def is_outcome():\n    return 1\n" + FILLER, ""),
        ("class Which:\n    pass\n" + FILLER, "1 vague classes"),
        ("def record_outcome(told):\n    return told\n" + FILLER, "1 vague parameters"),
        ("found = 1\n" + FILLER, "1 vague locals"),
        ("match 1:\n    case int() as found:\n        pass\n" + FILLER, "1 vague locals"),
        ("# Who asks gets an answer.\n" + FILLER, "1 vague sentences"),
        ("def count_lines():\n" + "    print()\n" * 65, "count_lines has 66 lines"),
        ("import src.module\n" + FILLER, "1 modules have one importer"),
        ("number = 1\n", "at least 30"),
        (FILLER * 6, "at most 150"),
        (FILLER * 7, "210 lines, at most 200"),
    ],
)
def test_a_vague_name_and_a_size_beyond_its_limit_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, problem: str
) -> None:
    monkeypatch.setattr(check_style, "ROOT", tmp_path)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "module.py").write_text(source.replace("src.module", "module"))
    problems = "\n".join(check_style.check_folder("src", LIMITS))
    assert problem in problems
    assert bool(problem) == bool(problems)
