"""The adapters that are compared with the vendors' SDKs, and on what. Data only: a provider is one line here, one in
the contestant `treadle_adapters.py`, and a file with its SDK's loop."""

import msgspec

from bench.contest import Contestant

TARGET = 10.0
"""How many times the CPU of our adapter an SDK is meant to take, at least."""

OURS = Contestant("treadle", "Treadle", "treadle_adapters.py", "treadle")
_OPENAI = Contestant("openai", "openai SDK", "openai_sdk.py", "peer")
_ANTHROPIC = Contestant("anthropic", "anthropic SDK", "anthropic_sdk.py", "peer")
_GEMINI = Contestant("google_genai", "google-genai SDK", "google_genai_sdk.py", "peer")
_OLLAMA = Contestant("ollama", "ollama SDK", "ollama_sdk.py", "peer")


class Provider(msgspec.Struct, frozen=True):
    name: str
    """As in `provider:model`, and at the server the first part of its paths."""
    title: str
    dialect: str
    """The fake that makes its bytes, as `module:class`."""
    sdk: Contestant
    suffix: str = ""
    """What its base URL ends with."""
    path: str = ""
    """Where a stream is asked for, if its bytes depend on that."""


PROVIDERS = (
    Provider("openai", "OpenAI Chat Completions", "treadle.testing.fake_openai:ChatCompletions", _OPENAI, "/v1"),
    Provider("openai-responses", "OpenAI Responses", "treadle.testing.fake_responses:Responses", _OPENAI, "/v1"),
    Provider("anthropic", "Anthropic Messages", "treadle.testing.fake_anthropic:Messages", _ANTHROPIC),
    Provider(
        "gemini",
        "Gemini",
        "treadle.testing.fake_gemini:GenerateContent",
        _GEMINI,
        path="/v1beta/models/bench:streamGenerateContent?alt=sse",
    ),
    Provider("ollama", "Ollama", "treadle.testing.fake_ollama:OllamaApi", _OLLAMA),
)
TIMES = 5
"""How often each is run anew; the least of its figures is kept."""
FULL = {"small": 10, "big": 1000, "repeats": 3}
QUICK = {"small": 10, "big": 500, "repeats": 3}
ADAPTERS = "adapters"
"""The name of all this on the command line."""
