"""Secrets go, text that only looks like one stays (S-11)."""

import base64
import hashlib
import random
import time
import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import treadle
from treadle.adapters.policy.redaction import Redactor

PLAIN = Redactor({})
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
PEM = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmU\n-----END OPENSSH PRIVATE KEY-----"
BODY = "MIIEowIBAAKCAQEAu1SU1LfVLPHCozMxH2Mo4lgOEePzNm0tRgeLezV6ffAt0gun"
HEAD = f"-----BEGIN RSA PRIVATE KEY-----\n{BODY}\n{BODY}"
NUMBERED = "".join(f"{number}\t{line}\n" for number, line in enumerate(HEAD.split("\n"), 1)) + "[more]"
SECRETS = {
    "API key": "sk-proj-abcdEFGH1234ijklMNOP5678qrstUVWX",
    "Anthropic key": "sk-ant-api03-AbCdEfGhIjKlMnOpQrStUvWxYz0123456789",
    "GitHub token": "ghp_" + "a1B2" * 9,
    "GitLab token": "glpat-abcDEF123456ghiJKL78",
    "AWS key id": "AKIAIOSFODNN7EXAMPLE",
    "Google key": "AIza" + "SyA1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q",
    "Slack token": "xoxb-" + "123456789012-abcdefGHIJKL",
    "npm token": "npm_" + "aB3d" * 9,
    "PyPI token": "pypi-" + "AgEIcHlwaS5vcmcCJDYw" * 3,
    "Hugging Face token": "hf_" + "AbCdEfGhIj" * 3 + "Klmn",
    "Stripe key": "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc",
    "web token": JWT,
    "private key": PEM,
}


@pytest.mark.parametrize("kind", SECRETS)
@pytest.mark.parametrize("around", ["{}", "key: {}\n", 'const k = "{}";', "a={},b", "({})"])
def test_by_shape(kind: str, around: str) -> None:
    text = around.format(SECRETS[kind])
    clean = PLAIN(text)
    assert clean == around.format(f"[redacted: {kind}]")
    assert PLAIN(clean) == clean


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("postgres://bob:s3cret@db:5432/x", "postgres://bob:[redacted: password]@db:5432/x"),
        ("https://:tok3n@host/x", "https://:[redacted: password]@host/x"),
        ("Authorization: Bearer abcdef1234567890abcd", "Authorization: Bearer [redacted: authorization]"),
        ("-H 'authorization: Basic dXNlcjpwYXNzd29yZDE='", "-H 'authorization: Basic [redacted: authorization]'"),
        ("DB_PASSWORD=hunter2hunter\nX=1", "DB_PASSWORD=[redacted: DB_PASSWORD]\nX=1"),
        ("   3│export API_TOKEN='abc123def456'", "   3│export API_TOKEN='[redacted: API_TOKEN]'"),
        ("DB_PASSWORD=correcthorse", "DB_PASSWORD=[redacted: DB_PASSWORD]"),
        ("xAPP_PASSWORD=correcthorse", "xAPP_PASSWORD=[redacted: APP_PASSWORD]"),
        ("done.APP_PASSWORD=correcthorse end", "done.APP_PASSWORD=[redacted: APP_PASSWORD] end"),
        ("docker run -e DB_PASSWD='correcthorse' x", "docker run -e DB_PASSWD='[redacted: DB_PASSWD]' x"),
        ("+SMTP_PASSWD='hunter2'\n", "+SMTP_PASSWD='[redacted: SMTP_PASSWD]'\n"),
        ("spring.datasource.password=abc12345", "spring.datasource.password=[redacted: spring.datasource.password]"),
        ("db:\n  password: hunter2hunter # x", "db:\n  password: [redacted: password] # x"),
        ('{"user": "me", "api_key": "abc123def456"}', '{"user": "me", "api_key": "[redacted: api_key]"}'),
        ("  12\tclient_secret: 'aB3dE5gH'", "  12\tclient_secret: '[redacted: client_secret]'"),
        ("https://a1b2c3d4e5f6a7b8c9d0@host.example/x.git", "https://[redacted: token]@host.example/x.git"),
        (
            "extraheader = AUTHORIZATION: basic eDpnaHNfYTFiMmMzZDQ1",
            "extraheader = AUTHORIZATION: basic [redacted: authorization]",
        ),
        ("redis://u:p@ss:w0rd@db:1/0", "redis://u:[redacted: password]@db:1/0"),
        (f"{HEAD}\nprompt$ ", "[redacted: private key]\nprompt$ "),
        ("KEY='" + HEAD.replace("\n", "\\n"), "KEY='[redacted: private key]"),
        (NUMBERED, "1\t[redacted: private key]\n[more]"),
        (f"{BODY}\n{BODY}\n-----END RSA PRIVATE KEY-----\n", "[redacted: private key]\n"),
        ("aws_secret\nAWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLE1", None),
    ],
)
def test_by_what_stands_around_it(text: str, expected: str | None) -> None:
    assert PLAIN(text) == (expected or "aws_secret\nAWS_SECRET_ACCESS_KEY=[redacted: AWS_SECRET_ACCESS_KEY]")
    assert PLAIN(PLAIN(text)) == PLAIN(text)


def test_by_value() -> None:
    env = {
        "ACME_API_KEY": "zebra-crossing",
        "SESSION_SECRET": "correct horse",
        "DATABASE_URL": "mysql://root:p%40ssw0rd1@db/x",
        "PATH": "/usr/bin:/bin",
        "SSH_KEY_PATH": "/home/ada/.ssh/key",
        "SHORT_TOKEN": "abc",
        "APP_KEY": "development",
        "EDITOR": "vim-is-my-editor",
    }
    redact = Redactor(env, {"the deploy key": "quite-unguessable"})
    assert redact("it is zebra-crossing!") == "it is [redacted: ACME_API_KEY]!"
    assert (
        redact("p%40ssw0rd1 p@ssw0rd1") == "[redacted: password of DATABASE_URL] [redacted: password of DATABASE_URL]"
    )
    assert redact("quite-unguessable") == "[redacted: the deploy key]"
    for value in ("/usr/bin:/bin", "/home/ada/.ssh/key", "abc", "development", "vim-is-my-editor"):
        assert redact(value) == value


def test_one_value_in_another() -> None:
    redact = Redactor({"A_TOKEN": "abcdefgh", "B_TOKEN": "abcdefghijkl"})
    assert redact("abcdefghijkl abcdefgh") == "[redacted: B_TOKEN] [redacted: A_TOKEN]"


def harmless() -> list[str]:
    chance = random.Random(7)
    noise = chance.randbytes(30_000)
    css = ".sk-folding-cube-animation-delay-2{}.sk-circle-fade-dot-1234567890 task-sk-abc"
    return [
        hashlib.sha256(b"x").hexdigest(),
        "commit 560dd61cbe8f0a4f2b6d0c1e9f3a7b5c2d4e6f80",
        *(str(uuid.UUID(int=chance.getrandbits(128))) for _ in range(200)),
        base64.b64encode(noise).decode(),
        base64.urlsafe_b64encode(noise).decode(),
        "data:image/png;base64," + base64.b64encode(noise).decode(),
        noise.hex(),
        css,
        "!function(e,t){var n=e.KEY=t.TOKEN||1,r=n?e.SECRET:0;return n&&r.sk-1}(a,b);" * 200,
        "https://example.com:8080/a@b http://user@host/ git@github.com:a/b.git ssh://git@host:22/x",
        "https://user:${PASSWORD}@host https://user:<password>@host https://u:{p}@h",
        "TOKEN=$(cat token) API_KEY=${KEY} SECRET=<secret> x_TOKEN=abcdefgh1",
        "def get_token(key): return KEYS[key]  # Bearer of bad news, basic auth",
        "Authorization: Bearer <token>, Bearer YOUR_TOKEN_GOES_HERE",
        "sha512-" + base64.b64encode(noise[:64]).decode(),
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        "-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----",
        "eyJ not a token. eyJhbGciOiJIUzI1NiJ9",
        '_START = "-----BEGIN OPENSSH PRIVATE KEY-----"\n_NEXT = 1\n',
        "connect(DB_PASSWORD=settings.PASSWORD)\nrun -e DB_PASSWORD=APP_PASSWORD x\nrun DB_PASSWORD=changeme x\n",
        "PASSWORD=$(pass show x)\nDB_PASSWORD=\nDB_PASSWORD=${X}\nDB_PASSWORD=changeme\nPASSWORD=****\n",
        "    password=password,\n    token=self._token1\n    login(user, password=secret2)\n",
        'call({"password": password1, "token": settings.token2})\ninterface A { password: string; token2: Token }\n',
        "def f(password: str = 'x', token: bytes32) -> None: ...\nif token: return key1\n",
        "token: ${{ secrets.GITHUB_TOKEN2 }}\nsecret: file:/run/secrets/a1\npassword: {{ vault_pw1 }}\n",
        "https://example.com/@user1234567890123456 https://host.example:8080/x?a=b@c git+ssh://deploy@host/x",
    ]


def test_no_false_alarm() -> None:
    assert [text for text in harmless() if PLAIN(text) != text] == []


def test_our_own_source_passes() -> None:
    for file in Path(treadle.__file__).parent.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        assert PLAIN(text) == text, file


@given(st.text())
def test_twice_is_once(text: str) -> None:
    redact = Redactor({"A_TOKEN": "abcdefgh12"})
    assert redact(redact(text)) == redact(text)


def test_a_megabyte_of_anything_costs_little() -> None:
    bad = ["://" * 350_000, "sk-" * 350_000, "eyJ." * 250_000, "-----BEGIN " * 95_000, "KEY=" * 250_000]
    worst = ["-----BEGIN PRIVATE KEY-----" * 38_000, "Bearer " * 150_000, "a" * 1_000_000, "A_KEY=x\n" * 125_000]
    for text in bad + worst:
        began = time.process_time()
        PLAIN(text)
        assert time.process_time() - began < 5, text[:30]  # linear: a second on a slow machine, not minutes


# -- in pieces --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SECRETS)
def test_a_secret_in_two_pieces_is_not_shown(kind: str) -> None:
    secret = SECRETS[kind]
    text = f"before {secret} after\n"
    for position in range(len(text)):
        live = PLAIN.make_live_text()
        output = live(text[:position]) + live(text[position:]) + live("\n")
        assert f"[redacted: {kind}] after" in output, position
        assert secret[8:] not in output, position
        visible_start = output.removeprefix("before ").partition("[")[0]  # no more of it than how all of its kind begin
        assert len(visible_start) <= 10, position
        assert secret.startswith(visible_start), position


SPLIT = [
    ("DB_PASSWORD=correcthorse\n", "correcthorse"),
    ("db:\n  password: hunter2hunter\n", "hunter2hunter"),
    ('{"api_key": "abc123def456"}\n', "abc123def456"),
    ("redis://u:p@ss:w0rd@db:1/0 x\n", "p@ss:w0rd"),
    ("https://a1b2c3d4e5f6a7b8c9d0@host.example/x.git\n", "a1b2c3d4e5f6a7b8c9d0"),
]


@pytest.mark.parametrize(("text", "secret"), SPLIT)
def test_what_stands_around_a_secret_may_be_cut(text: str, secret: str) -> None:
    for first in range(len(text)):
        for second in range(first, len(text)):
            live = PLAIN.make_live_text()
            output = live(text[:first]) + live(text[first:second]) + live(text[second:]) + live("\n")
            assert secret not in output, (first, second)
            assert "[redacted" in output, (first, second)


def test_a_secret_letter_by_letter() -> None:
    live = PLAIN.make_live_text()
    output = "".join(map(live, f"a {SECRETS['GitHub token']} b\n"))
    assert output == "a ghp[redacted: GitHub token] b\n"


def test_a_value_in_two_pieces_is_not_shown() -> None:
    redact = Redactor({"A_TOKEN": "abcdefgh"})
    for position in range(8 + 4):
        live = redact.make_live_text()
        text = "xx abcdefgh yy"
        output = live(text[:position]) + live(text[position:])
        assert "[redacted: A_TOKEN] yy" in output
        assert "abcd" not in output


def test_ordinary_output_is_not_held_back() -> None:
    live = PLAIN.make_live_text()
    for piece in ("line one\n", "50 %", "\r100 %", "password? ", "y/n: "):
        assert live(piece) == piece
