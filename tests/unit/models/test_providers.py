"""The HTTP library is loaded ahead for the providers that need it, and for those only."""

import subprocess
import sys

import pytest

from treadle.models.providers import WITHOUT_HTTP
from treadle.models.registry import PROVIDERS


def modules_after(program: str) -> set[str]:
    """What is loaded at the end of the program, its threads included."""
    end = "import sys, threading\nfor thread in threading.enumerate()[1:]: thread.join()\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", f"{program}\n{end}"], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return set(done.stdout.split())


@pytest.mark.parametrize("provider", PROVIDERS)
def test_who_goes_without_http_is_known(provider: str) -> None:
    modules = modules_after(f"import {PROVIDERS[provider].partition(':')[0]}")
    assert ("treadle.models.wire.http_model" in modules) == (provider not in WITHOUT_HTTP)


@pytest.mark.parametrize("model", ["openai:gpt-4.1", "acme:model", ""])
def test_it_is_loaded_in_a_thread_unless_it_is_known_to_be_of_no_use(model: str) -> None:
    assert "aiohttp" in modules_after(f"from treadle.models.providers import preload_http\npreload_http({model!r})")


def test_the_certificates_are_read_for_the_context_that_checks() -> None:  # of the two, the other needs none
    program = """
import ssl
from treadle.models import providers
providers._load_http()
from aiohttp import connector
counts = [context.cert_store_stats()["x509"] for context in (
    connector._SSL_CONTEXT_VERIFIED, connector._SSL_CONTEXT_UNVERIFIED, ssl.create_default_context())]
assert counts[0] == counts[2], counts
assert counts[1] == 0 and "set_default_verify_paths" not in vars(ssl.SSLContext)
"""
    assert "aiohttp" in modules_after(program)


def test_it_is_not_loaded_for_models_that_are_no_servers() -> None:
    program = "from treadle.models.providers import preload_http\n"
    modules = modules_after(program + "\n".join(f"preload_http('{name}:x')" for name in sorted(WITHOUT_HTTP)))
    assert not modules & {"aiohttp", "asyncio", "msgspec"}


def test_a_library_that_cannot_be_loaded_is_left_to_whoever_needs_it() -> None:
    program = "import sys\nsys.modules['aiohttp'] = None\nfrom treadle.models.providers import preload_http\n"
    modules_after(program + "preload_http('openai:x')")
