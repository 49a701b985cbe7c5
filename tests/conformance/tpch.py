"""Small random tables with the columns and types of TPC-H's, whose values meet the conditions of its queries.

Only names, types and the lists of words that queries mention are TPC-H's; rows are random, and no text of its is here.
"""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa

import bitlake

_MONEY = "DECIMAL(15, 2)"
TABLES: dict[str, dict[str, str]] = {
    "region": {"r_regionkey": "INT", "r_name": "CHAR(25)", "r_comment": "VARCHAR(152)"},
    "nation": {"n_nationkey": "INT", "n_name": "CHAR(25)", "n_regionkey": "INT", "n_comment": "VARCHAR(152)"},
    "supplier": {
        "s_suppkey": "INT",
        "s_name": "CHAR(25)",
        "s_address": "VARCHAR(40)",
        "s_nationkey": "INT",
        "s_phone": "CHAR(15)",
        "s_acctbal": _MONEY,
        "s_comment": "VARCHAR(101)",
    },
    "customer": {
        "c_custkey": "INT",
        "c_name": "VARCHAR(25)",
        "c_address": "VARCHAR(40)",
        "c_nationkey": "INT",
        "c_phone": "CHAR(15)",
        "c_acctbal": _MONEY,
        "c_mktsegment": "CHAR(10)",
        "c_comment": "VARCHAR(117)",
    },
    "part": {
        "p_partkey": "INT",
        "p_name": "VARCHAR(55)",
        "p_mfgr": "CHAR(25)",
        "p_brand": "CHAR(10)",
        "p_type": "VARCHAR(25)",
        "p_size": "INT",
        "p_container": "CHAR(10)",
        "p_retailprice": _MONEY,
        "p_comment": "VARCHAR(23)",
    },
    "partsupp": {
        "ps_partkey": "INT",
        "ps_suppkey": "INT",
        "ps_availqty": "INT",
        "ps_supplycost": _MONEY,
        "ps_comment": "VARCHAR(199)",
    },
    "orders": {
        "o_orderkey": "INT",
        "o_custkey": "INT",
        "o_orderstatus": "CHAR(1)",
        "o_totalprice": _MONEY,
        "o_orderdate": "DATE",
        "o_orderpriority": "CHAR(15)",
        "o_clerk": "CHAR(15)",
        "o_shippriority": "INT",
        "o_comment": "VARCHAR(79)",
    },
    "lineitem": {
        "l_orderkey": "INT",
        "l_partkey": "INT",
        "l_suppkey": "INT",
        "l_linenumber": "INT",
        "l_quantity": _MONEY,
        "l_extendedprice": _MONEY,
        "l_discount": _MONEY,
        "l_tax": _MONEY,
        "l_returnflag": "CHAR(1)",
        "l_linestatus": "CHAR(1)",
        "l_shipdate": "DATE",
        "l_commitdate": "DATE",
        "l_receiptdate": "DATE",
        "l_shipinstruct": "CHAR(25)",
        "l_shipmode": "CHAR(10)",
        "l_comment": "VARCHAR(44)",
    },
}
_REGIONS = ("AFRICA", "AMERICA", "ASIA", "EUROPE")
_NATIONS = ("BRAZIL", "CANADA", "FRANCE", "GERMANY", "INDIA", "JAPAN", "KENYA", "SAUDI ARABIA")
_WORDS: dict[str, tuple[str, ...]] = {
    "c_mktsegment": ("BUILDING", "MACHINERY"),
    "p_brand": ("Brand#12", "Brand#23", "Brand#34", "Brand#45"),
    "p_type": ("ECONOMY ANODIZED STEEL", "PROMO BURNISHED COPPER", "MEDIUM POLISHED TIN", "STANDARD BRASS"),
    "p_container": ("SM CASE", "SM BOX", "MED BOX", "MED BAG", "LG CASE", "LG PKG"),
    "p_name": ("forest green", "antique blue", "forest chiffon", "dark green"),
    "o_orderstatus": ("F", "O", "P"),
    "o_orderpriority": ("1-URGENT", "2-HIGH", "3-MEDIUM", "5-LOW"),
    "l_returnflag": ("R", "A", "N"),
    "l_linestatus": ("O", "F"),
    "l_shipinstruct": ("DELIVER IN PERSON", "NONE"),
    "l_shipmode": ("MAIL", "SHIP", "AIR", "AIR REG"),
    "o_comment": ("special packages requests", "plain words", "pending requests"),
    "s_comment": ("Customer had Complaints", "quiet", "Customer"),
}
_ROWS = {"region": 4, "nation": 8, "supplier": 12, "customer": 30, "part": 20, "partsupp": 80, "orders": 150}
_ROWS["lineitem"] = 900


def make_tables(lake: bitlake.Lake, seed: int = 3) -> None:
    """Create and fill the tables."""
    r = random.Random(seed)
    for name, columns in TABLES.items():
        count = _ROWS[name]
        made = {c: [_value(r, name, c, kind, i) for i in range(count)] for c, kind in columns.items()}
        if name == "lineitem":
            _like_orders(r, made)
        lake.sql(f"CREATE TABLE {name} ({', '.join(f'{c} {k}' for c, k in columns.items())})")
        lake.table(name).append(pa.table(made, schema=pa.schema([(c, _arrow(k)) for c, k in columns.items()])))


def _arrow(kind: str) -> pa.DataType:
    known = {"INT": pa.int32(), "DATE": pa.date32(), _MONEY: pa.decimal128(15, 2)}
    return known.get(kind, pa.string())


def _like_orders(r: random.Random, made: dict[str, list[Any]]) -> None:
    """Some orders with many lines of high quantity, as one of the queries looks for."""
    for i in range(40):
        made["l_orderkey"][i] = 1 + i % 4
        made["l_quantity"][i] = Decimal(r.randint(35, 50))


def _value(r: random.Random, table: str, column: str, kind: str, i: int) -> Any:
    base = column.split("_", 1)[1]
    keys = {"regionkey": 4, "nationkey": 8, "suppkey": 12, "custkey": 30, "partkey": 20, "orderkey": 150}
    if base in keys:
        own = {"region": "regionkey", "nation": "nationkey"}.get(table, {"part": "partkey"}.get(table, ""))
        first = base == own or (table, base) in (
            ("supplier", "suppkey"),
            ("customer", "custkey"),
            ("orders", "orderkey"),
        )
        return (
            i + 1
            if first
            else (i // 4 % 20 + 1 if (table, base) == ("partsupp", "partkey") else r.randint(1, keys[base]))
        )
    if base == "name" and table in ("region", "nation"):
        return _pad((_REGIONS if table == "region" else _NATIONS)[i], kind)
    if column in _WORDS:
        return _pad(r.choice(_WORDS[column]), kind)
    if base == "phone":
        return _pad(f"{r.choice((13, 17, 23, 31, 11, 29))}-{r.randint(100, 999)}", kind)
    if kind == "DATE":
        return dt.date(1992, 6, 1) + dt.timedelta(days=r.randint(0, 2300))
    if kind == _MONEY:
        return _money(r, base)
    if kind == "INT":
        return {"size": r.choice((3, 9, 14, 15, 23, 36, 45, 49, 1, 5)), "shippriority": 0}.get(base, r.randint(1, 99))
    return _pad(f"{base} {i}", kind)


def _money(r: random.Random, base: str) -> Decimal:
    match base:
        case "discount":
            return Decimal(r.randint(0, 10)).scaleb(-2)
        case "tax":
            return Decimal(r.randint(0, 8)).scaleb(-2)
        case "quantity":
            return Decimal(r.randint(1, 50))
        case "acctbal":
            return Decimal(r.randint(-99_999, 999_999)).scaleb(-2)
    return Decimal(r.randint(100, 9_999_999)).scaleb(-2)


def _pad(text: str, kind: str) -> str:
    """A text of type CHAR(n) filled up with spaces, as Spark stores it."""
    return text.ljust(int(kind[5:-1])) if kind.startswith("CHAR") else text
