"""The certificates of this machine are read ahead for the providers that show one, and for those only."""

import subprocess
import sys

import pytest

from treadle.adapters.models.ollama import BASE_URL as OLLAMA
from treadle.adapters.models.providers import SERVERS, WITHOUT_HTTP, _is_plain
from treadle.adapters.models.registry import PROVIDERS


def modules_after(program: str) -> set[str]:
    """Return the modules that are loaded at the end of the program and of its threads."""
    end = "import sys, threading\nfor thread in threading.enumerate()[1:]: thread.join()\nprint(*sys.modules)"
    process = subprocess.run([sys.executable, "-c", f"{program}\n{end}"], capture_output=True, text=True, check=True)
    assert process.stderr == ""
    return set(process.stdout.split())


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_who_goes_without_http_is_known(provider: str) -> None:
    modules = modules_after(f"import {PROVIDERS[provider].partition(':')[0]}")
    assert ("treadle.adapters.models.wire.http" in modules) == (provider not in WITHOUT_HTTP)


PRELOAD = "from treadle.adapters.models.providers import preload_tls\n"
CERTIFICATES = """
import ssl, threading
read_by, has_begun = [], threading.Event()
read = ssl.SSLContext.set_default_verify_paths
def spy(context):
    read_by.append(threading.current_thread().name)
    has_begun.set()
    read(context)
ssl.SSLContext.set_default_verify_paths = spy
"""


@pytest.mark.parametrize(
    ("model", "environment"),
    [
        ("openai:gpt-4.1", {}),
        ("openai:gpt-4.1", {"OPENAI_BASE_URL": "https://models.test/v1"}),
        ("vllm:any", {"VLLM_BASE_URL": "https://models.test/v1"}),
        ("ollama:any", {"OLLAMA_HOST": "https://models.test"}),
        ("acme:model", {}),
        ("", {}),
    ],
)
def test_certificates_are_read_once_and_in_a_thread(model: str, environment: dict[str, str]) -> None:
    program = f"""{CERTIFICATES}
preload_tls({model!r}, {environment!r})
assert has_begun.wait(60)  # else this thread may be the first to need them
from treadle.base.http.connection import get_tls_context
assert get_tls_context() is get_tls_context()
assert get_tls_context().verify_mode is ssl.CERT_REQUIRED and get_tls_context().check_hostname
assert get_tls_context().cert_store_stats() == ssl.create_default_context().cert_store_stats()
assert read_by == ["treadle-preload", "MainThread"], read_by
"""
    modules_after(PRELOAD + program)


@pytest.mark.parametrize(
    ("model", "environment"),
    [
        *((f"{name}:x", {}) for name in sorted(WITHOUT_HTTP)),
        ("openai:gpt-4.1", {"OPENAI_BASE_URL": "http://127.0.0.1:8000/v1"}),
        ("vllm:any", {}),
        ("ollama:any", {}),
        ("ollama:any", {"OLLAMA_HOST": "127.0.0.1"}),
    ],
)
def test_they_are_not_read_where_nobody_shows_one(model: str, environment: dict[str, str]) -> None:
    modules = modules_after(f"{PRELOAD}preload_tls({model!r}, {environment!r})")
    assert not modules & {"asyncio", "msgspec", "ssl"}


def test_tls_that_cannot_be_loaded_is_left_to_whoever_needs_it() -> None:
    modules_after(f"import sys\nsys.modules['ssl'] = None\n{PRELOAD}preload_tls('openai:x', {{}})")


@pytest.mark.parametrize("provider", sorted(set(PROVIDERS) - WITHOUT_HTTP))
def test_whoever_is_reached_without_tls_has_such_an_address(provider: str) -> None:
    plain = provider in SERVERS and SERVERS[provider].base_url.startswith("http://")
    assert _is_plain(provider, {}) == (plain or (provider == "ollama" and OLLAMA.startswith("http://")))
