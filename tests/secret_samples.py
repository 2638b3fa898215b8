"""Made-up secrets of every known format, the same for a seed, and text that only looks like one.

What is made here opens nothing: it has the shape of a secret and nothing else of it.
"""

from __future__ import annotations

import base64
import json
import string
from collections.abc import Callable
from random import Random
from typing import NamedTuple
from urllib.parse import quote

LOWER_HEX = "0123456789abcdef"
BASE62 = string.ascii_letters + string.digits
BASE64 = BASE62 + "+/"
URL64 = BASE62 + "-_"
SMALL = string.ascii_lowercase + string.digits
CAPITALS = string.ascii_uppercase + string.digits
BASE32 = string.ascii_uppercase + "234567"


class Sample(NamedTuple):
    """A text with a secret in it; `secret` is what must not be found anywhere."""

    format: str
    text: str
    secret: str


def chars(random: Random, alphabet: str, count: int) -> str:
    return "".join(random.choices(alphabet, k=count))


def _b64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _url64(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def _jwt(r: Random) -> str:
    head, body = {"alg": "RS256", "typ": "JWT"}, {"sub": chars(r, BASE62, 12), "exp": 1790000000}
    return f"{_url64(head)}.{_url64(body)}.{chars(r, URL64, 86)}"


def _pem(r: Random, name: str, lines: int = 6) -> str:
    body = "\n".join(chars(r, BASE64, 64) for _ in range(lines))
    return f"-----BEGIN {name}-----\n{body}\n{chars(r, BASE64, 22)}==\n-----END {name}-----"


def _encrypted_pem(r: Random) -> str:
    plain = _pem(r, "RSA PRIVATE KEY")
    head = f"Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,{chars(r, CAPITALS[:6], 32)}\n\n"
    return plain.replace("-----\n", f"-----\n{head}", 1)


def _putty(r: Random) -> tuple[str, str]:
    body = chars(r, BASE64, 64)
    return f"Public-Lines: 1\nAAAA\nPrivate-Lines: 1\n{body}\nPrivate-MAC: 0", body


def _kubeconfig(r: Random) -> tuple[str, str]:
    key = _b64(_pem(r, "RSA PRIVATE KEY", 8).encode() + b"\n")
    return f"users:\n- name: admin\n  user:\n    client-key-data: {key}", key


def _sentry(r: Random) -> tuple[str, str]:
    key = chars(r, LOWER_HEX, 32)
    return f"https://{key}@o{r.randrange(10**6)}.ingest.us.sentry.io/{r.randrange(10**9)}", key


def _uuid(r: Random) -> str:
    return "-".join(chars(r, LOWER_HEX, count) for count in (8, 4, 4, 4, 12))


def _password(r: Random) -> str:
    return quote(chars(r, BASE62 + "!$*~.-_", r.randint(9, 24)), safe="!$*~.-_")


Make = Callable[[Random], str | tuple[str, str]]


def _url(scheme: str, rest: str) -> Make:
    def made(r: Random) -> tuple[str, str]:
        secret = "s" + _password(r)
        return f"{scheme}://app:{secret}@{rest}", secret

    return made


def _keyed(spelling: str, alphabet: str, count: int, end: str = "", mark: str = "a7") -> Make:
    """A secret that is known by its context; all have a letter and a digit, by their mark."""

    def made(r: Random) -> tuple[str, str]:
        secret = chars(r, alphabet, count - 2) + mark + end
        return spelling.format(secret), secret

    return made


def _prefixed(prefix: str, alphabet: str, count: int) -> Make:
    return lambda r: prefix + chars(r, alphabet, count)


MAKERS: dict[str, list[Make]] = {
    "anthropic-key": [
        lambda r: f"sk-ant-api03-{chars(r, URL64, 93)}AA",
        lambda r: f"sk-ant-admin01-{chars(r, URL64, 93)}AA",
        lambda r: f"sk-ant-oat01-{chars(r, URL64, 93)}AA",
    ],
    "openai-key": [
        lambda r: f"sk-{chars(r, BASE62, 20)}T3BlbkFJ{chars(r, BASE62, 20)}",
        lambda r: f"sk-proj-{chars(r, URL64, 74)}T3BlbkFJ{chars(r, URL64, 73)}A",
        lambda r: f"sk-svcacct-{chars(r, URL64, 58)}T3BlbkFJ{chars(r, URL64, 57)}Q",
        lambda r: f"sk-admin-{chars(r, URL64, 58)}T3BlbkFJ{chars(r, URL64, 57)}z",
        lambda r: f"sk-proj-{chars(r, BASE62, 48)}",
    ],
    "openrouter-key": [_prefixed("sk-or-v1-", LOWER_HEX, 64)],
    "deepseek-key": [_prefixed("sk-", LOWER_HEX, 32)],
    "langfuse-key": [
        lambda r: "sk-lf-" + "-".join(chars(r, LOWER_HEX, n) for n in (8, 4, 4, 4, 12))
    ],
    "nvidia-key": [lambda r: f"nvapi-{chars(r, URL64, 63)}a"],
    "cerebras-key": [_prefixed("csk-", SMALL, 48)],
    "fireworks-key": [lambda r: f"fw_{chars(r, BASE62, 18)}a7B9"],
    "tavily-key": [_prefixed("tvly-", BASE62, 32), _prefixed("tvly-dev-", BASE62, 32)],
    "firecrawl-key": [_prefixed("fc-", LOWER_HEX, 32)],
    "elevenlabs-key": [_prefixed("sk_", LOWER_HEX, 48)],
    "jina-key": [_prefixed("jina_", BASE62, 60)],
    "voyage-key": [lambda r: f"pa-{chars(r, URL64, 40)}a7B"],
    "alibaba-key": [_prefixed("LTAI", BASE62, 20)],
    "heroku-key": [
        lambda r: f"HRKU-AA{chars(r, URL64, 57)}a",
        lambda r: (lambda s: (f"HEROKU_API_KEY={s}", s))(_uuid(r)),
    ],
    "cloudflare-key": [lambda r: f"v1.0-{chars(r, LOWER_HEX, 24)}-{chars(r, LOWER_HEX, 146)}"],
    "vercel-token": [_prefixed("vcp_", BASE62, 56)],
    "netlify-token": [_prefixed("nfp_", BASE62, 36)],
    "fly-token": [lambda r: f"fo1_{chars(r, URL64, 42)}a", _prefixed("fm2_", BASE64, 400)],
    "supabase-key": [
        _prefixed("sbp_", LOWER_HEX, 40),
        lambda r: f"sb_secret_{chars(r, BASE62, 22)}_{chars(r, BASE62, 8)}",
    ],
    "planetscale-token": [lambda r: f"pscale_tkn_{chars(r, URL64, 42)}a"],
    "neon-key": [_prefixed("napi_", SMALL, 64)],
    "tailscale-key": [lambda r: f"tskey-auth-{chars(r, BASE62, 12)}CNTRL-{chars(r, BASE62, 32)}"],
    "pulumi-token": [_prefixed("pul-", LOWER_HEX, 40)],
    "terraform-token": [lambda r: f"{chars(r, BASE62, 14)}.atlasv1.{chars(r, URL64, 66)}a"],
    "rubygems-key": [_prefixed("rubygems_", LOWER_HEX, 48)],
    "crates-token": [_prefixed("cio", BASE62, 32)],
    "buildkite-token": [_prefixed("bkua_", LOWER_HEX, 40)],
    "circleci-token": [lambda r: f"CCIPAT_{chars(r, BASE62, 22)}_{chars(r, LOWER_HEX, 40)}"],
    "artifactory-token": [_prefixed("AKCp", BASE62, 69), _prefixed("cmVmdGtu", BASE62, 56)],
    "atlassian-token": [lambda r: f"ATATT3xFfGF0{chars(r, URL64, 170)}a={chars(r, 'A1B2', 8)}"],
    "newrelic-key": [_prefixed("NRAK-", CAPITALS, 27), lambda r: chars(r, LOWER_HEX, 36) + "NRAL"],
    "sentry-token": [
        _prefixed("sntryu_", LOWER_HEX, 64),
        lambda r: f"sntrys_{_url64({'iat': 1, 'org': chars(r, BASE62, 9)})}_{chars(r, BASE62, 43)}",
    ],
    "dynatrace-token": [lambda r: f"dt0c01.{chars(r, CAPITALS, 24)}.{chars(r, CAPITALS, 64)}"],
    "linear-key": [_prefixed("lin_api_", BASE62, 40)],
    "notion-token": [
        lambda r: f"ntn_{r.randrange(10**10, 10**11)}{chars(r, BASE62, 35)}",
        _prefixed("secret_", BASE62, 43),
    ],
    "airtable-token": [lambda r: f"pat{chars(r, BASE62, 14)}.{chars(r, LOWER_HEX, 64)}"],
    "postman-key": [lambda r: f"PMAK-{chars(r, LOWER_HEX, 24)}-{chars(r, LOWER_HEX, 34)}"],
    "doppler-token": [_prefixed("dp.pt.", BASE62, 43), _prefixed("dp.st.dev.", BASE62, 43)],
    "figma-token": [lambda r: f"figd_{chars(r, URL64, 39)}a"],
    "hubspot-token": [lambda r: f"pat-na1-{_uuid(r)}"],
    "contentful-token": [lambda r: f"CFPAT-{chars(r, URL64, 42)}a"],
    "typeform-token": [lambda r: f"tfp_{chars(r, URL64, 58)}a"],
    "posthog-key": [_prefixed("phx_", BASE62, 43)],
    "onepassword-token": [_prefixed("ops_" + "eyJ", BASE62, 300)],
    "mailchimp-key": [lambda r: f"{chars(r, LOWER_HEX, 32)}-us{r.randrange(1, 22)}"],
    "brevo-key": [lambda r: f"xkeysib-{chars(r, LOWER_HEX, 64)}-{chars(r, BASE62, 16)}"],
    "resend-key": [lambda r: f"re_{chars(r, BASE62, 7)}7_{chars(r, BASE62, 24)}"],
    "easypost-key": [_prefixed("EZAK", BASE62, 54)],
    "square-token": [
        lambda r: f"EAAA{chars(r, URL64, 57)}a7B",
        lambda r: f"sq0csp-{chars(r, URL64, 42)}a",
    ],
    "age-key": [_prefixed("AGE-SECRET-" + "KEY-1", "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58)],
    "google-api-key": [lambda r: f"AIza{chars(r, URL64, 34)}k"],
    "groq-key": [_prefixed("gsk_", BASE62, 52)],
    "turnledger-token": [
        lambda r: f"tl_{chars(r, LOWER_HEX, 12)}_{chars(r, LOWER_HEX, 64)}",
    ],
    "huggingface-token": [_prefixed("hf_", string.ascii_letters, 34)],
    "langsmith-key": [lambda r: f"lsv2_pt_{chars(r, LOWER_HEX, 32)}_{chars(r, LOWER_HEX, 10)}"],
    "perplexity-key": [_prefixed("pplx-", BASE62, 48)],
    "pinecone-key": [lambda r: f"pcsk_{chars(r, BASE62, 5)}_{chars(r, BASE62, 63)}"],
    "replicate-token": [_prefixed("r8_", BASE62, 37)],
    "xai-key": [_prefixed("xai-", BASE62, 80)],
    "aws-access-key-id": [_prefixed("AKIA", CAPITALS, 16), _prefixed("ASIA", CAPITALS, 16)],
    "aws-bedrock-key": [_prefixed("ABSK", BASE64, 128)],
    "aws-secret-access-key": [
        _keyed("aws_secret_access_key = {}", BASE64, 40),
        _keyed('"SecretAccessKey": "{}"', BASE64, 40),
        _keyed("export AWS_SECRET_ACCESS_KEY={}", BASE64, 40),
    ],
    "aws-session-token": [_keyed('"SessionToken": "{}"', BASE64, 356, "==")],
    "azure-account-key": [
        _keyed(
            "DefaultEndpointsProtocol=https;AccountName=a;AccountKey={};EndpointSuffix=x.net",
            BASE64,
            86,
            "==",
        ),
        _keyed("Endpoint=sb://h/;SharedAccessKeyName=R;SharedAccessKey={}", BASE64, 43, "="),
    ],
    "azure-sas-signature": [
        _keyed("https://a.blob.core.windows.net/c?sv=2022-11-02&sp=r&sig={}", BASE62, 43, "%3D")
    ],
    "azure-client-secret": [lambda r: f"{chars(r, BASE62, 3)}8Q~{chars(r, BASE62 + '_.~-', 33)}x"],
    "databricks-token": [_prefixed("dapi", LOWER_HEX, 32)],
    "digitalocean-token": [
        _prefixed("dop_v1_", LOWER_HEX, 64),
        _prefixed("doo_v1_", LOWER_HEX, 64),
    ],
    "google-oauth-secret": [lambda r: f"GOCSPX-{chars(r, URL64, 27)}v"],
    "google-oauth-token": [lambda r: f"ya29.a0{chars(r, URL64, 160)}Q"],
    "google-refresh-token": [lambda r: f"1//0{chars(r, URL64, 98)}s"],
    "vault-token": [lambda r: f"hvs.{chars(r, URL64, 90)}U"],
    "github-token": [
        *(_prefixed(prefix, BASE62, 36) for prefix in ("ghp_", "gho_", "ghu_", "ghs_", "ghr_")),
        lambda r: f"github_pat_{chars(r, BASE62, 22)}_{chars(r, BASE62, 59)}",
    ],
    "gitlab-token": [lambda r: f"glpat-{chars(r, URL64, 19)}d"],
    "docker-token": [lambda r: f"dckr_pat_{chars(r, URL64, 26)}e"],
    "npm-token": [_prefixed("npm_", BASE62, 36)],
    "pypi-token": [lambda r: f"pypi-AgEIcHlwaS5vcmc{chars(r, URL64, 150)}w"],
    "discord-token": [
        lambda r: f"M{chars(r, BASE62, 23)}.{chars(r, URL64, 6)}.{chars(r, URL64, 37)}u"
    ],
    "discord-webhook": [
        _keyed("https://discord.com/api/webhooks/1029384756102938475/{}", URL64, 68)
    ],
    "grafana-token": [lambda r: f"glsa_{chars(r, BASE62, 32)}_{chars(r, LOWER_HEX, 8)}"],
    "mailgun-key": [
        _prefixed("key-", LOWER_HEX, 32),
        lambda r: "-".join(chars(r, LOWER_HEX, count) for count in (32, 8, 8)),
    ],
    "sendgrid-key": [lambda r: f"SG.{chars(r, URL64, 22)}.{chars(r, URL64, 42)}c"],
    "shopify-token": [_prefixed("shpat_", LOWER_HEX, 32)],
    "slack-token": [
        lambda r: (
            f"xoxb-{r.randrange(10**11, 10**12)}-{r.randrange(10**12)}-{chars(r, BASE62, 24)}"
        ),
        lambda r: (
            f"xoxp-{'-'.join(str(r.randrange(10**11, 10**12)) for _ in range(3))}-"
            + chars(r, LOWER_HEX, 32)
        ),
        lambda r: (
            f"xapp-1-A{chars(r, CAPITALS, 10)}-{r.randrange(10**13)}-{chars(r, LOWER_HEX, 64)}"
        ),
    ],
    "slack-webhook": [
        lambda r: (lambda s: (f"https://hooks.slack.com/services/{s}", s))(
            f"T{chars(r, CAPITALS, 8)}/B{chars(r, CAPITALS, 10)}/{chars(r, BASE62, 24)}"
        )
    ],
    "stripe-key": [
        _prefixed("sk_live_", BASE62, 24),
        _prefixed("rk_live_", BASE62, 99),
        _prefixed("sk_test_", BASE62, 99),
    ],
    "stripe-webhook-secret": [_prefixed("whsec_", BASE62, 32)],
    # The bot's number before the colon is not secret.
    "telegram-token": [
        lambda r: (lambda s: (f"{r.randrange(10**9, 10**10)}:{s}", s))(f"AA{chars(r, URL64, 32)}b")
    ],
    "twilio-key": [_prefixed("SK", LOWER_HEX, 32)],
    "twilio-auth-token": [_keyed("TWILIO_AUTH_TOKEN={}", LOWER_HEX, 32)],
    "jwt": [_jwt],
    "private-key": [
        lambda r: _pem(r, "RSA PRIVATE KEY"),
        lambda r: _pem(r, "PRIVATE KEY"),
        lambda r: _pem(r, "OPENSSH PRIVATE KEY"),
        lambda r: _pem(r, "EC PRIVATE KEY", 2),
        lambda r: _pem(r, "PGP PRIVATE KEY BLOCK"),
        _encrypted_pem,
        _putty,
    ],
    "url-password": [
        _url("postgresql", "db.example.com:5432/shop"),
        _url("mongodb+srv", "cluster0.mongodb.net/?w=majority"),
        _url("redis", "10.0.0.7:6379/0"),
        _url("amqp", "broker/vhost"),
        _url("https", "git.example.com/a/b.git"),
        _url("mysql+pymysql", "[::1]:3306/x"),
    ],
    "dsn-password": [
        _keyed("Server=db;Database=s;User Id=sa;Password={};Encrypt=yes", BASE62, 16),
        _keyed("postgresql://db.example.com/s?user=u&password={}", BASE62, 16),
        _keyed("host=db user=app password={} dbname=x", BASE62, 16),
        _keyed("Password={};Server=db;Database=s", BASE62, 16),
        _keyed("Server=db; Password = '{}';", BASE62, 16),
    ],
    "bearer-token": [
        _keyed("Authorization: Bearer {}", BASE62, 40),
        _keyed("curl -H 'authorization: bearer {}'", URL64, 40),
    ],
    "basic-auth": [
        lambda r: (lambda s: (f"Authorization: Basic {s}", s))(
            _b64(f"app:{chars(r, BASE62, 16)}".encode())
        )
    ],
    "auth-header": [
        _keyed("Authorization: Token {}", LOWER_HEX, 40),
        _keyed("authorization: SSWS 00{}", BASE62, 40),
    ],
    "login-password": [
        _keyed("machine api.example.com login me password {}", BASE62, 16),
        _keyed("db.example.com:5432:shop:app:{}", BASE62, 16),
        _keyed("curl -s -u admin:{} https://api.example.com/v1", BASE62, 16),
    ],
    "presigned-url": [
        _keyed("https://b.s3.amazonaws.com/k?X-Amz-Date=1&X-Amz-Signature={}", LOWER_HEX, 64)
    ],
    "teams-webhook": [
        lambda r: (
            lambda s: (
                f"https://a.webhook.office.com/webhookb2/{_uuid(r)}@{_uuid(r)}/IncomingWebhook/{s}",
                s,
            )
        )(f"{chars(r, LOWER_HEX, 32)}/{_uuid(r)}")
    ],
    "kubeconfig-key": [_kubeconfig],
    "sentry-dsn": [
        _sentry,
        _keyed("https://%s:{}@sentry.example.com/42" % ("0f" * 16), LOWER_HEX, 32),
    ],
    "asana-token": [
        _keyed("1/1204987654321098:{}", LOWER_HEX, 32),
        _keyed("2/1204987654321098/1205123456789012:{}", LOWER_HEX, 32),
    ],
    "fcm-key": [
        lambda r: (lambda s: (f"AAAA{chars(r, URL64, 7)}:{s}", s))(f"APA91b{chars(r, URL64, 133)}x")
    ],
    "otpauth-secret": [
        _keyed("otpauth://totp/Shop:jane@example.com?secret={}&issuer=Shop", BASE32, 32, mark="Q7"),
        _keyed("otpauth://hotp/jane?counter=1&secret={}", BASE32, 16, mark="Q7"),
    ],
    # At the start of a line, and where a command sets a variable.
    "env-password": [
        _keyed("HOME=/root\nDB_PASSWORD={}\nLANG=C.UTF-8", BASE62, 16),
        _keyed("export PGPASSWORD={}", BASE62, 16),
        _keyed("docker run -e MYSQL_ROOT_PASSWORD={} mysql", BASE62, 16),
    ],
    # Lines of headers, and of curl.
    "cookie": [
        _keyed("GET / HTTP/1.1\nCookie: theme=dark; sessionid={}\nAccept: */*", SMALL, 32),
        _keyed("HTTP/1.1 200 OK\nSet-Cookie: sid={}; Path=/; HttpOnly\n", URL64, 43),
        _keyed("curl -H 'Cookie: auth={}' https://api.example.com/", BASE62, 40),
    ],
    "api-key": [
        _keyed("api_key={}", LOWER_HEX, 32),
        _keyed("os.environ['COHERE_API_KEY'] = '{}'", BASE62, 40),
        _keyed("api_key: str = '{}'", BASE62, 32),
        _keyed("<apiKey>{}</apiKey>", BASE62, 32),
        _keyed("tool --api-key {} run", BASE62, 32),
        _keyed("refresh_token         =      {}", BASE62, 40),
        _keyed('{{"name":"x-api-key","value":"{}"}}', BASE62, 32),
        _keyed('["X-Api-Key", "{}"]', BASE62, 32),
        _keyed("webhook_secret: {}", BASE62, 32),
        _keyed("token={}", BASE62, 32),
        _keyed("api-key: {}", LOWER_HEX, 32),
        _keyed('"AZURE_OPENAI_API_KEY": "{}"', BASE62, 84),
        _keyed("client_secret = '{}'", BASE62, 40),
    ],
}


def samples(seed: int, each: int, formats: list[str] | None = None) -> list[Sample]:
    """So many secrets of each format."""
    random = Random(seed)
    made = []
    for name in formats or list(MAKERS):
        makers = MAKERS[name]
        for number in range(each):
            given = makers[number % len(makers)](random)
            text, secret = given if isinstance(given, tuple) else (given, given)
            made.append(Sample(name, text, secret))
    return made


# What looks a little like a secret, and is none.
NEAR_MISSES = (
    "task-oriented, risk-free and disk-usage; sk-learn is short for scikit-learn",
    "The prefix sk- is followed by the key, sk-proj- by a project's, sk-ant- by another's.",
    "AKIA is how an access key id begins, as in AKIA...; ASIAN markets were calm.",
    "AIza is four letters.",
    "550e8400-e29b-41d4-a716-446655440000",
    "commit 4d6f2b9d0a1c3e5f7a9b1c3d5e7f9a1b3c5d7e9f by somebody",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "https://example.com/a/b?page=2&sort=asc#top",
    "http://localhost:8080/path@version and http://127.0.0.1:5000",
    "postgresql://localhost/db and postgresql://app@db.example.com:5432/shop",
    "postgresql://app:${DB_PASSWORD}@db/shop, redis://:<password>@host",
    "mail to jane.doe@example.com or ssh git@github.com:acme/shop.git",
    "eyJ is how a token begins; eyJhbGciOiJIUzI1NiJ9 alone is a header",
    "Use Bearer authentication, the bearer responsibilities are listed below.",
    "Authorization: Basic is the scheme's name",
    "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE\n-----END PUBLIC KEY-----",
    "-----BEGIN CERTIFICATE-----\nMIIDdzCCAl+gAwIBAgIEAgAAuTANBgkqhkiG\n-----END CERTIFICATE-----",
    "A key file starts with -----BEGIN PRIVATE KEY----- and a line break.",
    "api_key=os.environ['API_KEY'] and api_key: str = Field(description='the key')",
    "client_secret=get_secret_of_client_number_2(config)",
    "access_token = settings.ACCESS_TOKEN_2024.value",
    "primary_key: customers_orders_line_items",
    "token: international_representatives_meeting",
    "xoxo, Anna. xapp is a word, and so is key-value, npm_config, hf_hub and r8_",
    "SG.1 is a school grade; ghp_ is a prefix and github_pat_ another",
    "SKU12345678901234567890 and SK-9000",
    "the signal sig=0.5 and https://a/b?sig=short",
    "12345678:30 is a time, 1//0 is a division",
    "glpat-short and dapi-v2 and whsec_ and SELECT password FROM users",
    "docker://alpine:3.18@sha256:" + "ab" * 32,
    "cd /a;PWD=/home/user/project123 ls",
    "apt install xapp-symbolic-icons=1.0.6",
    "PublicKey=" + "A1b2" * 10 + "A1b=, HostKey=" + "A1b2" * 10 + "A1b=",
    "aws_secret_access_key=s3_aws_secret_access_key",
    "client_secret = CLIENT_SECRET_FROM_ENV_2",
    "accessToken: AccessTokenV2ResponseData; private_key: PKCS7PrivateKeyTypes",
    '{"client_token": "6f1b2c3d-1111-2222-3333-444455556666"}',
    '{"secretKey": "projects/1/secrets/my-secret/versions/2"}',
    "sk-admin-dashboard-panel-left-side-navigation-component-2",
    "Bearer oauth2/token-exchange-flow",
    "cache key-d41d8cd98f00b204e9800998ecf8427e",
    '{"nextPageToken": "CAUQAA7f3aB9cD2eF4gH6iJ8kL0"}',
    "http://$HOST:$PORT/path@v1 and https://cdn.example.com:8080/x@1.2.3/y",
    "call_9fJk2LmN8pQrStUvWxYz1234 toolu_01A09q90qw90lq917835lq9",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk",
)
