"""Places outside of a table's folder: which spellings are one place, and which roots hold a path."""

from __future__ import annotations

import pickle

import pytest

from bitlake.errors import InvalidRequest
from bitlake.metadata.option_types import parse_directory, parse_external_paths, parse_file_prefix
from bitlake.metadata.paths import DeferredRoots, Location, TablePaths, allowing_root, check_roots, refusal


@pytest.mark.parametrize(
    ("root", "path", "allowed"),
    [
        ("/data/ext", "/data/ext/a/b.parquet", True),
        ("/data/ext", "file:/data/ext/b", True),
        ("file:///data/ext/", "/data/ext/b", True),
        ("file://localhost/data//ext", "file:/data/./ext/b", True),
        ("/data/ext", "/data/extra/b", False),
        ("/data/ext", "/data/ext/../b", False),
        ("/data/ext", "data/ext/b", False),
        ("/data/ext", "file://host/data/ext/b", False),
        ("/data/ext", "file:data/ext/b", False),
        ("/data/ext", "/data/ext\0/b", False),
        ("s3://bucket/ext", "s3a://bucket/ext/b", True),
        ("s3://bucket", "s3://bucket/b", True),
        ("s3://bucket/ext", "s3://bucket/extra", False),
        ("s3://bucket/ext", "s3://other/ext/b", False),
        ("s3://bucket/ext", "gs://bucket/ext/b", False),
        ("hdfs://nn:8020/ext", "hdfs://nn:8020/ext/b", True),
        ("hdfs://nn:8020/ext", "hdfs://nn:9000/ext/b", False),
        ("/", "/anything", True),
    ],
)
def test_which_paths_a_root_allows(root: str, path: str, allowed: bool) -> None:
    assert (allowing_root(path, check_roots([root])) is not None) is allowed


@pytest.mark.parametrize("root", ["", "data/ext", "/a/../b", "file:relative", "s3:", "/a\0"])
def test_what_is_no_root(root: str) -> None:
    with pytest.raises(InvalidRequest, match="absolute path or URI"):
        check_roots([root])
    with pytest.raises(ValueError):
        Location.of(root)


def test_a_place_is_scheme_store_and_names() -> None:
    place = Location.of("S3A://Bucket/a//b/./c")
    assert (place.scheme, place.authority, place.segments) == ("s3", "bucket", ("a", "b", "c"))
    assert place.store == ("s3", "bucket") and Location.of("s3://bucket").segments == ()
    assert Location.of("hdfs:/a") == Location("hdfs", "", ("a",))
    assert Location.of("file://localhost") == Location("file", "", ())
    for bad in ("a\\b", "/a\\b", "file:///a\\b", "s3://b/\0", "", "a", "s3:a", "/..", "s3://b/../c"):
        with pytest.raises(ValueError):
            Location.of(bad)
    inner, outer = Location.of("/a/b"), Location.of("/a")
    assert outer.holds(inner) and outer.holds(outer) and not inner.holds(outer)


def test_the_first_root_that_holds_a_path() -> None:
    roots = ["relative", "/b", "/a", "/a/b"]
    assert allowing_root("/a/b/c", roots) == "/a" and allowing_root("/c", roots) is None
    assert allowing_root("a/b", roots) is None
    assert check_roots(["/a/", "/a", "s3://b//", "/"]) == ("/a", "s3://b", "/")


def test_deferred_roots_are_asked_for_once_and_equal_what_they_hold() -> None:
    asked = []

    def ask() -> list[str]:
        asked.append(1)
        return ["/a/", "/b"]

    roots = DeferredRoots(ask)
    assert check_roots(roots) is roots and roots == roots and not asked and repr(roots) == "DeferredRoots()"
    assert roots == ("/a", "/b") and roots == DeferredRoots(lambda: ["/a", "/b"]) and len(asked) == 1
    assert roots != ("/a",) and roots != ["/a", "/b"] and roots != "/a" and roots != DeferredRoots(list)
    assert (roots[0], roots[1:], len(roots), list(roots)) == ("/a", ("/b",), 2, ["/a", "/b"])
    assert hash(roots) == hash(("/a", "/b")) and pickle.loads(pickle.dumps(roots)) == ("/a", "/b")
    assert len(asked) == 1
    with pytest.raises(InvalidRequest, match="invalid external path 'a'"):
        len(DeferredRoots(lambda: ["a"]))


def test_folders_and_prefixes_of_options() -> None:
    assert [parse_directory(t) for t in ("data", " a//b/ ", "./a/./b")] == ["data", "a/b", "a/b"]
    assert parse_directory("") is None and parse_directory(" . ") is None
    for bad in ("/data", "..", "a/../b", "a:b", "a\\b", "a\0"):
        with pytest.raises(ValueError):
            parse_directory(bad)
    assert parse_external_paths("s3://a/b/ , file:///c") == ("s3://a/b", "file:///c")
    for bad in ("/a", "s3://a,", "a", "s3://a/../b"):
        with pytest.raises(ValueError):
            parse_external_paths(bad)
    assert parse_file_prefix("data-") == "data-" and parse_file_prefix("") == ""
    for bad in ("a/", "a\\", "\0"):
        with pytest.raises(ValueError):
            parse_file_prefix(bad)


def test_an_external_path_is_a_file_in_the_table_or_below_a_root() -> None:
    paths = TablePaths("/w/t", external_roots=("s3://b/ext",))
    for path in ("/w/t/a/f", "s3://b/ext/f", "file:/w/t/f"):
        assert paths.external(path) == path
    for path in ("/w/t/", "s3://b/ext/", "/w/t/..", "/w/u/f", "s3://b/other/f", "f", ""):
        with pytest.raises(InvalidRequest, match="below no allowed external path"):
            paths.external(path, "the index")
    assert "external_paths=['s3://b']" in str(refusal("/w/t", "s3://b/f", "the file"))
    assert "external_paths=['f']" in str(refusal("/w/t", "f", "the file")), "without a folder, the path itself"
