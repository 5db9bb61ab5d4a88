"""Providers as data: the environment variables that each reads, the servers that need only an address and a key, and
who receives what is sent to a model (S-10). Accesses no network and imports nothing, because every command reads it."""

from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from threading import Thread
from typing import NamedTuple


class Server(NamedTuple):
    """A server that speaks Chat Completions. Its variables are NAME_API_KEY and NAME_BASE_URL."""

    base_url: str
    needs_key: bool = True
    thinking_field: str = ""  # the field in which the server wants the thinking of its models back
    ids: str = ""  # A pattern of the call ids that the server accepts. Empty: any
    key_path: str = ""  # A path that is answered only with a valid key, for servers that list their models without one
    facts_path: str = ""
    """Where it tells window, limits, prices or abilities of its models, `{model}` being the name of one; empty: it does
    not. Any other path than `/models` lies beside the protocol, not below it."""
    start_hint: str = ""  # how it is started, for servers on the user's machine
    effort_style: str = ""
    """How it is told the reasoning effort, as in `openai_chat.adapter`; empty: by `reasoning_effort`."""


SERVERS: Mapping[str, Server] = {
    "custom": Server("", needs_key=False),  # any compatible server, by CUSTOM_BASE_URL
    "deepseek": Server("https://api.deepseek.com", thinking_field="reasoning_content", effort_style="switch"),
    "groq": Server("https://api.groq.com/openai/v1", facts_path="/models"),
    "llamacpp": Server(
        "http://127.0.0.1:8080/v1",
        needs_key=False,
        facts_path="/props?model={model}",
        start_hint="start it with: llama-server -m MODEL.gguf --port 8080, or set LLAMACPP_BASE_URL to where it runs",
        effort_style="template",
    ),
    "lmstudio": Server(
        "http://127.0.0.1:1234/v1",
        needs_key=False,
        facts_path="/api/v0/models",
        start_hint="start it with: lms server start, or set LMSTUDIO_BASE_URL to where it runs",
    ),
    "mistral": Server("https://api.mistral.ai/v1", ids="[A-Za-z0-9]{9}", facts_path="/models"),
    "openrouter": Server(
        "https://openrouter.ai/api/v1", key_path="/key", facts_path="/models", effort_style="openrouter"
    ),
    "together": Server("https://api.together.xyz/v1", facts_path="/models", effort_style="together"),
    "vllm": Server(
        "http://127.0.0.1:8000/v1",
        needs_key=False,
        facts_path="/models",
        start_hint="start it with: vllm serve MODEL, or set VLLM_BASE_URL to where it runs",
        effort_style="template",
    ),
    "xai": Server("https://api.x.ai/v1"),
}


class Variables(NamedTuple):
    keys: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()


def name_key_variable(server: str) -> str:
    return f"{server.upper()}_API_KEY"


def name_address_variable(server: str) -> str:
    return f"{server.upper()}_BASE_URL"


VARIABLES: Mapping[str, Variables] = {  # by provider; every one has a row
    "anthropic": Variables(("ANTHROPIC_API_KEY",), ("ANTHROPIC_BASE_URL",)),
    "command": Variables(),
    "copilot": Variables(
        ("COPILOT_GITHUB_TOKEN", "GH_TOKEN", "GITHUB_TOKEN"), ("COPILOT_GITHUB_API_URL", "COPILOT_BASE_URL")
    ),
    "gemini": Variables(("GEMINI_API_KEY", "GOOGLE_API_KEY"), ("GEMINI_BASE_URL",)),
    "gh": Variables(),
    "local": Variables(),
    "ollama": Variables(("OLLAMA_API_KEY",), ("OLLAMA_HOST",)),
    "openai": Variables(("OPENAI_API_KEY",), ("OPENAI_BASE_URL",)),
    "openai-responses": Variables(("OPENAI_API_KEY",), ("OPENAI_BASE_URL",)),
    "recorded": Variables(),
    "scripted": Variables(),
    "vertex": Variables(("GOOGLE_ACCESS_TOKEN",), ("GOOGLE_VERTEX_BASE_URL",)),
} | {name: Variables((name_key_variable(name),), (name_address_variable(name),)) for name in SERVERS}

KEYS = tuple(sorted({key for row in VARIABLES.values() for key in row.keys}))
ADDRESSES = tuple(sorted({address for row in VARIABLES.values() for address in row.addresses}))

KEYLESS_SERVERS = ("ollama", "lmstudio", "llamacpp", "vllm")  # on the user's machine, the preferred first
WITHOUT_HTTP = frozenset({"command", "gh", "local", "recorded", "scripted"})  # they reach models in another way


def preload_tls(model: str, env: Mapping[str, str]) -> None:
    """Read the certificates of this machine in a thread while the rest of a program is loaded, which takes long, unless
    `model`, a `provider:name`, is known not to need them."""
    provider = model.partition(":")[0]
    if provider not in WITHOUT_HTTP and not _is_plain(provider, env):

        def load_tls() -> None:
            with suppress(Exception):  # the first use raises the same error and can explain it
                import_module("treadle.base.http.connection").get_tls_context()

        # No daemon: at the end of the process it would be in the middle of OpenSSL while that is taken down.
        Thread(target=load_tls, name="treadle-preload").start()


def _is_plain(provider: str, env: Mapping[str, str]) -> bool:
    """True if the provider's address begins with http://, or would with its default scheme."""
    addresses = [env[name] for name in VARIABLES.get(provider, Variables()).addresses if env.get(name)]
    if provider == "ollama":
        return not any(address.startswith("https://") or address == "ollama.com" for address in addresses)
    default_addresses = [SERVERS[provider].base_url] if provider in SERVERS else []
    return any(address.strip().startswith("http://") for address in addresses or default_addresses)


_HERE = frozenset({"local", "recorded", "scripted"})
PROVIDER_NAMES: Mapping[str, str] = {
    **{"anthropic": "Anthropic", "copilot": "GitHub Copilot", "custom": "the server in CUSTOM_BASE_URL"},
    **{"deepseek": "DeepSeek", "gemini": "Google (Gemini API)", "gh": "GitHub Models (through the command gh)"},
    **{"groq": "Groq", "mistral": "Mistral", "openai": "OpenAI", "openai-responses": "OpenAI"},
    **{"openrouter": "OpenRouter", "together": "Together AI", "vertex": "Google (Vertex AI)", "xai": "xAI"},
}


def describe_recipient(ref: str, env: Mapping[str, str]) -> str:
    """Empty if nothing leaves this machine, or if the provider is unknown because a program brought it."""
    provider = ref.partition(":")[0]
    if provider in _HERE or provider not in VARIABLES:
        return ""
    if provider == "command":
        return f"the program behind {ref}"
    address = next((env[key] for key in reversed(VARIABLES[provider].addresses) if env.get(key, "").strip()), "")
    if address:
        return "" if is_loopback(address) else f"the server {_parse_host(address)}"
    at_home = is_loopback(SERVERS[provider].base_url) if provider in SERVERS else provider == "ollama"
    return "" if at_home else PROVIDER_NAMES[provider]


def _parse_host(address: str) -> str:
    from urllib.parse import urlsplit

    text = address.strip()
    return urlsplit(text if "//" in text else f"//{text}").hostname or text


def is_loopback(address: str) -> bool:
    """True if a base URL or `host:port` points to this machine."""
    from ipaddress import ip_address

    host = _parse_host(address)
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback or ip_address(host).is_unspecified
    except ValueError:
        return False
