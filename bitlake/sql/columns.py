"""Which columns a query can need of its tables: those it mentions, or all where a star or the like takes them unnamed.

Every identifier of the text counts, wherever it stands: too many columns cost a little, one too few breaks the query.
And since no table loses a column whose name is mentioned, every name resolves as it did before.
"""

from __future__ import annotations

import re

from sqlglot import Token, TokenType, exp

from bitlake.sql import scope
from bitlake.sql.edits import spliced

_WORD = re.compile(r"\w+")
_TEXT = (TokenType.STRING, TokenType.RAW_STRING, TokenType.HEX_STRING, TokenType.HINT)


class Mentions:
    """The identifiers of a text in lower case, or everything (``all``) where names are not in the text.

    Lower case also where names are compared as written: a column too many costs little.
    """

    def __init__(self, text: str, tokens: list[Token], quoted_patterns: bool = False) -> None:
        words: set[str] = set()
        self.all = False
        for at, token in enumerate(tokens):
            raw = text[token.start : token.end + 1]
            if token.token_type is TokenType.IDENTIFIER:
                words.add(token.text.lower())
                # With spark.sql.parser.quotedRegexColumnNames a quoted name is a pattern.
                self.all = self.all or (quoted_patterns and _WORD.fullmatch(token.text) is None)
            elif token.token_type not in _TEXT:
                words.update(_WORD.findall(raw.lower()))
                if raw.upper() == "IDENTIFIER" and at + 1 < len(tokens) and tokens[at + 1].text == "(":
                    self.all = True  # IDENTIFIER('a'): a name made of a string
        self.words = words

    @property
    def metadata(self) -> tuple[str, ...]:
        """The metadata columns that are mentioned."""
        return tuple(sorted(w for w in self.words if w.startswith("__paimon_")))


def without_metadata(text: str, tokens: list[Token], place: int, metadata: tuple[str, ...]) -> str:
    """A query in which the stars of one SELECT leave these metadata columns out: a star never means them.

    ``place`` is where the query's one table is named, in that SELECT.  It will have the columns, for they are named.
    """
    stars: dict[int, list[int]] = {}
    opened, home = [-1], -1
    for at, token in enumerate(tokens):
        if token.start == place:
            home = opened[-1]
        if token.token_type is TokenType.L_PAREN:
            opened.append(at)
        elif token.token_type is TokenType.R_PAREN and len(opened) > 1:
            opened.pop()
        elif token.token_type is TokenType.STAR and at > 0:
            before = text[tokens[at - 1].start : tokens[at - 1].end + 1].upper()
            after = text[tokens[at + 1].start : tokens[at + 1].end + 1].upper() if at + 1 < len(tokens) else ""
            if before in ("SELECT", "DISTINCT", "ALL", ",", ".") and after in ("FROM", ",", ""):
                stars.setdefault(opened[-1], []).append(token.end + 1)
    return spliced(text, [(end, end, f" EXCEPT ({', '.join(metadata)})") for end in stars.get(home, ())])


def unnamed_tables(tree: exp.Expr) -> set[int]:
    """The table nodes (by id) whose columns are needed without being named: stars, NATURAL, PIVOT, column aliases."""
    tables = [t for t in tree.find_all(exp.Table) if t.find_ancestor(exp.Hint) is None]
    brackets = {s: _bracketed(s) for s in tree.find_all(exp.Subquery)}
    of_select: dict[int, list[exp.Table]] = {}
    out: set[int] = set()
    for table in tables:
        select = table.find_ancestor(exp.Select)
        of_select.setdefault(id(select), []).append(table)
        if select is None or _renames(table):
            out.add(id(table))
    for bracket, inside in brackets.items():
        if _renames(bracket):
            out.update(map(id, inside))
    for node in tree.find_all(exp.Star, exp.Join, exp.Pivot, exp.QueryTransform):
        if isinstance(node, exp.Join) and not scope.is_natural(node):
            continue
        if isinstance(node, exp.Star) and isinstance(node.parent, exp.Count):
            continue
        if isinstance(node, exp.Star) and isinstance(node.parent, exp.Column) and node.parent.parts[:-1]:
            # q.* of a table of that name anywhere, or of a bracket; the columns of a derived table are named in it.
            name = node.parent.parts[-2].name.lower()
            named = [t for t in tables if name in (t.alias.lower(), t.name.lower())]
            opened = [inside for bracket, inside in brackets.items() if bracket.alias.lower() == name]
            found = [*named, *(t for inside in opened for t in inside)]
            out.update(map(id, found if named or opened else tables))  # else a struct, or not understood
            continue
        select = node.find_ancestor(exp.Select)
        out.update(id(t) for t in of_select.get(id(select), ()))
    return out


def _renames(source: exp.Expr) -> bool:
    """Whether an alias names columns too, by their position."""
    alias = source.args.get("alias")
    return alias is not None and not scope.only(alias, {"this"})


def _bracketed(bracket: exp.Subquery) -> list[exp.Table]:
    """The tables of a relation in brackets, without those inside of a query there."""
    outer = bracket.find_ancestor(exp.Select)
    return [t for t in bracket.find_all(exp.Table) if t.find_ancestor(exp.Select) is outer]
