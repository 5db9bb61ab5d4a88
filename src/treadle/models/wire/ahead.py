"""Loads the HTTP library in a thread while the rest of a program is loaded: most of its time goes into reading the
certificates of this machine, which leaves the interpreter free. Knows nothing of HTTP; importing it costs nothing."""

from contextlib import suppress
from importlib import import_module
from threading import Thread

WITHOUT_HTTP = frozenset({"command", "gh", "local", "recorded", "scripted"})
"""Providers that reach their models in another way."""


def load_ahead(model: str) -> None:
    """Begin now, unless `model`, a `provider:name`, will not need it. An unknown model is taken for one that does."""
    if model.partition(":")[0] not in WITHOUT_HTTP:
        # No daemon: at the end of the process it would be in the middle of OpenSSL while that is taken down.
        Thread(target=_load, name="treadle-ahead").start()


def _load() -> None:
    with suppress(Exception):  # whoever needs it meets the same error, and can say what it means
        import_module("aiohttp")
