"""An HTTP server on loopback that accepts, refuses or hangs."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Receiver:
    """What came: path, headers, body. `statuses` are answered in turn, the last one for ever."""

    statuses: list[int] = field(default_factory=lambda: [200])
    answer: str = ""
    received: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)
    hang: threading.Event | None = None
    decode: Callable[[bytes], Any] = json.loads
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def receiving(receiver: Receiver) -> Iterator[Receiver]:
    """The server, as long as the context lasts."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.received.append((self.path, dict(self.headers), receiver.decode(body)))
            if receiver.hang is not None:
                receiver.hang.wait(20)
            statuses = receiver.statuses
            self.send_response(statuses.pop(0) if len(statuses) > 1 else statuses[0])
            if statuses[0] == 302:
                self.send_header("Location", "/elsewhere")
            self.end_headers()
            self.wfile.write(receiver.answer.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    receiver.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        if receiver.hang is not None:
            receiver.hang.set()
        server.shutdown()
        server.server_close()
        thread.join()
