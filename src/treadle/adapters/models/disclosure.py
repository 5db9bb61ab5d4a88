"""The recipient of the data that is sent to a model (S-10): the provider, by name and address, or no one outside this
machine. Accesses no network."""

from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from treadle.adapters.models.providers import SERVERS, VARIABLES

_HERE = frozenset({"local", "recorded", "scripted"})
_AT_HOME = frozenset({"ollama"})  # servers that are on this machine unless a variable says otherwise
PROVIDER_NAMES: Mapping[str, str] = {
    "anthropic": "Anthropic",
    "copilot": "GitHub Copilot",
    "custom": "the server in CUSTOM_BASE_URL",
    "deepseek": "DeepSeek",
    "gemini": "Google (Gemini API)",
    "gh": "GitHub Models (through the command gh)",
    "groq": "Groq",
    "mistral": "Mistral",
    "openai": "OpenAI",
    "openai-responses": "OpenAI",
    "openrouter": "OpenRouter",
    "together": "Together AI",
    "vertex": "Google (Vertex AI)",
    "xai": "xAI",
}


def recipient(ref: str, env: Mapping[str, str]) -> str:
    """Empty if nothing leaves this machine, or if the provider is unknown because a program brought it."""
    provider = ref.partition(":")[0]
    if provider in _HERE or provider not in VARIABLES:
        return ""
    if provider == "command":
        return f"the program behind {ref}"
    address = next((env[key] for key in reversed(VARIABLES[provider].addresses) if env.get(key, "").strip()), "")
    if not address and provider in SERVERS:
        address = SERVERS[provider].base_url
        if not is_loopback(address):
            return PROVIDER_NAMES[provider]
    if not address:
        return "" if provider in _AT_HOME else PROVIDER_NAMES[provider]
    return "" if is_loopback(address) else f"the server {_host(address)}"


def _host(address: str) -> str:
    text = address.strip()
    return urlsplit(text if "//" in text else f"//{text}").hostname or text


def is_loopback(address: str) -> bool:
    """True if a base URL or `host:port` points to this machine."""
    host = _host(address)
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        parsed = ip_address(host)
    except ValueError:
        return False
    return parsed.is_loopback or parsed.is_unspecified
