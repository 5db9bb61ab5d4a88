"""Every refusal of a provider has its class, its sentence and the wait it asked for (M-11, fault 8)."""

import msgspec
import pytest

from treadle.adapters.models.wire.failures import SENTENCE_CAP, make_error, read_retry_after
from treadle.errors import ModelErrorKind

TABLE: list[tuple[int, bytes, ModelErrorKind, str]] = [
    (401, b'{"error":{"message":"Incorrect API key"}}', "auth", "Incorrect API key"),
    (403, b'{"detail":"no access"}', "auth", "no access"),
    (402, b"", "quota", "no reason"),
    (429, b'{"error":{"message":"You exceeded","code":"insufficient_quota"}}', "quota", "You exceeded"),
    (429, b'{"error":{"message":"Rate limit reached for tokens"}}', "rate_limit", "Rate limit reached"),
    (400, b'{"error":{"message":"This model\'s maximum context length is 8192 tokens"}}', "context_limit", "8192"),
    (400, b'{"error":{"message":"too long","code":"context_length_exceeded"}}', "context_limit", "too long"),
    (400, b'{"error":{"message":"the request exceeds the available context size"}}', "context_limit", "exceeds"),
    (413, b"<html><h1>Too large</h1></html>", "context_limit", "Too large"),
    (400, b'{"error":{"message":"bad value","param":"temperature"}}', "bad_request", "parameter temperature"),
    (404, b'{"object":"error","message":"no such model"}', "bad_request", "no such model"),
    (422, b'{"detail":[{"msg":"field required"}]}', "bad_request", "field required"),
    (301, b"", "bad_request", "no reason"),
    (500, b'{"error":"boom"}', "overloaded", "boom"),
    (502, b"<html>Bad gateway</html>", "overloaded", "Bad gateway"),
    (503, b"null", "overloaded", ""),
    (504, b"", "overloaded", ""),
    (529, b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}', "overloaded", "Overloaded"),
    (200, b'{"error":{"message":"Provider returned error","code":502}}', "overloaded", "Provider returned"),
    (200, b'{"error":{"message":"slow down","code":429}}', "rate_limit", "slow down"),
    (200, b'{"error":{"message":"slow down","type":"rate_limit_error"}}', "rate_limit", "slow down"),
    (200, b'{"error":{"message":"what","type":"invalid_request_error"}}', "bad_request", "what"),
    (200, b'{"error":{"message":"maximum context length"}}', "context_limit", "maximum"),
    (200, b'[{"error":{"message":"from a list","code":401}}]', "auth", "from a list"),
    (200, b'{"error":{"message":"odd"}}', "overloaded", "odd"),
    (400, b'{"error":{"code":400,"message":"API key not valid.","status":"INVALID_ARGUMENT"}}', "auth", "not valid"),
    (400, b'[{"error":{"code":400,"message":"no","details":[{"reason":"API_KEY_INVALID"}, 7]}}]', "auth", "no"),
    (400, b'{"error":{"message":"The input token count (9) exceeds the maximum"}}', "context_limit", "exceeds"),
    (429, b'{"error":{"code":429,"message":"You exceeded your current quota"}}', "quota", "exceeded"),
    (400, b"\xff\xfe" + b"[" * 100_000, "bad_request", "…"),
]


@pytest.mark.parametrize(("status", "body", "kind", "words"), TABLE)
def test_kinds(status: int, body: bytes, kind: ModelErrorKind, words: str) -> None:
    error = make_error("api.example", status, body)
    assert error.kind == kind
    assert words in str(error)
    assert str(error).startswith("api.example answered ")
    assert len(str(error)) < SENTENCE_CAP + 150


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}, 90.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT", "date": "Thu, 01 Jan 1970 00:01:35 GMT"}, 5.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:01 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-3"}, None),
        ({}, None),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:  # fault 8
    assert read_retry_after(headers, lambda: 10.0) == seconds


@pytest.mark.parametrize(
    ("quota", "delay", "kind", "seconds"),
    [
        ("GenerateRequestsPerMinutePerProjectPerModel-FreeTier", "34.07s", "rate_limit", 34.07),
        ("GenerateRequestsPerMinutePerProjectPerModel-FreeTier", "0s", "rate_limit", 0.0),
        ("GenerateRequestsPerDayPerProjectPerModel-FreeTier", "34s", "quota", 34.0),
        ("GenerateRequestsPerMinutePerProjectPerModel-FreeTier", "soon", "quota", None),
    ],
)
def test_limits_that_pass_and_limits_that_do_not(
    quota: str, delay: str, kind: ModelErrorKind, seconds: float | None
) -> None:
    """As Google tells them: one sentence for all, the difference is in the details."""
    details = [
        {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": quota}, None]},
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay},
    ]
    message = "You exceeded your current quota, please check your plan and billing details."
    body = msgspec.json.encode(
        [{"error": {"code": 429, "message": message, "status": "RESOURCE_EXHAUSTED", "details": details}}]
    )
    for status in (429, 200):
        error = make_error("api.example", status, body)
        assert (error.kind, error.retry_after, error.status) == (kind, seconds, 429)
    assert make_error("api.example", 429, body, {"retry-after": "5"}).retry_after == 5.0
