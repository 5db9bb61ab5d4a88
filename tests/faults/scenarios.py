"""What the fake provider says in the fault tests. Answers are chosen by the number of assistant messages before them,
so that a killed and resumed chat gets the right one."""

from treadle.testing.fake_openai import Reply

APPEND = "echo ran >> counter"

SCENARIOS: dict[str, list[Reply]] = {
    # a read, a write, a command that appends a line to a counter file, a client's tool, an answer
    "work": [
        Reply(text="Let me look.", calls=[("read_file", {"path": "notes.txt"}), ("list_directory", {"path": "."})]),
        Reply(calls=[("write_file", {"path": "made/new.txt", "content": "fresh\n"})]),
        Reply(text="Now run it.", calls=[("run_command", {"command": APPEND})]),
        Reply(calls=[("lookup", {"what": "it"})]),
        Reply(text="All done."),
    ],
    "approval": [
        Reply(calls=[("deploy", {"target": "moon"}), ("read_file", {"path": "notes.txt"})]),
        Reply(text="It is out."),
    ],
    "question": [
        Reply(calls=[("ask_user", {"question": "Which colour?"}), ("list_directory", {"path": "."})]),
        Reply(text="Blue it is."),
    ],
    # files are made by a tool and by a command, and all of that is undone
    "undo": [
        Reply(calls=[("write_file", {"path": "made/new.txt", "content": "fresh\n"})]),
        Reply(calls=[("run_command", {"command": f"{APPEND}; mv notes.txt made/moved; chmod 750 made; ln -s x l"})]),
        Reply(text="Changed."),
    ],
}

_CHANGE = (
    "echo more >> notes.txt; chmod 600 notes.txt; mkdir -p made/deep; for n in 1 2 3; do echo $n > made/$n; done; "
    "mv old/a made/deep/a; rm -r old; ln -s notes.txt link; chmod 750 made"
)
_PATCH = """*** Begin Patch
*** Update File: notes.txt
@@
-two
+three
*** Add File: made/deep/new.txt
+new
*** Delete File: old/a
*** Update File: old/b
*** Move to: made/b
@@
-b
+B
*** End Patch
"""
STRUCK: dict[str, list[Reply]] = {
    # what each way of changing files does: a command on a view, one that writes through, file tools, an undo
    "view": [Reply(calls=[("run_command", {"command": f"{APPEND}; {_CHANGE}"})]), Reply(text="Done.")],
    "direct": [Reply(calls=[("run_command", {"command": f"{APPEND}; {_CHANGE}"})]), Reply(text="Done.")],
    "files": [
        Reply(calls=[("write_file", {"path": "made/one.txt", "content": "one\n"})]),
        Reply(calls=[("edit_file", {"path": "notes.txt", "old_str": "one", "new_str": "1"})]),
        Reply(calls=[("apply_patch", {"patch": _PATCH})]),
        Reply(text="Done."),
    ],
    "undo": [
        Reply(calls=[("write_file", {"path": "made/one.txt", "content": "one\n"})]),
        Reply(calls=[("run_command", {"command": f"{APPEND}; {_CHANGE}"})]),
        Reply(text="Done."),
    ],
}
"""What is struck with every kind of fault at every point."""

LAST_WORDS = {name: script[-1].text for name, script in SCENARIOS.items()}
COMMAND_OUTCOMES = {"work": "3.0", "approval": "1.0", "undo": "2.0"}
"""The call that leaves a line in the counter file. Of the function nobody can tell whether it did when its worker was
lost; of the command its supervisor can."""

SLOW_COMMAND = f"{APPEND}; while [ ! -e go ]; do sleep 0.02; done"
SLOW = [Reply(text="Wait for it.", calls=[("run_command", {"command": SLOW_COMMAND})]), Reply(text="That was it.")]
"""A command that runs until the test says go."""
