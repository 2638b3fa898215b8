"""Token formats: keys of model providers, clouds, code hosts and services, known by their prefix.

Each pattern is strict (exact lengths and alphabets where the issuer has them), so that ids,
digests and opaque data never match, and has only bounded repeats, so that it runs in linear time.
Where a prefix is too short to be telling, `accepts=is_random` drops what looks like a name.
"""

from __future__ import annotations

from turnledger.ledger.redaction.patterns import (
    ESCAPED,
    LEFT,
    LEFT_OF_FEW,
    LEFT_OF_LETTERS,
    RIGHT,
    RIGHT_OF_FEW,
    UUID,
    SecretFormat,
    dotted,
    is_random,
    token,
)

# At least one letter and one digit: neither a word nor a number.
_MIXED = r"(?=[A-Za-z_-]{0,99}[0-9])(?=[0-9_-]{0,99}[A-Za-z])"

# --- model providers and AI services ---
# Many share the prefix sk-. A redactor applies formats in this order, and the first that matches
# gives the secret its name.
_MODELS = (
    token(
        "anthropic-key",
        "sk-ant-",
        r"sk-ant-[a-z]{2,10}[0-9]{2}-[A-Za-z0-9_-]{60,200}",
        "sk-ant-api03-<url64:93>AA",
    ),
    token("openrouter-key", "sk-or-v1-", r"sk-or-v1-[0-9a-f]{64}", "sk-or-v1-<hex:64>"),
    # Keys with a kind (sk-proj-...), old ones with OpenAI's mark in the middle, and those of
    # compatible servers, by their lengths; 32 hexadecimal digits are a DeepSeek key.
    token(
        "openai-key",
        "sk-",
        r"sk-(?:(?:proj|svcacct|admin|None)-[A-Za-z0-9_-]{40,300}"
        r"|[A-Za-z0-9]{20}T3BlbkFJ[A-Za-z0-9]{20}"
        r"|(?![0-9a-f]{32})(?:[A-Za-z0-9]{51}|[A-Za-z0-9]{48}|(?=[a-z0-9_-]{0,42}[A-Z])(?:[A-Za-z0-9_-]{43}|[A-Za-z0-9_-]{22})))",
        "sk-proj-<base62:48>",
        accepts=is_random,
    ),
    token("langfuse-key", "sk-lf-", rf"sk-lf-{UUID}", "sk-lf-<uuid>"),
    token("deepseek-key", "sk-", r"sk-[0-9a-f]{32}", "sk-<hex:32>"),
    token(
        "google-api-key", "AIza", r"AIza[A-Za-z0-9_-]{35}", "AIza<url64:35>", left=LEFT_OF_LETTERS
    ),
    token("groq-key", "gsk_", r"gsk_[A-Za-z0-9]{40,64}", "gsk_<base62:52>"),
    token(
        "huggingface-token",
        "hf_ api_org_",
        r"(?:hf_|api_org_)[A-Za-z0-9]{34,40}",
        "hf_<letters:34>",
    ),
    token(
        "langsmith-key",
        "lsv2_",
        r"lsv2_[a-z]{2}_[0-9a-f]{32}_[0-9a-f]{10}",
        "lsv2_pt_<hex:32>_<hex:10>",
    ),
    token("perplexity-key", "pplx-", r"pplx-[A-Za-z0-9]{40,64}", "pplx-<base62:48>"),
    token("pinecone-key", "pcsk_", r"pcsk_[A-Za-z0-9_]{50,100}", "pcsk_<base62:5>_<base62:63>"),
    token("replicate-token", "r8_", r"r8_[A-Za-z0-9]{37}", "r8_<base62:37>"),
    token("xai-key", "xai-", r"xai-[A-Za-z0-9]{60,100}", "xai-<base62:80>"),
    token("nvidia-key", "nvapi-", r"nvapi-[A-Za-z0-9_-]{60,70}", "nvapi-<url64:64>"),
    token("cerebras-key", "csk-", rf"csk-{_MIXED}[a-z0-9]{{48}}", "csk-<small:48>"),
    token(
        "fireworks-key",
        "fw_",
        rf"fw_{_MIXED}[A-Za-z0-9]{{22,24}}",
        "fw_<base62:22>",
        accepts=is_random,
    ),
    token("tavily-key", "tvly-", r"tvly-(?:(?:dev|prod)-)?[A-Za-z0-9]{32}", "tvly-<base62:32>"),
    token("firecrawl-key", "fc-", rf"fc-{_MIXED}[0-9a-f]{{32}}", "fc-<hex:32>"),
    token("elevenlabs-key", "sk_", r"sk_[0-9a-f]{48}", "sk_<hex:48>"),
    token("jina-key", "jina_", r"jina_[A-Za-z0-9_-]{60}", "jina_<base62:60>"),
    token(
        "voyage-key", "pa-", rf"pa-{_MIXED}[A-Za-z0-9_-]{{43}}", "pa-<url64:43>", accepts=is_random
    ),
)

# --- clouds and infrastructure ---
_CLOUDS = (
    token(
        "aws-access-key-id",
        "AKIA ASIA ABIA ACCA",
        r"A(?:KIA|SIA|BIA|CCA)[A-Z0-9]{16}",
        "AKIA<upper:16>",
        left=LEFT_OF_LETTERS,
    ),
    token(
        "aws-bedrock-key",
        "ABSK",
        r"ABSK[A-Za-z0-9+/]{109,269}={0,2}",
        "ABSK<base64:128>",
        left=LEFT_OF_LETTERS,
    ),
    # Begins with random characters; "Q~" after the first four is the constant part.
    SecretFormat(
        "azure-client-secret",
        rf"(?:(?<![A-Za-z0-9_~.-])|{ESCAPED}|(?<=_)(?<![A-Za-z0-9_~.-]_))"
        r"[A-Za-z0-9_~.]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34}(?!_{0,2}[A-Za-z0-9~-])",
        "<base62:3>8Q~<base62:34>",
        hints=("q~",),
        offset=4,
    ),
    token(
        "databricks-token",
        "dapi",
        r"dapi[0-9a-f]{32}(?:-[0-9])?",
        "dapi<hex:32>",
        left=LEFT_OF_LETTERS,
    ),
    token(
        "digitalocean-token",
        "dop_v1_ doo_v1_ dor_v1_",
        r"do[opr]_v1_[0-9a-f]{64}",
        "dop_v1_<hex:64>",
    ),
    token("google-oauth-secret", "GOCSPX-", r"GOCSPX-[A-Za-z0-9_-]{28}", "GOCSPX-<url64:28>"),
    dotted(
        "google-oauth-token",
        (r"ya29\.", r"ya29\.[a-z]\."),
        r"[A-Za-z0-9_-]{20,2048}",
        "ya29.a0<url64:160>",
    ),
    token("google-refresh-token", "1//0", r"1//0[A-Za-z0-9_-]{40,512}", "1//0<url64:98>"),
    dotted("vault-token", (r"hv[sb]\.",), r"[A-Za-z0-9_-]{24,300}", "hvs.<url64:90>"),
    # Version 1 is "s." and letters: too little alone, so the word vault must be before it.
    SecretFormat(
        "vault-token",
        r"(?<![A-Za-z0-9])s\.[A-Za-z0-9]{24}" + RIGHT,
        "VAULT_TOKEN=s.<base62:24>",
        dots=(r"s\.",),
        before=r"(?i:vault)[\w-]{0,20}[=: \"']{1,6}",
        accepts=lambda text: is_random(text[2:]),
    ),
    token(
        "alibaba-key",
        "LTAI",
        r"LTAI[A-Za-z0-9]{20}",
        "LTAI<base62:20>",
        left=LEFT_OF_FEW,
        right=RIGHT_OF_FEW,
    ),
    token("heroku-key", "HRKU-AA", r"HRKU-AA[A-Za-z0-9_-]{58}", "HRKU-AA<url64:58>"),
    dotted(
        "cloudflare-key",
        (r"v1\.",),
        r"0-[0-9a-f]{24}-[0-9a-f]{146}",
        "v1.0-<hex:24>-<hex:146>",
    ),
    token(
        "vercel-token", "vcp_ vci_ vck_ vca_ vcr_", r"vc[pikar]_[A-Za-z0-9]{56}", "vcp_<base62:56>"
    ),
    token(
        "netlify-token",
        "nfp_ nfc_ nfo_ nfu_ nfb_",
        r"nf[pcoub]_[A-Za-z0-9]{36,40}",
        "nfp_<base62:36>",
    ),
    token("fly-token", "fo1_", r"fo1_[A-Za-z0-9_-]{43}", "fo1_<url64:43>"),
    SecretFormat(
        "fly-token",
        LEFT + r"fm[12][ar]?_[A-Za-z0-9+/=,_-]{100,4000}",
        "fm2_<base64:400>",
        literals=("fm1_", "fm1a_", "fm1r_", "fm2_", "fm2a_", "fm2r_"),
    ),
    token("supabase-key", "sbp_", r"sbp_(?:oauth_|v0_)?[0-9a-f]{40}", "sbp_<hex:40>"),
    token(
        "supabase-key",
        "sb_secret_",
        r"sb_secret_[A-Za-z0-9_-]{31}",
        "sb_secret_<base62:22>_<base62:8>",
    ),
    SecretFormat(
        "planetscale-token",
        LEFT + r"pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_-]{4}[A-Za-z0-9._-]{28,60}={0,2}",
        "pscale_tkn_<url64:43>",
        literals=("pscale_",),
    ),
    token("neon-key", "napi_", r"napi_[a-z0-9]{64}", "napi_<small:64>"),
    token(
        "tailscale-key",
        "tskey-",
        r"tskey-(?:auth|api|client|scim|webhook)-[A-Za-z0-9]{8,20}(?:CNTRL)?-[A-Za-z0-9]{24,40}",
        "tskey-auth-<base62:12>CNTRL-<base62:32>",
    ),
    token("pulumi-token", "pul-", r"pul-[0-9a-f]{40}", "pul-<hex:40>"),
    dotted(
        "terraform-token",
        (r"[A-Za-z0-9]{14}\.atlasv1\.",),
        r"[A-Za-z0-9_=-]{60,70}",
        "<base62:14>.atlasv1.<url64:67>",
    ),
)

# --- code hosts, package registries, CI ---
_CODE = (
    token(
        "github-token",
        "ghp_ gho_ ghu_ ghs_ ghr_",
        r"gh(?:[pour]_[A-Za-z0-9]{36,251}"
        r"|s_[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?=[A-Za-z0-9_-])){35,2048})",
        "ghp_<base62:36>",
    ),
    token(
        "github-token",
        "github_pat_",
        r"github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}",
        "github_pat_<base62:22>_<base62:59>",
    ),
    token(
        "gitlab-token",
        "glpat- gldt- glrt- glcbt- glptt- glsoat- glft- glagent- gloas-",
        r"gl(?:pat|dt|rt|cbt|ptt|soat|ft|agent|oas)-[A-Za-z0-9_-]{20,300}"
        r"(?:\.[0-9a-z]{2}\.[0-9a-z]{9})?",
        "glpat-<url64:20>",
    ),
    token(
        "docker-token",
        "dckr_pat_ dckr_oat_",
        r"dckr_[op]at_[A-Za-z0-9_-]{27,40}",
        "dckr_pat_<url64:27>",
    ),
    token("npm-token", "npm_", r"npm_[A-Za-z0-9]{36}", "npm_<base62:36>"),
    token(
        "pypi-token",
        "pypi-AgE",
        r"pypi-AgE[A-Za-z0-9_-]{50,1000}",
        "pypi-AgEIcHlwaS5vcmc<url64:151>",
    ),
    token("rubygems-key", "rubygems_", r"rubygems_[0-9a-f]{48}", "rubygems_<hex:48>"),
    token(
        "crates-token",
        "cio",
        rf"cio{_MIXED}[A-Za-z0-9]{{32}}",
        "cio<base62:32>",
        left=LEFT_OF_FEW,
        right=RIGHT_OF_FEW,
        accepts=is_random,
    ),
    token("buildkite-token", "bkua_", r"bkua_[0-9a-f]{40}", "bkua_<hex:40>"),
    token(
        "circleci-token",
        "CCIPAT_ CCIPRJ_",
        r"CCI(?:PAT|PRJ)_[A-Za-z0-9]{22}_[0-9a-f]{40}",
        "CCIPAT_<base62:22>_<hex:40>",
    ),
    token(
        "artifactory-token",
        "AKCp cmVmdGtu",
        r"(?:AKCp[A-Za-z0-9]{69}|cmVmdGtu[A-Za-z0-9]{56})",
        "AKCp<base62:69>",
        left=LEFT_OF_LETTERS,
    ),
    SecretFormat(
        "atlassian-token",
        LEFT_OF_FEW + r"AT(?:ATT3|CTT3|BB)[A-Za-z0-9_-]{24,240}(?:=[A-F0-9]{8})?"
        r"(?!_{0,2}[A-Za-z0-9=+/-])",
        "ATATT3xFfGF0<url64:171>=0A1B2C3D",
        literals=("ATATT3", "ATCTT3", "ATBB"),
        accepts=is_random,
    ),
)

# --- other services ---
_SERVICES = (
    # Access tokens of a ledger: ledger/tokens.py.
    token("turnledger-token", "tl_", r"tl_[0-9a-f]{12}_[0-9a-f]{64}", "tl_<hex:12>_<hex:64>"),
    # The first part is a user's number, as text, in base64: any digit encodes to M, N or O.
    SecretFormat(
        "discord-token",
        rf"(?=[MNO])(?:(?<![A-Za-z0-9_.+-])|{ESCAPED}|(?<=_)(?<![A-Za-z0-9_.+-]_))"
        r"[MNO][A-Za-z0-9_-]{23,25}\.[A-Za-z0-9_-]{6}"
        r"\.[A-Za-z0-9_-]{27,38}(?!_{0,2}[A-Za-z0-9-]|\.[A-Za-z0-9_])",
        "M<base62:23>.<url64:6>.<url64:38>",
        dots=tuple(rf"[MNO][A-Za-z0-9_-]{{{size}}}\.[A-Za-z0-9_-]{{6}}\." for size in (23, 24, 25)),
    ),
    token(
        "grafana-token", "glsa_", r"glsa_[A-Za-z0-9]{32}_[0-9a-f]{8}", "glsa_<base62:32>_<hex:8>"
    ),
    SecretFormat(
        "grafana-token",
        LEFT + r"glc_[A-Za-z0-9+/]{40,400}={0,2}",
        "glc_<base64:120>",
        literals=("glc_",),
    ),
    token("newrelic-key", "NRAK-", r"NRAK-[A-Z0-9]{27}", "NRAK-<upper:27>"),
    SecretFormat(
        "newrelic-key",
        LEFT + r"[0-9a-f]{36}NRAL" + RIGHT,
        "<hex:36>NRAL",
        shape="[0-9a-f]{32}[0-9a-f]{4}NRAL",
    ),
    token("sentry-token", "sntryu_", r"sntryu_[0-9a-f]{64}", "sntryu_<hex:64>"),
    SecretFormat(
        "sentry-token",
        LEFT + r"sntrys_eyJ[A-Za-z0-9]{8}[A-Za-z0-9+/=_-]{32,400}",
        "sntrys_eyJ<base62:60>_<base62:43>",
        literals=("sntrys_eyJ",),
    ),
    dotted(
        "dynatrace-token",
        (r"dt0[a-z][0-9]{2}\.",),
        r"[A-Z0-9]{24}\.[A-Z0-9]{64}",
        "dt0c01.<upper:24>.<upper:64>",
    ),
    token(
        "linear-key",
        "lin_api_ lin_oauth_",
        r"lin_(?:api|oauth)_[A-Za-z0-9]{40,64}",
        "lin_api_<base62:40>",
    ),
    token("notion-token", "ntn_", r"ntn_[0-9]{11}[A-Za-z0-9]{35}", "ntn_<digits:11><base62:35>"),
    token(
        "notion-token",
        "secret_",
        rf"secret_{_MIXED}[A-Za-z0-9]{{43}}",
        "secret_<base62:43>",
        accepts=is_random,
    ),
    token(
        "airtable-token",
        "pat",
        r"pat[A-Za-z0-9]{14}\.[0-9a-f]{64}",
        "pat<base62:14>.<hex:64>",
        left=LEFT_OF_LETTERS,
    ),
    token("postman-key", "PMAK-", r"PMAK-[0-9a-f]{24}-[0-9a-f]{34}", "PMAK-<hex:24>-<hex:34>"),
    dotted(
        "doppler-token",
        # The name of a configuration may be before the last part.
        (
            *(rf"dp\.{kind}\." for kind in ("pt", "st", "ct", "sa", "scim", "audit")),
            *(rf"dp\.[a-z]{{2}}\.[a-z0-9_-]{{{size}}}\." for size in range(2, 36)),
        ),
        r"[A-Za-z0-9]{40,44}",
        "dp.pt.<base62:43>",
    ),
    token(
        "figma-token",
        "figd_ figo_ figoh_ figor_ figu_",
        r"fig(?:d|o|oh|or|u)_[A-Za-z0-9_-]{40,60}",
        "figd_<url64:40>",
    ),
    token(
        "hubspot-token", "pat-na pat-eu pat-ap", rf"pat-(?:na|eu|ap)[0-9]-{UUID}", "pat-na1-<uuid>"
    ),
    token("contentful-token", "CFPAT-", r"CFPAT-[A-Za-z0-9_-]{43}", "CFPAT-<url64:43>"),
    token(
        "typeform-token", "tfp_", r"tfp_[A-Za-z0-9_-]{40,70}", "tfp_<url64:59>", accepts=is_random
    ),
    token("posthog-key", "phx_ phs_", r"ph[xs]_[A-Za-z0-9]{43,47}", "phx_<base62:43>"),
    token("onepassword-token", "ops_eyJ", r"ops_eyJ[A-Za-z0-9_-]{250,2000}", "ops_eyJ<base62:300>"),
    # "cache key-..." in a log is a digest.
    token("mailgun-key", "key-", r"(?<![Cc]ache )key-[0-9a-f]{32}", "key-<hex:32>"),
    SecretFormat(
        "mailgun-key",
        LEFT + r"[0-9a-f]{32}-[0-9a-f]{8}-[0-9a-f]{8}" + RIGHT,
        "<hex:32>-<hex:8>-<hex:8>",
        shape="[0-9a-f]{32}-[0-9a-f]{8}-",
    ),
    SecretFormat(
        "mailchimp-key",
        LEFT + r"[0-9a-f]{32}-us[0-9]{1,2}" + RIGHT,
        "<hex:32>-us7",
        shape="[0-9a-f]{32}-us",
    ),
    dotted(
        "sendgrid-key",
        (r"SG\.",),
        r"[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}",
        "SG.<url64:22>.<url64:43>",
    ),
    token(
        "brevo-key",
        "xkeysib- xsmtpsib-",
        r"x(?:keysib|smtpsib)-[0-9a-f]{64}-[A-Za-z0-9]{16}",
        "xkeysib-<hex:64>-<base62:16>",
    ),
    token(
        "resend-key",
        "re_",
        rf"re_{_MIXED}[A-Za-z0-9]{{8}}_[A-Za-z0-9]{{24}}",
        "re_<base62:8>_<base62:24>",
        accepts=is_random,
    ),
    token(
        "easypost-key",
        "EZAK EZTK",
        r"EZ[AT]K[A-Za-z0-9]{54}",
        "EZAK<base62:54>",
        left=LEFT_OF_LETTERS,
    ),
    token(
        "shopify-token",
        "shpat_ shpca_ shppa_ shpss_",
        r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}",
        "shpat_<hex:32>",
    ),
    token(
        "square-token",
        "EAAA",
        rf"EAAA{_MIXED}[A-Za-z0-9_-]{{60}}",
        "EAAA<url64:60>",
        left=LEFT_OF_FEW,
        right=RIGHT_OF_FEW,
    ),
    token(
        "square-token",
        "sq0csp- sq0atp-",
        r"sq0(?:csp|atp)-[A-Za-z0-9_-]{22,43}",
        "sq0csp-<url64:43>",
    ),
    token(
        "slack-token",
        "xoxa- xoxb- xoxc- xoxd- xoxe- xoxo- xoxp- xoxr- xoxs- xapp-",
        r"(?:xox[a-eo-s]|xapp-[0-9])-[A-Za-z0-9-]{10}[A-Za-z0-9%-]{0,390}",
        "xoxb-<digits:12>-<digits:12>-<base62:24>",
    ),
    token(
        "stripe-key",
        "sk_live_ sk_test_ sk_prod_ rk_live_ rk_test_ rk_prod_",
        r"[sr]k_(?:live|test|prod)_[A-Za-z0-9]{16,250}",
        "sk_live_<base62:24>",
    ),
    SecretFormat(
        "stripe-webhook-secret",
        LEFT + r"whsec_[A-Za-z0-9+/]{24,100}={0,2}(?![A-Za-z0-9+/])",
        "whsec_<base62:32>",
        literals=("whsec_",),
    ),
    # After the bot's number, which is not secret and stays.
    SecretFormat(
        "telegram-token",
        r"(?<=[0-9]{8}:)AA[A-Za-z0-9_-]{33}" + RIGHT,
        "<digits:10>:AA<url64:33>",
        literals=("AA",),
    ),
    SecretFormat(
        "twilio-key",
        LEFT_OF_LETTERS + r"SK[0-9a-f]{32}" + RIGHT,
        "SK<hex:32>",
        literals=tuple(f"SK{digit}" for digit in "0123456789abcdef"),
    ),
    token(
        "age-key",
        "AGE-SECRET-KEY-1",
        r"AGE-SECRET-KEY-1[02-9AC-HJ-NP-Z]{58}",
        "AGE-SECRET-KEY-1<bech32:58>",
    ),
    # Of a person, and of a person and a workspace; the digits before the colon are ids.
    SecretFormat(
        "asana-token",
        r"[0-9a-f]{32}" + RIGHT,
        "2/<digits:16>/<digits:16>:<hex:32>",
        shape=r"(?<=[0-9]:)[0-9a-f]{32}(?![A-Za-z0-9])",
        before=r"(?<![0-9/])[0-2]/[0-9]{13,19}(?:/[0-9]{13,19})?:",
    ),
    SecretFormat(
        "fcm-key",
        LEFT + r"AAAA[A-Za-z0-9_-]{7}:APA91b[A-Za-z0-9_-]{134}" + RIGHT,
        "AAAA<url64:7>:APA91b<url64:134>",
        literals=("APA91b",),
        offset=12,
    ),
    # "-----BEGIN RSA PRIVATE KEY-----" and others in base64: a kubeconfig has them in one line.
    SecretFormat(
        "kubeconfig-key",
        LEFT_OF_FEW + r"LS0tLS1CRUdJTi(?:BSU0EgUFJJVkFURSBLRVktLS0t|BFQyBQUklWQVRFIEtFWS0tLS0t"
        r"|BEU0EgUFJJVkFURSBLRVktLS0t|BQUklWQVRFIEtFWS0tLS0t|BPUEVOU1NIIFBSSVZBVEUgS0VZLS0t"
        r"|BFTkNSWVBURUQgUFJJVkFURSBLRVktLS0t)[A-Za-z0-9+/]{40,16000}={0,2}",
        "LS0tLS1CRUdJTiBFQyBQUklWQVRFIEtFWS0tLS0t<base64:200>==",
        literals=("LS0tLS1CRUdJTi",),
    ),
    # "eyJ" is base64 of {" in the header and in the payload.
    SecretFormat(
        "jwt",
        LEFT_OF_LETTERS + r"eyJ[A-Za-z0-9_-]{11,8192}"
        r"\.eyJ[A-Za-z0-9_-]{10,16384}\.[A-Za-z0-9_-]{20,2048}",
        "eyJ<base62:33>.eyJ<base62:60>.<url64:86>",
        literals=("eyJ",),
    ),
)

TOKENS: tuple[SecretFormat, ...] = (*_MODELS, *_CLOUDS, *_CODE, *_SERVICES)
