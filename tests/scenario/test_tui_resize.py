"""The layout follows the size of the terminal (U-08)."""

import random
from itertools import pairwise

import pytest
from textual.geometry import Region
from textual.widgets import OptionList

from tests.faults.chance import SEED, SOAK
from tests.scenario.test_tui_app import until
from tests.scenario.test_tui_cards import KINDS, asking_app, is_ready
from treadle.frontends.tui.app import NARROW, TreadleApp

pytestmark = pytest.mark.thorough(one_of=8)

STEPS = 25 if SOAK else 5
"""Sizes by chance, others in each run: TEST_SEED repeats them."""
SMALL, LARGE = (30, 8), (250, 60)


def walk(seed: str) -> list[tuple[int, int]]:
    print(f"TEST_SEED={SEED}")
    chance = random.Random(f"{SEED} {seed}")
    sizes = [SMALL, LARGE, (NARROW - 1, 20), (NARROW, 15), (40, 12)]
    sizes += [(chance.randint(30, 250), chance.randint(8, 60)) for _ in range(STEPS)]
    chance.shuffle(sizes)
    return sizes


def is_laid_out(app: TreadleApp, width: int, height: int, *, card: bool, offers: bool) -> bool:
    """Whether all that must be seen is on the screen, below each other, and the side is where it should be."""
    screen = Region(0, 0, width, height)
    names = ["#transcript", *(["#card"] if card else []), "#status", *(["#offers"] if offers else []), "#composer"]
    places = [app.query_one(name).region for name in names]
    lines = [each.height for each in places[1:]]
    return (
        app.size == screen.size
        and all(screen.contains_region(each) for each in places)
        and all(lines)
        and all(above.bottom <= below.y for above, below in pairwise(places))
        and app.query_one("#side").display == (width >= NARROW)
        and app.query_one("#status").region.right == width - (38 if width >= NARROW else 0)
    )


@pytest.mark.parametrize(("kind", "text"), [("command", ""), ("edit", "a message\n" * 15), ("question", "/re")])
async def test_a_random_walk_of_sizes(kind: str, text: str) -> None:
    assert kind in KINDS
    app, _ = asking_app(kind)
    async with app.run_test(size=(100, 30)) as pilot:
        await is_ready(pilot, app)
        app.composer.put(text)
        offers = text.startswith("/")
        if offers:
            await until(pilot, lambda: app.query_one("#offers", OptionList).display)
        for width, height in walk(kind):
            await pilot.resize_terminal(width, height)
            for _ in range(100):
                if is_laid_out(app, width, height, card=True, offers=offers):
                    break
                await pilot.pause(0.02)
            places = {each.id: each.region for each in app.query("#left > *, #side, #composer")}
            assert is_laid_out(app, width, height, card=True, offers=offers), (width, height, app.size, places)
        app.leave()


async def test_a_panel_opened_by_hand_folds_again_when_the_terminal_gets_narrow() -> None:
    app, _ = asking_app("question")
    async with app.run_test(size=(120, 30)) as pilot:
        await is_ready(pilot, app)
        await pilot.press("ctrl+b", "ctrl+b")
        assert app.query_one("#side").display
        await pilot.resize_terminal(80, 30)
        await until(pilot, lambda: not app.query_one("#side").display)
        await pilot.press("ctrl+b")
        await until(pilot, lambda: app.query_one("#side").display)
        app.leave()
