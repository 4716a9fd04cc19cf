"""An ASGI application on a socket, in this thread or beside it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

from rlinf_cli.api import UsageError


def serve_app(app: Any, host: str, port: int, ready: Callable[[str], None], wait: bool = True) -> Callable[[], None]:
    """Serve until the process is interrupted or, without `wait`, until what is returned is called. `ready` is told the address
    (`http://HOST:PORT`) once it listens. Raises UsageError where the port cannot be had."""
    import uvicorn

    try:
        listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=2048)
    except OSError as error:
        raise UsageError(f"cannot listen on {host}, port {port}: {error.strerror}; choose another with --port, 0 for any that is "
                         "free") from error
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off"))
    ready(f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}")
    if wait:
        server.run(sockets=[listener])
        return lambda: None
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="rlinf-service", daemon=True)
    thread.start()

    def stop() -> None:
        server.should_exit = True
        thread.join()
        listener.close()

    return stop
