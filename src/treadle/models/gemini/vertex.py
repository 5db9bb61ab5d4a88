"""Vertex AI (M-03): the Gemini protocol behind the door of a Google Cloud project. Knows where that is and what the
models are called there; tokens are the business of `vertex_token`."""

from treadle.errors import ConfigError, ModelError
from treadle.models.gemini.adapter import Gemini
from treadle.models.gemini.vertex_token import Tokens, find_tokens
from treadle.models.provider_context import ProviderContext
from treadle.models.wire.endpoint import Access
from treadle.ports.model import ModelRequest

VERSION = "v1beta1"
EVERYWHERE = "global"
MULTI_REGIONS = ("us", "eu")


class Vertex(Gemini):
    """One model of a project. Its name may say whose it is (`meta/llama…`) or be an endpoint (`endpoints/…`)."""

    def _resource(self, name: str) -> str:
        if name.startswith(("publishers/", "endpoints/", "models/")):
            return name
        publisher, slash, model = name.partition("/")
        return f"publishers/{publisher}/models/{model}" if slash else f"publishers/google/models/{name}"


class VertexDoor:
    """Implements `treadle.models.wire.endpoint.Door` for all models of a project in one location."""

    def __init__(self, tokens: Tokens, *, project: str = "", location: str = EVERYWHERE, base_url: str = "") -> None:
        self._tokens = tokens
        self._project = project
        self._location = location
        self._base_url = base_url.rstrip("/") or address_of(location)

    def __repr__(self) -> str:
        return repr(self._base_url)

    async def open(self, request: ModelRequest) -> Access:
        grant = await self._tokens.get()
        project = self._project or grant.project
        if not project:
            raise ModelError("auth", "Vertex AI needs a project: set GOOGLE_CLOUD_PROJECT")
        url = f"{self._base_url}/{VERSION}/projects/{project}/locations/{self._location}"
        return Access(url, grant.token, {"x-goog-user-project": grant.payer} if grant.payer else {})

    def shut(self, access: Access, error: ModelError) -> bool:
        """A token may be revoked, or a machine may have slept past its end."""
        return error.status == 401 and self._tokens.forget(access.key)


def address_of(location: str) -> str:
    if location == EVERYWHERE:
        return "https://aiplatform.googleapis.com"
    if location in MULTI_REGIONS:
        return f"https://aiplatform.{location}.rep.googleapis.com"
    return f"https://{location}-aiplatform.googleapis.com"


def connect_door(around: ProviderContext) -> VertexDoor:
    """ConfigError when there is no way to a token, or no project to use it in."""
    tokens = find_tokens(around.env)
    project = around.env.get("GOOGLE_CLOUD_PROJECT", "").strip()
    if not project and not tokens.knows_project:
        raise ConfigError("vertex needs a project: set GOOGLE_CLOUD_PROJECT")
    location = around.env.get("GOOGLE_CLOUD_LOCATION", "").strip() or EVERYWHERE
    return VertexDoor(tokens, project=project, location=location, base_url=around.address("GOOGLE_VERTEX_BASE_URL"))


def connect(name: str, around: ProviderContext) -> Vertex:
    return Vertex(around.look_up("vertex", name), door=around.shared(connect_door), http=around.http)
