"""Which tests run in `make test`, and which only in a thorough run."""

from typing import Any, cast

import pytest

from tests.faults import chance


class FakeItem:
    def __init__(self, nodeid: str, marker: pytest.Mark | None, *, is_own: bool = False) -> None:
        self.nodeid, self._marker = nodeid, marker
        self.own_markers = [marker] if is_own else []

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return self._marker if name == "thorough" else None


def make_items() -> list[Any]:
    third, never = pytest.mark.thorough(one_of=3).mark, pytest.mark.thorough.mark
    return [
        *(FakeItem(f"tests/test_table.py::test_row[{number}]", third) for number in range(10)),
        FakeItem("tests/test_single.py::test_one", third),
        *(FakeItem(f"tests/unit/test_{number}.py::test_slow", third, is_own=True) for number in range(3)),
        FakeItem("tests/test_package.py::test_install", never),
        FakeItem("tests/test_plain.py::test_all", None),
    ]


def test_a_part_of_each_table_runs_and_always_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chance, "THOROUGH", False)
    items = make_items()
    selected, thorough = chance.split_thorough(items)
    names = [item.nodeid.rpartition("::")[2].partition("[")[0] for item in selected]
    assert names == ["test_row"] * 4 + ["test_one", "test_slow", "test_all"]
    assert {*selected, *thorough} == {*items}
    repeated, _ = chance.split_thorough(items)
    assert repeated == selected


def test_a_thorough_run_has_all_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chance, "THOROUGH", True)
    items = cast(list[pytest.Item], make_items())
    assert chance.split_thorough(items) == (items, [])
