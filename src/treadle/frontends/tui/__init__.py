"""The terminal app. Events and live text become blocks (`presentation.conversation`), blocks become lines (`drawing`),
and widgets show them; actions of the person go through `ChatApi` to a chat of this process (`embedded`) or of a server
(`remote`). The only package that knows Textual; only `treadle` without a command loads it."""

import os

if "TEXTUAL_FPS" not in os.environ:
    # A key is echoed with the next frame: half of a frame later on the average. Read once, and no business of commands.
    os.environ["TEXTUAL_FPS"] = "120"
    import textual.constants  # noqa: F401

    del os.environ["TEXTUAL_FPS"]
