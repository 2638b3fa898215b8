"""The page's answers over HTTP: its policy, its caching, and which other sites reach it."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.unit.adapters.http.calling import Api

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
RUN = "01890a5d-ac96-774b-bcce-b302099a8057"
ADDRESSES = ("/", "/doubts", f"/runs/{RUN}", f"/compare/{RUN}/{RUN}", f"/e/{RUN}")
FILES = {
    "/index.html": "text/html",
    "/assets/page.js": "text/javascript",
    "/assets/page.css": "text/css",
    "/icon.svg": "image/svg+xml",
    "/LICENSES.txt": "text/plain",
    "/BUILT_FROM": "text/plain",
}
# What a browser sends with a link of another site that a person follows.
LINK = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    with Api() as api:
        yield api


def get(api: Api, path: str, method: str = "GET", **headers: str) -> httpx.Response:
    """The answer to a request without a token, as a browser sends it at first."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return api.call(method, path, token="", headers=sent)


@pytest.mark.parametrize("path", [*ADDRESSES, *FILES])
def test_every_answer_of_the_page_has_the_policy(api: Api, path: str) -> None:
    """Only the page's own files run; nothing is framed, and no text becomes markup."""
    answer = get(api, path)
    assert answer.status_code == 200
    assert answer.headers.get_list("content-security-policy") == [POLICY]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cross-origin-opener-policy"] == "same-origin"
    assert answer.headers["content-type"].partition(";")[0] == FILES.get(path, "text/html")


@pytest.mark.parametrize("path", ADDRESSES)
def test_all_addresses_are_one_document(api: Api, path: str) -> None:
    """The page itself finds out what an address names: with any query."""
    assert get(api, f"{path}?at=7&q=%F0").content == get(api, "/index.html").content


@pytest.mark.parametrize("path", ["/", "/assets/page.js"])
def test_a_file_that_is_known_is_not_sent_again(api: Api, path: str) -> None:
    """It is asked for each time, and answered by its tag: after an upgrade nothing old is shown."""
    first = get(api, path)
    assert first.headers["cache-control"] == "no-cache"
    again = get(api, path, if_none_match=first.headers["etag"])
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    assert again.headers["content-security-policy"] == POLICY
    other = get(api, path, if_none_match='"of-another-build"')
    assert (other.status_code, other.content) == (200, first.content)


@pytest.mark.parametrize("path", ["/", "/assets/page.js"])
def test_head_has_the_headers_alone(api: Api, path: str) -> None:
    """A HEAD is answered as a GET, without the content."""
    full, head = get(api, path), get(api, path, "HEAD")
    assert head.status_code == 200
    assert head.headers == full.headers
    assert head.content == b""


@pytest.mark.parametrize(
    "path",
    [
        *("/nowhere", "/doubts/1", "/runs", "/runs/", f"/runs/{RUN}/x", f"/compare/{RUN}", "/e"),
        *("/assets", "/assets/", "/assets/none.js", "/static/index.html"),
        *("/assets/..%2fpage.py", "/%2e%2e/page.py", "/index.html/"),
    ],
)
def test_what_is_not_the_page_is_a_problem(api: Api, path: str) -> None:
    """A path that names nothing is answered by the API, as a problem, with its strict policy."""
    answer = api.call("GET", path)
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["type"] == "urn:turnledger:problem:not-found"
    assert "default-src 'none'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_is_written_at_the_pages_addresses(api: Api, method: str) -> None:
    """The page is read; what changes something goes to the API."""
    answer = api.call(method, "/doubts")
    assert answer.status_code in (404, 405)
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("path", ADDRESSES)
def test_a_link_on_another_site_opens_the_page(api: Api, path: str) -> None:
    """Links are shared in chats and tickets; the document says nothing of the ledger."""
    assert api.call("GET", path, token="", headers=LINK).status_code == 200


@pytest.mark.parametrize(
    ("path", "changed"),
    [
        ("/assets/page.js", {}),
        ("/index.html", {}),
        ("/v1/runs", {}),
        ("/healthz", {}),
        ("/", {"sec-fetch-dest": "iframe"}),
        ("/", {"sec-fetch-dest": "empty"}),
        ("/", {"sec-fetch-dest": "script", "sec-fetch-mode": "no-cors"}),
        ("/", {"sec-fetch-mode": "cors"}),
        ("/", {"sec-fetch-mode": "no-cors"}),
        ("/", {"sec-fetch-site": "same-site", "sec-fetch-dest": "iframe"}),
        ("/", {"origin": "http://elsewhere.example"}),
        ("/", {"origin": "null"}),
    ],
)
def test_nothing_else_is_answered_to_another_site(
    api: Api, path: str, changed: dict[str, str]
) -> None:
    """Only a person who follows a link to a document: no frame, script, fetch or other path."""
    answer = api.call("GET", path, headers={**LINK, **changed})
    assert answer.status_code == 403
    assert answer.json()["type"] == "urn:turnledger:problem:origin-refused"


def test_a_form_of_another_site_opens_nothing(api: Api) -> None:
    """A POST to a document is not a link."""
    assert api.call("POST", "/", token="", headers=LINK).status_code == 403
