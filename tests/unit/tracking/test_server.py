"""The token before MLflow's server; browser/test_served.py asks the running one."""

from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from difftransformer.tracking.server import REFUSED, require_token


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the path and the query that the application sees."""
    seen = f"{scope['path']} {scope['raw_path'].decode()} {scope['query_string'].decode()}"
    await PlainTextResponse(seen)(scope, receive, send)


client = TestClient(require_token(echo, "http://127.0.0.1:1/t-o_K"), follow_redirects=False)


def test_the_application_sees_paths_without_the_token() -> None:
    assert client.get("/t-o_K/").text == "/ / "
    assert client.get("/t-o_K/a/b%20c?d=e").text == "/a/b c /a/b%20c d=e"
    assert client.post("/t-o_K//a").text.startswith("//a")


def test_other_paths_are_refused() -> None:
    for path in ("/", "/a/b", "/t-o_k/", "/t-o_KK/", "/t-o_/", "//t-o_K/", "/a/../t-o_", "/é/"):
        refused = client.get(path)
        assert (refused.status_code, refused.text) == (403, REFUSED), path


def test_the_address_needs_no_slash_and_leads_to_the_reports() -> None:
    assert client.get("/t-o_K").headers["location"] == "/t-o_K/"
    result = client.get("/t-o_K/reports/tiny/table6.html")
    assert result.headers["location"] == "http://127.0.0.1:1/t-o_K/tiny/table6.html"
    assert client.get("/t-o_K/reportsx").text.startswith("/reportsx")
