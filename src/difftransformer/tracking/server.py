"""MLflow's server below a secret path, run by `difftransformer ui` in a process of its own.

All users of the machine can connect to a port on loopback, and MLflow allows every client to delete
runs. So each path begins with a secret token, and all other paths are refused. A path is safer than
a cookie, which browsers send to every port of a host. MLflow's proxy for artifacts, which accepts
uploads, is off; artifacts are read from disk.
"""

import hmac
import os
import socket
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import quote

from difftransformer.errors import in_one_line

REPORTS_VARIABLE = "_DIFFTRANSFORMER_UI_REPORTS"
"""Environment variable with the address of the reports; the address ends with the token.

Unlike a command line, the environment of a process is hidden from other users.
"""
REFUSED = "Open the address that `make ui` printed; it has a token that keeps other users out.\n"
_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_App = Callable[[_Scope, _Receive, _Send], Awaitable[None]]


def require_token(app: _App, reports: str) -> _App:
    """Return an ASGI application that serves ``app`` below ``/TOKEN/`` and refuses other paths.

    Args:
        app: The application to serve. Its links are relative, and its paths do not have the token.
        reports: Address of the reports, which ends with the token; ``/TOKEN/reports/`` redirects to
            it.
    """
    from starlette.responses import PlainTextResponse, RedirectResponse

    token = reports.rpartition("/")[2]

    async def guarded(scope: _Scope, receive: _Receive, send: _Send) -> None:
        if scope["type"] == "lifespan":
            return await app(scope, receive, send)
        first, slash, path = scope["path"].removeprefix("/").partition("/")
        if not hmac.compare_digest(first.encode(), token.encode()):
            refused = PlainTextResponse(REFUSED, 403)
            return await refused(scope, receive, send)
        if not slash:
            return await RedirectResponse(f"/{token}/")(scope, receive, send)
        if path.startswith("reports/"):
            page = path.removeprefix("reports")
            return await RedirectResponse(reports + quote(page))(scope, receive, send)
        below = {"path": f"/{path}", "raw_path": quote(f"/{path}").encode()}
        return await app({**scope, **below}, receive, send)

    return guarded


def main(listening: int) -> None:
    """Serve MLflow with the store at MLFLOW_BACKEND_STORE_URI on a socket until SIGTERM.

    Args:
        listening: File descriptor of the socket, which the parent process has bound.
    """
    import uvicorn
    from mlflow.server.constants import ARTIFACT_ROOT_ENV_VAR, BACKEND_STORE_URI_ENV_VAR
    from mlflow.server.fastapi_app import app
    from mlflow.server.handlers import initialize_backend_stores

    uri, root = os.environ["MLFLOW_BACKEND_STORE_URI"], os.environ["MLFLOW_DEFAULT_ARTIFACT_ROOT"]
    os.environ |= {BACKEND_STORE_URI_ENV_VAR: uri, ARTIFACT_ROOT_ENV_VAR: root}
    try:
        initialize_backend_stores(uri, uri, root)
    except Exception as error:  # MLflow raises many kinds
        sys.exit(f"error: MLflow cannot open its store: {in_one_line(error)}")
    guarded: Any = require_token(app, os.environ[REPORTS_VARIABLE])
    config = uvicorn.Config(guarded, log_level="warning", access_log=False)
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=listening)])


if __name__ == "__main__":
    main(int(sys.argv[1]))
