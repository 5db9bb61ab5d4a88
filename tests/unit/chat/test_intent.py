"""What a message wants (L-16). The corpus was written from what people mean; where a reader could doubt it, the answer
is no."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.chat.intent import find_files_to_write, is_change_request, is_only_question
from treadle.frontends.cli.piped import append_context

CHANGES = r"""
Fix the failing test
fix it
Please add a --json flag to the chats command.
Add tests for the parser
Implement T-06 as described in the spec
Rename Foo to Bar everywhere
Refactor engine.py so that no function is longer than 30 lines
Write a README.md
Create a file notes.txt with the text "hello"
Remove the dead code in utils
Delete old.py
Update the docs for the new option
Change the default timeout to 30 seconds
Replace print with logging
Can you fix this?
Could you please add a dark mode?
Would you move the helpers into their own module?
I want you to implement the cache
I'd like you to rename the module
We need to remove the old API
I need you to write unit tests for it
Let's split this file in two
Help me to migrate this to Python 3.12
Look at foo.py. Then rename bar to baz.
Run the tests and fix what fails
There is a bug in parse(); fix it
The tests are red. Please repair them.
Hi! Add type hints to core.py, thanks
1. Add the field\n2. Update the view\n3. Write a test
- remove the flag\n- bump the version
The button should be renamed to Save
The flag must be removed from the CLI.
ok, now update the changelog
Now make it faster
Make the button blue
Next, extend the schema by a field `age`
Go ahead and apply the patch
Try to simplify the loop in main()
Your task is to implement `solve()` in solution.py
Fix this:\n```\nTraceback: why is this so?\n```
Set the version to 2.0 in pyproject.toml
Write a summary of the design into docs/design.md
First of all, wrap the errors
Make sure to handle the empty list
and then add a test for it
Raise the version in package.yml from 1.4.0 to 1.5.0
In server.conf change the port to 9090
Give tidy.sh the option -n
Run the tests and make them pass. Do not change the tests.
Find out why in basket.py and fix it without changing how it is used.
deploy.sh says that all went well even if a step fails. It must stop at the first step that fails.
In tools.py the function shorten should put an ellipsis at the end
Bitte ergänze die fehlenden Texte
Corrige le test
Añade una opción --json
メニュー.txt の値段を変えてください。
请修复这个测试
""".strip().split("\n")

NO_CHANGES = r"""
Why does the test fail?
What does this function do?
How would I fix this?
How do I add a user?
Explain how to add a flag
Explain the architecture
Describe what would need to change to add caching
Summarize the last commit
Show me the diff
List all files that use the logger
Tell me how to remove a worktree
Is it possible to add caching?
Should we rename this module?
What does `fix_all()` do?
Where is the "add item" button implemented?
Read a.py and tell me what it does
Run the tests
Review my changes
Look at the failing test
Find out why the build is slow
Don't change anything, just look at it
Do not edit files. Implement nothing, only plan.
Without changing the code, find the bug
hello
go
go on
thanks!
yes
Do it
Write a haiku about recursion
Make a list of open questions
Create a plan for the migration
Suggest how to improve the parser
Discuss whether to replace the ORM
Propose names and update rules for them
> fix this please\nWhat does he mean by that?
Which of these should be deleted?
make test fails, why?
What changed in 2.0?
Was the bug fixed in this commit?
Can you explain how we add a user?
Could you tell me what to change?
Compare the two implementations
Use grep to find all callers
Who wrote this?
When was it added?
Outline the steps to remove the dependency
Give me a list of the tests
I think main.py should work now
It should not take long, see main.py
How must main.py look?
Ändere nichts, sieh nur nach
Füge nichts hinzu, du sollst nichts ändern
メニュー.txt は変えないでください。
Don't change anything in main.py, it must stay so
""".strip().split("\n")


def unescape_text(text: str) -> str:
    return text.replace("\\n", "\n")


def test_the_corpus_is_large_enough() -> None:
    assert len(CHANGES) + len(NO_CHANGES) >= 60


@pytest.mark.parametrize("message", [unescape_text(line) for line in CHANGES])
def test_asks_for_changes(message: str) -> None:
    assert is_change_request(message)
    assert not is_only_question(message)


@pytest.mark.parametrize("message", [unescape_text(line) for line in NO_CHANGES])
def test_asks_for_none(message: str) -> None:
    assert not is_change_request(message)


@pytest.mark.parametrize("message", ["Why?", "What does it do?", "Explain it.", "Is it done?", "List the files"])
def test_a_question_is_one(message: str) -> None:
    assert is_only_question(message)


@pytest.mark.parametrize("message", ["Do it", "go", "Run the tests", "", "Fix it?! Fix it.", "`why?`"])
def test_what_is_no_question_is_none(message: str) -> None:
    assert not is_only_question(message)


@pytest.mark.parametrize(
    ("message", "files"),
    [
        ("Write the sums of sales.csv to out/totals.txt.", ["out/totals.txt"]),
        ("Find it. Then save the answer into `a.json`, please.", ["a.json"]),
        ("Do not write to config.json. Fix the rest.", []),
        ("Write a function that saves to out.txt", []),
        ("Write tests for what a.py appends to b.txt", []),
        ("How do I write to a.txt?", []),
        ("Put the list into ../x.txt, and one to /tmp/y.txt", []),
        ("Add a link to README.md", []),
    ],
)
def test_files_that_something_is_to_be_written_to(message: str, files: list[str]) -> None:
    assert find_files_to_write(message) == files


@given(st.text(max_size=2_000))
def test_any_text_has_an_answer(text: str) -> None:
    assert not (is_change_request(text) and is_only_question(text))


@pytest.mark.parametrize("piece", ["please ", "```", "fix ", "> ", "- ", '"', "do not a ", "write a ", ", and "])
def test_a_long_message_costs_little(piece: str) -> None:
    began = time.process_time()
    is_change_request(piece * 200_000)
    is_only_question(piece * 200_000)
    find_files_to_write(f"Fix it. {piece * 200_000}")
    assert time.process_time() - began < 5  # it is milliseconds; a quadratic search would take minutes


def test_what_is_piped_in_beside_a_message_is_context() -> None:  # U-07
    todo = "TODO: fix the parser, rename it, and write the result to out.txt\n"
    message = append_context("Explain this.", todo)
    assert is_change_request(todo)
    assert not is_change_request(message)
    assert find_files_to_write(message) == []
    assert is_only_question(message)
    assert is_change_request(append_context("Fix what this complains about.", "all is well?\n"))
