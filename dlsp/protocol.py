"""pygls' protocol with four of its habits corrected; nothing about completion.

Custom messages keep their parameters as plain dicts (pygls makes named tuples, which rename keys
such as `from`), a request that cannot be read is answered, one that comes before `initialize` or
after `shutdown` is refused as LSP wants it, and handled notifications are let go of (pygls 2.1.1
keeps one future for each, forever).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException, JsonRpcInvalidRequest, JsonRpcServerNotInitialized
from pygls.protocol import (
    JsonRPCNotification,
    JsonRPCRequestMessage,
    JsonRPCResponseMessage,
    LanguageServerProtocol,
    default_converter,
)

if TYPE_CHECKING:
    from cattrs import Converter


def plain_converter() -> Converter:
    """pygls' converter, with the payload of untyped messages left as parsed JSON."""
    converter: Converter = default_converter()  # type: ignore[no-untyped-call]
    for kind in (JsonRPCNotification, JsonRPCRequestMessage, JsonRPCResponseMessage):
        converter.register_structure_hook(kind, _as_parsed)
    return converter


def _as_parsed(message: dict[str, Any], kind: type[Any]) -> Any:
    names = ("id", "method", "jsonrpc", "params", "result")
    wanted = [name for name in names if name in kind.__annotations__]
    return kind(**{name: message.get(name) for name in wanted})


class Protocol(LanguageServerProtocol):
    """The language server's side of the wire."""

    def structure_message(self, data: dict[str, Any]) -> Any:
        """Parse one message; an unreadable request is answered before the error goes on."""
        try:
            return super().structure_message(data)
        except JsonRpcException as error:
            if "id" in data and "method" in data:
                self._send_response(data["id"], error=error.to_response_error())
            raise

    def handle_message(self, message: Any) -> None:
        """Act on one message that comes between `initialize` and `shutdown`; else refuse a request
        and drop a notification."""
        method = getattr(message, "method", None)
        if method not in (None, lsp.EXIT) and self._shutdown:
            refusal: JsonRpcException = JsonRpcInvalidRequest(f"{method} after shutdown")
        elif method not in (None, lsp.EXIT, lsp.INITIALIZE) and self._workspace is None:
            refusal = JsonRpcServerNotInitialized(f"{method} before initialize")
        else:
            super().handle_message(message)
            return
        if hasattr(message, "id"):
            self._send_response(message.id, error=refusal.to_response_error())

    def _execute_handler(
        self,
        msg_id: str | int,
        handler: Any,
        callback: Any,
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
    ) -> None:
        super()._execute_handler(msg_id, handler, callback, args, kwargs)
        future = self._request_futures.get(msg_id)
        if future is not None and future.done():
            self._request_futures.pop(msg_id, None)

    def send_notification(self, method: str, params: dict[str, Any]) -> None:
        """Notify the client of something LSP has no message for."""
        self.notify(method, params)
