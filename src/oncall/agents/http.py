"""Serve MCP over streamable HTTP, on this machine alone unless a token guards it."""

from __future__ import annotations

import hmac
import ipaddress
import socket
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings

from oncall.core.errors import UsageError

_Asgi = Callable[[MutableMapping[str, Any], Any, Any], Awaitable[None]]


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches the address."""
    try:
        return address == "localhost" or ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


async def serve_http(server: MCPServer[Any], address: str, port: int, token: str | None) -> None:
    """Serve until interrupted; port 0: any free one. Prints the address on stderr.

    Raises UsageError if others could reach it without a token, or it cannot be bound.
    """
    if token is None and not is_loopback(address):
        raise UsageError(f"--bind {address}: others can reach it; give --token-file FILE as well")
    listening = _listening(address, port)
    host = f"[{address}]" if ":" in address else address
    print(
        f"oncall mcp: http://{host}:{listening.getsockname()[1]}/mcp",
        file=sys.stderr,
        flush=True,
    )
    # A token that a browser does not have guards against rebinding where names are not known.
    guarded = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    security = None if is_loopback(address) else guarded
    app: _Asgi = server.streamable_http_app(
        host="127.0.0.1" if is_loopback(address) else address, transport_security=security
    )
    if token is not None:
        app = _with_token(app, token)
    configuration = uvicorn.Config(app, log_level="warning", lifespan="on")
    await uvicorn.Server(configuration).serve(sockets=[listening])


def _listening(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((address, port))
    except OSError as error:
        listening.close()
        raise UsageError(f"cannot listen on {address} port {port}: {error.strerror}") from None
    return listening


def _with_token(app: _Asgi, token: str) -> _Asgi:
    """The application, for requests with `Authorization: Bearer TOKEN`; 401 for all others."""
    expected = f"Bearer {token}".encode()

    async def guarded(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(given, expected):
                headers = [(b"www-authenticate", b"Bearer"), (b"content-type", b"text/plain")]
                await send({"type": "http.response.start", "status": 401, "headers": headers})
                await send({"type": "http.response.body", "body": b"oncall mcp: wrong token\n"})
                return
        await app(scope, receive, send)

    return guarded
