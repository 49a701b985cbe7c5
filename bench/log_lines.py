"""Log lines as services write them: levels, hosts, threads, request ids, paths, durations and stack traces.

Lines are made by the column: arrays of parts are joined element-wise, so a gigabyte takes seconds.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_LEVELS = (("INFO", 0.80), ("DEBUG", 0.09), ("WARN", 0.07), ("ERROR", 0.04))
_SERVICES = ("checkout", "payments", "catalog", "search", "login", "shipping", "invoices", "recommender")
_CLASSES = tuple(
    f"com.shop.{service}.{part}"
    for service in _SERVICES
    for part in ("RequestFilter", "OrderController", "RetryingClient", "CacheLoader", "ConnectionPool", "Scheduler")
)
_PATHS = (
    "/api/v1/orders/{}",
    "/api/v1/orders/{}/items",
    "/api/v2/customers/{}/addresses",
    "/api/v2/products/{}?locale=de_DE&currency=EUR",
    "/static/img/products/{}/front-large.webp",
    "/internal/health?probe={}",
    "/api/v1/carts/{}/checkout",
    "/search?q=red+running+shoes&page={}",
)
_MESSAGES = (
    "request finished with status 200",
    "request finished with status 204 and no body",
    "cache miss, loading the value from the database",
    "acquired connection from pool, 17 of 64 in use",
    "retrying after connection reset by peer",
    "slow query, consider an index on the filtered column",
    "user session refreshed by token",
    "published event to topic orders-v3",
)
_FRAMES = (
    "\n\tat com.shop.checkout.OrderController.submit(OrderController.java:{})"
    "\n\tat com.shop.http.RequestFilter.doFilter(RequestFilter.java:{})"
    "\n\tat java.base/java.util.concurrent.ThreadPoolExecutor.runWorker(ThreadPoolExecutor.java:1136)"
    "\n\tat java.base/java.lang.Thread.run(Thread.java:833)"
)
ROWS_A_BATCH = 1 << 17


def log_lines(rows: int, seed: int = 17) -> Iterator[pa.StringArray]:
    """Yield about ``rows`` lines, 185 bytes each on average, in arrays of at most :data:`ROWS_A_BATCH`."""
    rng = np.random.default_rng(seed)
    for start in range(0, rows, ROWS_A_BATCH):
        yield _lines(rng, start, min(ROWS_A_BATCH, rows - start))


def _lines(rng: np.random.Generator, start: int, rows: int) -> pa.StringArray:
    levels = _pick(rng, [name for name, _ in _LEVELS], rows, [share for _, share in _LEVELS])
    micros = 1_780_000_000_000_000 + (start + np.arange(rows)) * 1_700 + rng.integers(0, 1_600, rows)
    stamps = pc.strftime(pa.array(micros).view(pa.timestamp("us")), "%Y-%m-%dT%H:%M:%S")
    numbers = rng.integers(1, 5_000_000, rows)
    paths = _filled(rng, _PATHS, numbers, rows)
    line = pc.binary_join_element_wise(
        stamps, levels,
        pc.binary_join_element_wise("host", _digits(rng.integers(0, 200, rows)), "", null_handling="replace"),
        pc.binary_join_element_wise("[http-nio-", _digits(rng.integers(0, 64, rows)), "]", ""),
        _pick(rng, list(_CLASSES), rows),
        pc.binary_join_element_wise("request_id=", _hex(rng, rows, 16), ""),
        _pick(rng, ["GET", "GET", "GET", "POST", "PUT", "DELETE"], rows), paths,
        _pick(rng, list(_MESSAGES), rows),
        pc.binary_join_element_wise("in ", _digits(rng.integers(1, 3_000, rows)), " ms", ""),
        " ",
    )  # fmt: skip
    failed = pc.equal(levels, "ERROR")
    trace = pc.binary_join_element_wise("\njava.lang.IllegalStateException: order ", _digits(numbers), " is closed", "")
    frames = _filled(rng, (_FRAMES,), rng.integers(20, 400, rows), rows)
    return pc.binary_join_element_wise(line, pc.if_else(failed, pc.binary_join_element_wise(trace, frames, ""), ""), "")


def _pick(rng: np.random.Generator, words: list[str], rows: int, shares: list[float] | None = None) -> pa.Array:
    return pa.array(words).take(pa.array(rng.choice(len(words), rows, p=shares)))


def _digits(numbers: np.ndarray) -> pa.Array:
    return pa.array(numbers).cast(pa.string())


def _hex(rng: np.random.Generator, rows: int, length: int) -> pa.Array:
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)[rng.integers(0, 16, rows * length)]
    return pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(length), rows, [None, pa.py_buffer(digits)]
    ).cast(pa.binary()).cast(pa.string())  # fmt: skip


def _filled(rng: np.random.Generator, templates: tuple[str, ...], numbers: np.ndarray, rows: int) -> pa.Array:
    chosen = _pick(rng, list(templates), rows)
    out, digits = chosen, _digits(numbers)
    # One array of all templates whose placeholders are replaced, template by template.
    for template in templates:
        parts = template.split("{}")
        pieces = [parts[0]]
        for part in parts[1:]:
            pieces += [digits, part]
        filled = pc.binary_join_element_wise(*pieces, "")
        out = pc.if_else(pc.equal(chosen, template), filled, out)
    return out
