"""A server on loopback that speaks /v1/chat/completions by script, as far as a judge needs it."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any

Case = str
"""What the judge says of one answer: the last message of a request."""


@dataclass(frozen=True)
class Reply:
    """One HTTP reply: status, body (text as it is, else a completion with this content)."""

    content: str = ""
    status: int = 200
    body: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 0.0


FAITHFUL = Reply("All of it stands there.\nVerdict: faithful")
HALLUCINATED = Reply("It names another value.\n**Verdict: hallucinated**")
QUICK = {"retry-after": "0.05"}


@dataclass
class JudgingServer:
    """The running server.

    Attributes:
        script: Replies to the first requests, in the order of their arrival.
        otherwise: Reply to any later request, by its last message.
        requests: Bodies of the requests so far.
        keys: Their Authorization headers.
        moments: When they arrived.
    """

    script: list[Reply] = field(default_factory=list)
    otherwise: Callable[[Case], Reply] = lambda case: FAITHFUL
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    moments: list[float] = field(default_factory=list)
    url: str = ""

    def reply(self, body: dict[str, Any], key: str) -> Reply:
        with _LOCK:
            self.requests.append(body)
            self.keys.append(key)
            self.moments.append(time.monotonic())
            if self.script:
                return self.script.pop(0)
        return self.otherwise(body["messages"][-1]["content"])


_LOCK = Lock()


@contextmanager
def judging_server() -> Iterator[JudgingServer]:
    """Serve until the end of the block."""
    served = JudgingServer()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/chat/completions"
            length = int(self.headers["Content-Length"])
            body = json.loads(self.rfile.read(length))
            reply = served.reply(body, self.headers["Authorization"])
            time.sleep(reply.delay)
            text = completion(reply.content) if reply.body is None else reply.body
            try:
                self.send_response(reply.status)
                for name, value in {"Content-Type": "application/json", **reply.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text.encode())
            except (BrokenPipeError, ConnectionResetError):
                pass  # the client has given up, as it should

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    served.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def completion(content: str) -> str:
    """Body of a chat completion with one choice."""
    message = {"role": "assistant", "content": content}
    return json.dumps(
        {
            "id": "1",
            "object": "chat.completion",
            "created": 0,
            "model": "judge-served",
            "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
            "usage": {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107},
        }
    )
