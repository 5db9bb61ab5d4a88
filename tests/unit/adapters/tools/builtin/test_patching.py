"""The plan of a patch, without touching a file (T-08): the envelope, unified diffs, real patches of models."""

# ruff: noqa: RUF001

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.adapters.tools.builtin.patching import plan_patch
from treadle.diff.diff import diff_texts
from treadle.errors import EditError

APP = """import os


class A:
    def f(self):
        x = 1
        return x

    def g(self):
        x = 1
        return x
"""
FILES = {
    "app.py": APP,
    "src/b.py": "one\ntwo\nthree\nfour\n",
    "crlf.txt": "one\r\ntwo\r\nthree",
    "bom.txt": "\ufeffone\ntwo\n",
    "tabs.go": "func f() {\n\tif a {\n\t\tb()\n\t}\n}\n",
    "quotes.md": "It’s “fine” – really.\nEnd.\n",
    "empty": "",
    "gone.txt": "bye\n",
}


def patch(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])


def test_every_kind_of_section_in_one_patch() -> None:
    edit_plan = plan_patch(
        patch(
            "*** Add File: new/hello.txt",
            "+Hello",
            "+",
            "+World",
            "*** Update File: src/b.py",
            "@@",
            " one",
            "-two",
            "+zwei",
            " three",
            "*** Update File: app.py",
            "*** Move to: main.py",
            "@@ def g(self):",
            "-        x = 1",
            "+        x = 2",
            "*** Delete File: gone.txt",
        ),
        FILES.get,
    )
    assert list(edit_plan.texts) == ["new/hello.txt", "src/b.py", "app.py", "main.py", "gone.txt"]
    assert edit_plan.texts["new/hello.txt"] == "Hello\n\nWorld\n"
    assert edit_plan.texts["src/b.py"] == "one\nzwei\nthree\nfour\n"
    assert edit_plan.texts["app.py"] is None
    assert edit_plan.texts["main.py"] == APP.replace("g(self):\n        x = 1", "g(self):\n        x = 2")
    assert edit_plan.texts["gone.txt"] is None


BODY = ("*** Update File: src/b.py", "@@", " one", "-two", "+zwei", " three")
WANTED = {"src/b.py": "one\nzwei\nthree\nfour\n"}


@pytest.mark.parametrize(
    "text",
    [
        patch(*BODY) + "\n",
        "\n".join(("*** Begin Patch", *BODY)),
        "\n".join(BODY),
        "\n".join(BODY) + "\n\n\n",
        "apply_patch <<'EOF'\n" + patch(*BODY) + "\nEOF\n",
        'cat <<"PATCH" | apply_patch\n' + "\n".join(("*** Begin Patch", *BODY)) + "\nPATCH",
        "<<EOF\n" + patch(*BODY) + "\nEOF",
        "```diff\n" + patch(*BODY) + "\n```",
        "Here is the patch:\n" + patch(*BODY) + "\nThat is all.",
        patch(*BODY).replace("\n", "\r\n"),
        "\ufeff" + patch(*BODY),
        patch(*BODY).replace("*** Update File: src/b.py", "***Update File: ./src/b.py  "),
        patch(*BODY).replace("src/b.py", '"src/b.py"'),
        patch(*BODY).replace("@@\n", ""),
        patch(*BODY).replace("@@", "@@ @@"),
        patch(*BODY).replace("@@", "@@ -1,3 +1,3 @@"),
        patch(*BODY).replace("@@", "@@ -1 +1 @@ one"),
        patch(*BODY).replace("@@", "@@ this line is nowhere"),
        patch(*BODY).replace("@@", "--- a/src/b.py\n+++ b/src/b.py\n@@ -1,3 +1,3 @@"),
        patch(*BODY).replace(" three", " three\n"),
        patch(*BODY).replace(" three", "three"),
        patch(*BODY).replace(" one", "one"),
        patch(*BODY).replace("-two", "-two   ").replace(" three", " three \t"),
        patch(*BODY).replace("\n one", "\n\n one"),
        patch(*BODY).replace(" one\n-two", "-one\n-two").replace("+zwei", "+one\n+zwei"),
        "--- a/src/b.py\n+++ b/src/b.py\n@@ -1,4 +1,4 @@\n one\n-two\n+zwei\n three\n four\n",
        "--- src/b.py\t2026-01-01\n+++ src/b.py\t2026-01-02\n@@ -2 +2 @@\n-two\n+zwei\n",
        "diff --git a/src/b.py b/src/b.py\nindex 1..2 100644\n"
        "--- a/src/b.py\n+++ b/src/b.py\n@@ -2 +2 @@\n-two\n+zwei\n",
    ],
)
def test_what_models_send_around_and_inside(text: str) -> None:
    assert plan_patch(text, FILES.get).texts == WANTED


def test_hunks_follow_each_other_and_sections_may_repeat() -> None:
    body = ("*** Update File: src/b.py", "@@", "-one", "+1", "@@", " three", "-four", "+4")
    assert plan_patch(patch(*body), FILES.get).texts == {"src/b.py": "1\ntwo\nthree\n4\n"}
    again = (*body[:4], "*** Update File: src/b.py", "@@", " 1", "-two", "+2")
    assert plan_patch(patch(*again), FILES.get).texts == {"src/b.py": "1\n2\nthree\nfour\n"}
    reverse = ("*** Update File: src/b.py", "@@", "-four", "+4", "@@", "-one", "+1")
    assert plan_patch(patch(*reverse), FILES.get).texts == {"src/b.py": "1\ntwo\nthree\n4\n"}


@pytest.mark.parametrize(
    ("anchors", "line"),
    [(["@@ def g(self):"], 10), (["@@ class A:", "@@ def g(self):"], 10), (["@@     def f(self):"], 6)],
)
def test_anchors_tell_equal_passages_apart(anchors: list[str], line: int) -> None:
    new_text = plan_patch(
        patch("*** Update File: app.py", *anchors, "-        x = 1", "+        x = 2"), FILES.get
    ).texts["app.py"]
    assert new_text is not None
    assert [i for i, text in enumerate(new_text.split("\n"), 1) if "x = 2" in text] == [line]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (("*** Update File: src/b.py", "@@", "+five"), "one\ntwo\nthree\nfour\nfive\n"),
        (("*** Update File: src/b.py", "@@ two", "+2b"), "one\ntwo\n2b\nthree\nfour\n"),
        (("*** Update File: src/b.py", "@@ -1,0 +2 @@", "+1b"), "one\n1b\ntwo\nthree\nfour\n"),
        (("*** Update File: src/b.py", "@@", " four", "+five", "*** End of File"), "one\ntwo\nthree\nfour\nfive\n"),
        (("*** Update File: src/b.py", "@@", "-four"), "one\ntwo\nthree\n"),
        (
            ("*** Update File: src/b.py", "@@", "-four", "\\ No newline at end of file", "+four"),
            "one\ntwo\nthree\nfour\n",
        ),
        (("*** Update File: src/b.py", "@@", "-four", "+4", "\\ No newline at end of file"), "one\ntwo\nthree\n4"),
    ],
)
def test_lines_added_and_removed_at_the_ends(lines: tuple[str, ...], expected: str) -> None:
    assert plan_patch(patch(*lines), FILES.get).texts["src/b.py"] == expected


@pytest.mark.parametrize(
    ("path", "lines", "expected"),
    [
        ("crlf.txt", (" one", "-two", "+zwei", "+drei", " three"), "one\r\nzwei\r\ndrei\r\nthree"),
        ("crlf.txt", (" three", "+four"), "one\r\ntwo\r\nthree\r\nfour"),
        ("crlf.txt", ("-three",), "one\r\ntwo"),
        ("bom.txt", ("-one", "+1"), "\ufeff1\ntwo\n"),
        ("empty", ("+first",), "first\n"),
        ("quotes.md", ('-It\'s "fine" - really.', "+Fine."), "Fine.\nEnd.\n"),
        ("quotes.md", (' It\'s "fine" - really.', "-End."), "It’s “fine” – really.\n"),
        (
            "tabs.go",
            ("     if a {", "-        b()", "+        c()", "     }"),
            "func f() {\n\tif a {\n\t\tc()\n\t}\n}\n",
        ),
        (
            "app.py",
            (" def g(self):", "-    x = 1", "+    if 1:", "+        x = 2"),
            APP.replace("g(self):\n        x = 1", "g(self):\n        if 1:\n            x = 2"),
        ),
    ],
)
def test_what_the_file_has_is_kept(path: str, lines: tuple[str, ...], expected: str) -> None:
    assert plan_patch(patch(f"*** Update File: {path}", "@@", *lines), FILES.get).texts == {path: expected}


def test_unified_diffs_add_delete_and_rename() -> None:
    text = (
        "diff --git a/n b/n\nnew file mode 100644\n--- /dev/null\n+++ b/n\n@@ -0,0 +1,2 @@\n+a\n+b\n"
        "\\ No newline at end of file\n"
        "diff --git a/gone.txt b/gone.txt\ndeleted file mode 100644\n"
        "--- a/gone.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-bye\n"
        "diff --git a/src/b.py b/c.py\nsimilarity index 90%\nrename from src/b.py\nrename to c.py\n"
        "--- a/src/b.py\n+++ b/c.py\n@@ -1 +1 @@\n-one\n+1\n"
        "diff --git a/bom.txt b/bom2.txt\nsimilarity index 100%\nrename from bom.txt\nrename to bom2.txt\n"
    )
    assert plan_patch(text, FILES.get).texts == {
        "n": "a\nb",
        "gone.txt": None,
        "src/b.py": None,
        "c.py": "1\ntwo\nthree\nfour\n",
        "bom.txt": None,
        "bom2.txt": "\ufeffone\ntwo\n",
    }


def test_a_removed_line_of_dashes_is_no_header() -> None:
    sql = {"q.sql": "-- old comment\nselect 1;\n"}
    edit_plan = plan_patch(
        patch("*** Update File: q.sql", "@@", "--- old comment", "+-- new comment", " select 1;"), sql.get
    )
    assert edit_plan.texts == {"q.sql": "-- new comment\nselect 1;\n"}


UNENDED = "\\ No newline at end of file"


def _git_diff(path: str, *lines: str) -> str:
    return "\n".join([f"diff --git a/{path} b/{path}", f"--- a/{path}", f"+++ b/{path}", *lines, ""])


@pytest.mark.parametrize(
    ("old", "lines", "new"),
    [
        ("one\ntwo\n", ["@@ -0,0 +1,2 @@", "+zero", "+half"], "zero\nhalf\none\ntwo\n"),
        ("", ["@@", " ", "+x"], None),
        ("", ["@@", "", "+x"], "x\n"),
        ("\n", ["@@", " ", "+x"], "\nx\n"),
        ("a\n\nb\n\n", ["@@ -1,4 +1,4 @@", "-a", "+A", " ", " b", " "], "A\n\nb\n\n"),
        ("a\n\na\n", ["@@ -1,2 +1,2 @@", "-a", "+A", ""], "A\n\na\n"),
        ("a\n\nb\na\n", ["@@ -4 +3,0 @@", "-a", "", ""], "a\n\nb\n"),
        ("x\n-- old\ny\n", ["@@ -1,3 +1,3 @@", " x", "--- old", "+++ new", " y"], "x\n++ new\ny\n"),
        ("-- old\n", ["@@ -1 +1 @@", "--- old", "+++ new", "@@ -9 +9 @@", "-no", "+such"], None),
        ("a\rb\rc\r", ["@@", " a", "-b", "+B", "+b"], "a\rB\rb\rc\r"),
        ("a\rb\r", ["@@ -1 +1 @@", "-a\rb\r", UNENDED, "+a\rB\r", UNENDED], "a\rB\r"),
        ("a\r\nb\r\nc\n", ["@@", "-a", "+A"], "A\r\nb\r\nc\n"),
    ],
)  # fmt: skip
def test_a_hunk_goes_where_a_diff_says(old: str, lines: list[str], new: str | None) -> None:  # T-08
    if new is None:
        with pytest.raises(EditError):
            plan_patch(_git_diff("f", *lines), {"f": old}.get)
    else:
        assert plan_patch(_git_diff("f", *lines), {"f": old}.get).texts == {"f": new}


def test_an_envelope_may_change_lines_that_look_like_a_header() -> None:
    old = {"f": "-- old\nb\n"}
    assert plan_patch(patch("*** Update File: f", "--- old", "+++ new", " b"), old.get).texts == {"f": "++ new\nb\n"}
    assert (
        plan_patch(patch("*** Update File: f", "--- a/f", "+++ b/f", "@@", "-b", "+B"), old.get).texts["f"]
        == "-- old\nB\n"
    )


def test_all_that_a_git_diff_says_is_planned() -> None:
    """Empty files, modes, quoted names, the signature of a mailed patch."""
    files = {"empty": "", "tool": "x\n", "src/b.py": "one\n"}
    edit_plan = plan_patch(
        "diff --git a/new b/new\nnew file mode 100755\nindex 0000000..e69de29\n"
        "diff --git a/empty b/empty\ndeleted file mode 100644\nindex e69de29..0000000\n"
        "diff --git a/tool b/tool\nold mode 100644\nnew mode 100755\n"
        'diff --git "a/\\303\\244 \\"q\\".txt" "b/\\303\\244 \\"q\\".txt"\nnew file mode 100644\n'
        '--- /dev/null\n+++ "b/\\303\\244 \\"q\\".txt"\n@@ -0,0 +1 @@\n+x\n'
        "diff --git a/src/b.py b/src/b.py\n--- a/src/b.py\n+++ b/src/b.py\n@@ -1 +1 @@\n-one\n+1\n-- \n2.39.5\n\n",
        files.get,
    )
    assert edit_plan.texts == {"new": "", "empty": None, "tool": "x\n", 'ä "q".txt': "x\n", "src/b.py": "1\n"}
    assert edit_plan.executable == {"new": True, "tool": True, 'ä "q".txt': False}


@pytest.mark.parametrize(
    ("diff", "expected_path"),
    [
        ("diff --git b/c b/c\nnew file mode 100644\n--- /dev/null\n+++ b/c\n@@ -0,0 +1 @@\n+x\n", "b/c"),
        ("diff --git i/c w/c\nnew file mode 100644\n--- /dev/null\n+++ w/c\n@@ -0,0 +1 @@\n+x\n", "c"),
        ("diff --git b/c b/c\nnew file mode 100755\nindex 0000000..e69de29\n", "b/c"),
        ("diff --git a/gone a/gone\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n", "a/gone"),
        ("diff --git b/old b/old\nold mode 100644\nnew mode 100755\n", "b/old"),
        (
            "diff --git a/gone b/gone\nrename from a/gone\nrename to b/gone\n"
            "--- a/gone\n+++ b/gone\n@@ -1 +1 @@\n-x\n+y\n",
            "b/gone",
        ),
        ("diff --git c/old w/old\n--- c/old\n+++ w/old\n@@ -1 +1 @@\n-x\n+y\n", "old"),
    ],
)  # fmt: skip
def test_a_git_diff_may_have_no_prefixes_or_others(diff: str, expected_path: str) -> None:  # T-08
    files = {"gone": "x\n", "a/gone": "x\n", "b/old": "x\n", "old": "x\n"}
    assert list(plan_patch(diff, files.get).texts)[-1:] == [expected_path]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("old", [None, "", "a"])
def test_a_file_without_line_endings_gets_those_of_the_patch(newline: str, old: str | None) -> None:  # T-08
    removed_lines = [] if not old else ["-a", UNENDED]
    lines = [
        f"@@ -0,0 +1,{2} @@" if not old else "@@ -1 +1,2 @@",
        *removed_lines,
        f"+x{newline[:-1]}",
        f"+y{newline[:-1]}",
    ]
    text = _git_diff("f", *lines)
    text = text if old is not None else text.replace("--- a/f", "--- /dev/null")
    assert plan_patch(text, {"f": old}.get).texts == {"f": f"x{newline}y{newline}"}
    assert plan_patch(text.replace("\r", "").replace("\n", "\r\n"), {"f": old}.get).texts == {
        "f": "x\ny\n"
    }  # on its way


@pytest.mark.parametrize(
    "lines",
    [
        "new file mode 120000\n--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+target\n\\ No newline at end of file\n",
        "index 1..2 100644\nBinary files a/f and b/f differ\n",
        "deleted file mode 100644\nindex e69de29..0000000\n",
        "deleted file mode 100644\n--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-other\n",
        "old mode 100644\nnew mode 100755\nFrom 0123 Mon Sep 17 00:00:00 2001\n",
    ],
)
def test_a_patch_that_cannot_be_made_whole_is_refused(lines: str) -> None:
    good = _git_diff("g", "@@ -1 +1 @@", "-one", "+1")
    with pytest.raises(EditError):
        plan_patch(f"{good}diff --git a/f b/f\n{lines}", {"f": "x\n", "g": "one\n"}.get)


def test_a_file_deleted_and_added_is_replaced() -> None:
    edit_plan = plan_patch(patch("*** Delete File: gone.txt", "*** Add File: gone.txt", "+back"), FILES.get)
    assert edit_plan.texts == {"gone.txt": "back\n"}


def test_a_new_file_without_pluses_is_taken_as_it_is() -> None:
    assert plan_patch("*** Add File: n\nplain\n  text\n", FILES.get).texts == {"n": "plain\n  text\n"}
    assert plan_patch(patch("*** Add File: n"), FILES.get).texts == {"n": ""}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["names no file"]),
        ("nonsense", ["no file is named before 'nonsense'", "*** Begin Patch"]),
        (patch(), ["names no file"]),
        (patch("*** Update File: ", "@@", "-a"), ["without a path"]),
        (patch("*** Update File: none.py", "@@", "-a"), ["none.py does not exist", "*** Add File"]),
        (patch("*** Delete File: none.py"), ["none.py does not exist"]),
        (patch("*** Add File: app.py", "+x"), ["app.py exists already", "*** Update File"]),
        (patch("*** Update File: app.py"), ["app.py", "no lines to change"]),
        (patch("*** Update File: app.py", "*** Move to: src/b.py"), ["cannot be moved to src/b.py", "a file is there"]),
        (patch("*** Add File: n", "+a", "b"), ["n: line 2", "does not begin with a plus", "'b'"]),
        (
            patch("*** Update File: src/b.py", "@@", "-one", "+1", "@@", " tree", "-four", "+4"),
            ["src/b.py, hunk 2 of 2", "not found", "line 3", "-3  three", "+   tree"],
        ),
        (
            patch("*** Update File: app.py", "@@", "-        x = 1", "+        x = 2"),
            ["app.py, hunk 1 of 1", "occur 2 times", "lines 6, 10", "@@"],
        ),
        (
            patch("*** Update File: app.py", "@@ def f", "@@ def nowhere", "+x"),
            ["hunk 1 of 1 (@@ def nowhere)", "not found"],
        ),
        (patch("*** Update File: app.py", "@@ x = 1", "+x"), ["occurs 2 times", "lines 6, 10"]),
        (patch("*** Update File: src/b.py", "@@", " one", "-2", "+two"), ["already applied", "line 1"]),
        (patch("*** Update File: src/b.py", "@@", "-nothing like it at all", "+x"), ["hunk 1 of 1", "resembles"]),
    ],
)
def test_errors_name_the_file_the_hunk_and_the_nearest_text(text: str, words: list[str]) -> None:
    with pytest.raises(EditError) as caught:
        plan_patch(text, FILES.get)
    assert [word for word in words if word not in str(caught.value)] == [], str(caught.value)


texts = st.lists(st.sampled_from(["a", "b", "c", "  d", "", "- e", "+ f", "@@ g", "*** h"]), max_size=12).map("\n".join)


@given(texts, texts)
@settings(deadline=None)
def test_our_own_diffs_are_patches(old: str, new: str) -> None:
    if old == new:
        return
    assert plan_patch(diff_texts("f", old, new).text, {"f": old}.get).texts == {"f": new}


@given(st.text(st.sampled_from("*@+- \nabUpdate File:xBegin"), max_size=80))
@settings(deadline=None)
def test_any_text_is_planned_or_explained(text: str) -> None:
    for patch_text in (text, f"*** Begin Patch\n*** Update File: f\n{text}"):
        with suppress(EditError):
            assert plan_patch(patch_text, {"f": "a\nb\n"}.get)
