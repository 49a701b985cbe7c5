"""Where a table's data files are, and where new ones go: ``data-file.path-directory`` and ``data-file.external-paths``.

In the table's folder: ``<table>/[<path-directory>/]<partition>/bucket-<n>/<name>``.  With external paths the same below
one of these, and the manifest entry holds the whole path.  Which one a new file takes depends on its name alone, so
that every process finds the same: the writer's id chooses where to begin, the file's number goes on from there.

Source: Paimon's FileStorePathFactory, ExternalPathProvider and its kinds.
"""

from __future__ import annotations

import re
import zlib
from itertools import accumulate

from bitlake.errors import InvalidRequest
from bitlake.metadata import options as opt
from bitlake.metadata.paths import TablePaths
from bitlake.metadata.schema import TableSchema

_NUMBERED = re.compile(r"^(.*?)(\d{1,9})?(\.[^-]*)?$", re.DOTALL)
_HASH_BITS, _DIRECTORY, _DEPTH = 20, 4, 3


class DataPaths:
    """Forms the paths of a table's data files."""

    def __init__(self, paths: TablePaths, schema: TableSchema) -> None:
        options = schema.opts
        self._paths = paths
        self._directory = options.of(opt.DATA_FILE_DIRECTORY)
        self._strategy = options.of(opt.EXTERNAL_PATHS_STRATEGY)
        self._roots: tuple[str, ...] = ()
        if self._strategy != "none" and options.of(opt.EXTERNAL_PATHS):
            self._roots = external_roots(options)
        weights = options.of(opt.EXTERNAL_PATHS_WEIGHTS) if self._strategy == "weight-robin" else None
        self._weights = None if weights is None or len(self._roots) < 2 else weights

    @property
    def is_external(self) -> bool:
        """Whether new files go to external paths."""
        return bool(self._roots)

    def folder(self, partition_path: str, bucket: int) -> str:
        """The folder of a bucket in the table."""
        return self._paths.bucket_dir(partition_path, bucket, self._directory)

    def new(self, partition_path: str, bucket: int, name: str) -> tuple[str, str | None]:
        """The path of a new file, and what its manifest entry holds of it: the same if it is external, else None.

        Raises :class:`InvalidRequest` for an external path that is not allowed.
        """
        if not self._roots:
            return f"{self.folder(partition_path, bucket)}/{name}", None
        below = self._paths.bucket_dir(partition_path, bucket, self._directory)[len(self._paths.root) :]
        if self._strategy == "entropy-inject":
            below = f"{below}/{_entropy(name)}"
        path = self._paths.external(f"{self._root(name)}{below}/{name}")
        return path, path

    def _root(self, name: str) -> str:
        numbered = _NUMBERED.match(name)
        stem, number = (name, None) if numbered is None else numbered.group(1, 2)
        if self._weights is not None:
            ends = list(accumulate(self._weights))
            at = zlib.crc32(name.encode()) * ends[-1] >> 32
            return next(root for root, end in zip(self._roots, ends, strict=True) if at < end)
        return self._roots[(zlib.crc32(stem.encode()) + int(number or 0)) % len(self._roots)]


def external_roots(options: opt.Options) -> tuple[str, ...]:
    """The roots that the strategy may choose from; raises :class:`InvalidRequest` where Paimon refuses the options."""
    strategy = options.of(opt.EXTERNAL_PATHS_STRATEGY)
    roots = options.of(opt.EXTERNAL_PATHS) or ()
    name = opt.EXTERNAL_PATHS_STRATEGY.name
    if strategy == "specific-fs":
        scheme = options.of(opt.EXTERNAL_PATHS_FS)
        if scheme is None:
            raise InvalidRequest(f"option '{name}' = 'specific-fs' needs '{opt.EXTERNAL_PATHS_FS.name}', such as 's3'")
        roots = tuple(r for r in roots if r.partition(":")[0].lower() == scheme.lower())
        if not roots:
            raise InvalidRequest(
                f"option '{opt.EXTERNAL_PATHS.name}' has no path of the scheme '{scheme}', which "
                f"'{opt.EXTERNAL_PATHS_FS.name}' asks for"
            )
    weights = options.of(opt.EXTERNAL_PATHS_WEIGHTS)
    if strategy == "weight-robin" and weights is not None and len(roots) > 1 and len(weights) != len(roots):
        raise InvalidRequest(
            f"option '{opt.EXTERNAL_PATHS_WEIGHTS.name}' has {len(weights)} weights for {len(roots)} paths"
        )
    return roots


def _entropy(name: str) -> str:
    """The folders that spread files over an object store: bits of the name's hash, ``0110/1011/0001/10011010``."""
    bits = f"{_murmur3(name.encode()) | 0x80000000:b}"[-_HASH_BITS:]
    cut = _DIRECTORY * _DEPTH
    return "/".join([*(bits[i : i + _DIRECTORY] for i in range(0, cut, _DIRECTORY)), bits[cut:]])


def _murmur3(data: bytes) -> int:
    """Murmur3-32 with seed 0, unsigned: the reference's, whose tail differs from that of the codecs'."""
    h = 0
    for i in range(0, len(data), 4):
        k = int.from_bytes(data[i : i + 4], "little") * 0xCC9E2D51 & 0xFFFFFFFF
        h ^= ((k << 15 | k >> 17) & 0xFFFFFFFF) * 0x1B873593 & 0xFFFFFFFF
        if i + 4 <= len(data):
            h = ((h << 13 | h >> 19) & 0xFFFFFFFF) * 5 + 0xE6546B64 & 0xFFFFFFFF
    h ^= len(data)
    h = (h ^ h >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    h = (h ^ h >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return h ^ h >> 16
