"""A real S3 server process on loopback (moto) with one bucket, and what a test needs to talk to it.

    python tests/s3_server.py        prints its port, then serves until it is killed

moto looks whether an object is there and then writes it, from many threads; S3 does both in one step.  So one lock is
held around every request that changes anything: conditional creates are then atomic, as S3 promises.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

BUCKET = "lake"
KEY, SECRET = "AKIDTESTONLY", "test/secret+only"
READS = ("GET", "HEAD")


def options(endpoint: str) -> dict[str, str]:
    """Storage options of the test's server."""
    return {
        "s3.endpoint": endpoint,
        "s3.access-key": KEY,
        "s3.secret-key": SECRET,
        "s3.path.style.access": "true",
        "region": "us-east-1",
    }


@contextmanager
def running() -> Iterator[str]:
    """The endpoint of a server that runs as long as the block."""
    with subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("port "), f"the S3 server did not start: {line!r}"
            yield f"http://127.0.0.1:{int(line.split()[1])}"
        finally:
            process.kill()


def main() -> None:
    import logging

    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    inner: Any = DomainDispatcherApplication(create_backend_app)
    lock = threading.Lock()

    def app(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] in READS:
            return list(inner(environ, start))
        with lock:
            return list(inner(environ, start))

    from moto.s3.models import s3_backends

    s3_backends["123456789012"]["aws"].create_bucket(BUCKET, "us-east-1")
    server = make_server("127.0.0.1", 0, app, threaded=True)
    print(f"port {server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
