"""The pictures of the terminal app: a real run in it with the scripted model of the demo, as a still and as one SVG
that moves. A row that stays as it is from frame to frame is written once, so that the recording is small; who wants no
motion sees its last frame.

    python -m scripts.recording [--still FILE] [--card FILE] [--moving FILE]
"""

import argparse
import asyncio
import html
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from textual.pilot import Pilot

from treadle.adapters.models.scripted import ScriptedModel
from treadle.base.types import ChatId
from treadle.frontends.cli.demo_project import make_project, write_script
from treadle.frontends.tui.app import AppExit, Start, TreadleApp
from treadle.frontends.tui.embedded import Embedded
from treadle.frontends.tui.launch import make_app
from treadle.library.agent import Agent
from treadle.protocol.options import ChatOptions

IMAGES = Path(__file__).parents[1] / "docs" / "images"
SIZE = (112, 32)
TASK = "A test fails. Find out why and fix it."
EVERY_S = 0.2
SHORTEST_S, LONGEST_S, READ_S, LAST_S = 0.08, 0.6, 1.6, 5.0
"""How long a frame is shown: at least and at most, before something is answered, and at the end."""
GROUND = "#121212"
SIDE_X = (SIZE[0] - 38) * 12.2 - 0.1
PATIENCE_S = 60.0

_STYLE = re.compile(r"\.[\w-]+-(r\d+) \{([^}]*)\}")
_RECT = re.compile(r'<rect fill="(#\w+)" x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"')
_TEXT = re.compile(r'<text class="[\w-]+-(r\d+)" x="([\d.]+)" y="([\d.]+)" textLength="([\d.]+)"[^>]*>([^<]*)</text>')


class Frame(NamedTuple):
    rows: tuple[str, ...]
    """The SVG of each row; what looks the same is the same."""
    seconds: float


# -- the run ----------------------------------------------------------------------------------------------------------


class Recorder:
    def __init__(self, pilot: Pilot[AppExit], app: TreadleApp) -> None:
        self._pilot = pilot
        self._app = app
        self.frames: list[Frame] = []
        self.still = ""
        self.card = ""

    def take(self, most_s: float = LONGEST_S) -> None:
        """What is shown since the last time took as long as it did, within what a reader can bear."""
        self.still = self._app.export_screenshot(title="treadle", simplify=True)
        rows = rows_of(self.still)
        if self.frames and self.frames[-1].rows == rows:
            held = min(most_s, self.frames[-1].seconds + EVERY_S)
            self.frames[-1] = Frame(rows, max(held, self.frames[-1].seconds))
        else:
            self.frames.append(Frame(rows, max(SHORTEST_S, EVERY_S / 2)))

    async def until(self, fact: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not fact():
            if time.monotonic() > deadline:
                raise TimeoutError(f"the run does not go on:\n{re.sub('<[^>]*>', '', self.still)}")
            await self._pilot.pause(EVERY_S)
            self.take()

    async def read(self, seconds: float = READ_S) -> None:
        """Leave time to read what is there."""
        await self._pilot.pause(EVERY_S)
        self.take()
        self.frames[-1] = Frame(self.frames[-1].rows, seconds)

    async def type(self, text: str) -> None:
        for at in range(0, len(text), 3):
            self._app.composer.insert(text[at : at + 3])
            await self._pilot.pause(0.02)
            self.take()


async def record() -> Recorder:
    with tempfile.TemporaryDirectory(prefix="demo-") as place:
        folder = Path(place)
        make_project(folder / "stats")
        write_script(folder / "script.toml")
        options = ChatOptions(model="demo:script", root=str(folder / "stats"), interactive=True, summarize=False)
        model = ScriptedModel.from_file(folder / "script.toml")
        async with Agent(folder / "treadle.db", model=model, home=folder / "home") as agent:

            async def connect() -> Embedded:
                return Embedded(agent, options, _none)

            app = make_app(connect, Start(options.root))
            async with app.run_test(size=SIZE) as pilot:
                recorder = Recorder(pilot, app)
                await _play(recorder, app, pilot)
                app.leave()
    return recorder


async def _play(recorder: Recorder, app: TreadleApp, pilot: Pilot[AppExit]) -> None:
    app.composer.cursor_blink = False
    await recorder.until(lambda: app.controller is not None)
    await recorder.read(0.8)
    await recorder.type(TASK)
    await recorder.read(0.6)
    await pilot.press("enter")
    for answer in ("1", "y"):  # the question, then the approval
        await recorder.until(lambda: app.card.armed)
        await recorder.read()
        recorder.card = recorder.still
        await pilot.press(answer)
        await recorder.until(lambda: not app.card.armed)
    await recorder.until(lambda: not app.conversation.view.busy and app.showing.side.files)
    await recorder.read(LAST_S)


async def _none(_store: object, named: str) -> ChatId:
    return ChatId(named)


# -- the picture ------------------------------------------------------------------------------------------------------


def rows_of(picture: str) -> tuple[str, ...]:
    """A picture of the screen, row by row, left of the side and in it: grounds that are not the common one, and texts,
    each with its own style."""
    styles = {name: style.strip().replace("; ", ";") for name, style in _STYLE.findall(picture)}
    rows: dict[int, list[str]] = {}
    for fill, x, y, width, height in _RECT.findall(picture):
        if fill != GROUND:
            rows.setdefault(_place(x, float(y)), []).append(
                f'<rect fill="{fill}" x="{x}" y="{y}" width="{width}" height="{height}"/>'
            )
    for name, x, y, length, text in _TEXT.findall(picture):
        whole = html.unescape(text)
        if shown := whole.rstrip():
            wide = float(length) / len(whole) * len(shown)
            rows.setdefault(_place(x, float(y) - 18.5), []).append(
                f'<text style="{styles[name]}" x="{x}" y="{y}" textLength="{wide:.1f}">{html.escape(shown)}</text>'
            )
    return tuple("".join(rows.get(at, ())) for at in range(2 * SIZE[1]))


def _place(x: str, y: float) -> int:
    return 2 * round((y - 1.5) / 24.4) + (float(x) >= SIDE_X)


def moving(frames: Sequence[Frame]) -> str:
    """The frames as one SVG."""
    begins = [0.0]
    for frame in frames:
        begins.append(begins[-1] + frame.seconds)
    shown: dict[tuple[int, str], list[int]] = {}
    for number, frame in enumerate(frames):
        for at, row in enumerate(frame.rows):
            if row:
                shown.setdefault((at, row), []).append(number)
    times: dict[tuple[int, ...], str] = {}
    groups = []
    for (_, row), numbers in shown.items():
        if len(numbers) == len(frames):
            groups.append(f"<g>{row}</g>")
            continue
        name = times.setdefault(tuple(numbers), f"t{len(times)}")
        hidden = "" if numbers[-1] == len(frames) - 1 else ' visibility="hidden"'
        groups.append(f'<g class="{name}"{hidden}>{row}</g>')
    rules = [_rule(name, numbers, begins) for numbers, name in times.items()]
    return _PICTURE.format(**_classes("".join(groups)), rules="\n".join(rules), ground=GROUND, **_measures())


def _rule(name: str, numbers: Sequence[int], begins: Sequence[float]) -> str:
    """When a row is seen: it changes at once, and the whole begins anew."""
    total, seen = begins[-1], set(numbers)
    steps = [f"0%{{visibility:{'visible' if 0 in seen else 'hidden'}}}"]
    for number in range(1, len(begins) - 1):
        if (number in seen) != (number - 1 in seen):
            word = "visible" if number in seen else "hidden"
            steps.append(f"{begins[number] / total * 100:.2f}%{{visibility:{word}}}")
    return f".{name}{{animation:{name} {total:.1f}s step-end infinite}}@keyframes {name}{{{''.join(steps)}}}"


def _classes(body: str) -> dict[str, str]:
    """Styles by short names."""
    names: dict[str, str] = {}

    def short(match: re.Match[str]) -> str:
        return f'class="{names.setdefault(match[1], f"s{len(names)}")}"'

    return {
        "body": re.sub(r'style="([^"]*)"', short, body),
        "styles": "".join(f".{name}{{{css}}}" for css, name in names.items()),
    }


def _measures() -> dict[str, str]:
    width, height = SIZE[0] * 12.2, SIZE[1] * 24.4
    return {
        "w": f"{width + 20:.0f}",
        "h": f"{height + 52:.0f}",
        "inner_w": f"{width + 18:.0f}",
        "inner_h": f"{height + 50:.0f}",
    }


_PICTURE = """<svg viewBox="0 0 {w} {h}" xmlns="http://www.w3.org/2000/svg">
<title>A run in the terminal app: a question, an approval, a diff, and what changed</title>
<style>
text{{font-family:Fira Code,ui-monospace,Menlo,Consolas,monospace;font-size:20px;white-space:pre}}
{styles}
{rules}
@media (prefers-reduced-motion:reduce){{g{{animation:none!important}}}}
</style>
<rect fill="{ground}" stroke="#555" x="1" y="1" width="{inner_w}" height="{inner_h}" rx="8"/>
<g transform="translate(22,22)"><circle r="7" fill="#ff5f57"/><circle cx="22" r="7" fill="#febc2e"/><circle cx="44" r="7" fill="#28c840"/></g>
<g transform="translate(9,41)">{body}</g>
</svg>
"""  # noqa: E501


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scripts.recording", description=__doc__)
    parser.add_argument("--still", type=Path, default=IMAGES / "terminal.svg")
    parser.add_argument("--card", type=Path, default=IMAGES / "terminal-card.svg")
    parser.add_argument("--moving", type=Path, default=IMAGES / "terminal-run.svg")
    wanted = parser.parse_args()
    recorder = asyncio.run(record())
    wanted.still.write_text(recorder.still, encoding="utf-8")
    wanted.card.write_text(recorder.card, encoding="utf-8")
    wanted.moving.write_text(moving(recorder.frames), encoding="utf-8")
    seconds = sum(frame.seconds for frame in recorder.frames)
    print(f"{len(recorder.frames)} frames, {seconds:.0f} s, {wanted.moving.stat().st_size // 1024} KB")


if __name__ == "__main__":
    main()
