"""Answers in a shape, through the library and the command line (E-10)."""

import json
from pathlib import Path

import msgspec
import pytest

from tests.scenario.command_line import CommandLine
from treadle import Agent
from treadle.adapters.models.scripted import ScriptedModel
from treadle.errors import RunFailed


class Verdict(msgspec.Struct):
    good: bool
    reason: str


async def test_an_answer_is_a_value_and_a_model_is_told_what_does_not_fit(tmp_path: Path) -> None:
    model = ScriptedModel(["It is good.", '{"good": 1}', '{"good": true, "reason": "it works"}', "In words again."])
    async with Agent(model=model) as agent:
        chat = agent.chat(root=tmp_path, summarize=False, verify=False)
        answer = await chat.ask("Is it good?", output=Verdict)
        assert answer.output == Verdict(True, "it works")
        texts = [each.data.content for each in await chat.events() if each.data.TYPE == "user.message"]  # type: ignore[attr-defined]
        assert texts[0] == "Is it good?"
        assert "no JSON" in texts[1]
        assert '"reason" is a required property' in texts[2]
        assert (await chat.state()).options.output_schema is None  # as before
        assert (await chat.ask("And?")).text == "In words again."
    model.assert_done()


async def test_what_never_fits_is_an_error(tmp_path: Path) -> None:
    async with Agent(model=ScriptedModel(["No.", "No!"])) as agent:
        chat = agent.chat(root=tmp_path, summarize=False, verify=False)
        with pytest.raises(RunFailed, match="does not fit") as failed:
            await chat.ask("Is it good?", output={"type": "object"}, repairs=1)
        assert failed.value.error_class == "invalid_output"


def test_the_command_line_prints_the_value_alone(cli: CommandLine) -> None:
    schema = cli.folder / "schema.json"
    schema.write_text(json.dumps({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}))
    model = cli.script('[[turn]]\ntext = "Three."\n[[turn]]\ntext = "```json\\n{\\"n\\": 3}\\n```"\n')
    run_result = cli("run", "How many?", "--model", model, "--output-schema", str(schema))
    assert (run_result.code, json.loads(run_result.out)) == (0, {"n": 3})
    assert "asked again" in run_result.err
    never = cli(
        "run", "How many?", "--model", cli.script('[[turn]]\ntext = "Three."\n' * 3), "--output-schema", str(schema)
    )
    assert (never.code, never.out) == (1, "")
    schema.write_text("{")
    assert cli("run", "How many?", "--model", model, "--output-schema", str(schema)).code == 2
