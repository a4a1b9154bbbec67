"""What people bring along from SQL, Spark and Python, and what to write instead.

These tables are read only when a text is already known to be wrong: nothing here decides what is accepted. Keys are
words in capitals and symbols as they are spelled; in the help, `{x}` and `{y}` become what stands left and right of it.

Promised: advice that can be typed as it stands, as far as one token to each side shows what was meant.
"""

from __future__ import annotations

import contextlib
import difflib
import re
import unicodedata
from collections.abc import Iterable

from tocsin.filters.syntax import FUNCTIONS

__all__ = ["GLUED", "MISSING", "function", "infix", "leading", "near", "number", "odd_character", "shown", "symbol"]

_PARAMETER = "a filter has no parameters: write the value itself"
_PATH = "reach into the payload with dots: data.a.b"
_PLAIN = "a filter is the condition alone, without SELECT, FROM or WHERE"
_CLOCK = "a filter has no clock: write the moment itself, time > '2026-11-15T08:00:00Z'"
_BITS = "a filter has no operators for bits"
_CAST = "there are no casts: a number is written plainly (1, 2.5), a text in quotes"
_CHOICE = "write the alternatives as conditions: (a = 1 AND b = 2) OR (a <> 1 AND b = 3)"
_PIECES = "texts can be asked by startswith(x, 'a'), endswith(x, 'a'), contains(x, 'a'), LIKE and RLIKE"
_MOMENT = "write a moment with its zone: TIMESTAMP '2026-11-15T08:00:00Z'"
_IS_NULL = "write x IS NULL, or x IS NOT NULL"
_COUNT = "a filter sees one event at a time; it cannot gather values"

_INFIX = {
    "ILIKE": "for either case write lower({x}) LIKE {lower}",
    **dict.fromkeys(["MATCHES", "MATCH", "REGEXP_LIKE", "SIMILAR TO", "REGEX"], "write {x} RLIKE {y}"),
    "GLOB": "write {x} LIKE 'a%', or {x} RLIKE '^a'",
    **dict.fromkeys(["CONTAINS", "HAS", "INCLUDES"], "write contains({x}, {y}), for an array array_contains({x}, {y})"),
    **dict.fromkeys(["STARTSWITH", "STARTS", "BEGINS"], "write startswith({x}, 'a')"),
    **dict.fromkeys(["ENDSWITH", "ENDS"], "write endswith({x}, 'a')"),
    **dict.fromkeys(["EQ", "EQUALS"], "write {x} = {y}"),
    **dict.fromkeys(["NE", "NEQ"], "write {x} <> {y}"),
    "GT": "write {x} > {y}",
    **dict.fromkeys(["GE", "GTE"], "write {x} >= {y}"),
    "LT": "write {x} < {y}",
    **dict.fromkeys(["LE", "LTE"], "write {x} <= {y}"),
    "ISNULL": "write {x} IS NULL",
    **dict.fromkeys(["NOTNULL", "EXISTS"], "write {x} IS NOT NULL"),
    "DIV": "/ divides in doubles; for a whole quotient write ({x} - {x} % {y}) / {y}",
    "MOD": "write {x} % {y}",
    "XOR": "write (a AND NOT b) OR (NOT a AND b)",
    **dict.fromkeys(["WHERE", "FROM", "ORDER BY", "GROUP BY", "HAVING", "LIMIT", "UNION"], _PLAIN),
    **dict.fromkeys(["THEN", "ELSE", "IF"], _CHOICE),
    "AS": "a filter gives nothing a new name",
    "COLLATE": "texts compare by code point; for either case write lower({x})",
}
_LEADING = {
    **dict.fromkeys(["SELECT", "FROM", "WHERE", "HAVING", "FILTER"], _PLAIN),
    **dict.fromkeys(["CASE", "IF", "WHEN"], _CHOICE),
    **dict.fromkeys(["DATE", "TIME", "DATETIME"], _MOMENT),
    "INTERVAL": _CLOCK,
    "EXISTS": "write {y} IS NOT NULL",
}
_FUNCTIONS = {
    **dict.fromkeys(["NOW", "CURRENT_TIMESTAMP", "CURRENT_DATE", "TODAY", "DATEDIFF", "DATE_ADD", "DATE_SUB"], _CLOCK),
    **dict.fromkeys(["TO_DATE", "TO_TIMESTAMP"], _MOMENT),
    **dict.fromkeys(["COALESCE", "NVL", "IFNULL"], "ask for the missing value: x = 1 OR x IS NULL"),
    **dict.fromkeys(["ISNULL", "ISNOTNULL", "ISNAN"], _IS_NULL),
    **dict.fromkeys(["IIF", "NULLIF", "DECODE"], _CHOICE),
    **dict.fromkeys(["CAST", "TRY_CAST", "INT", "FLOAT", "DOUBLE", "STR", "STRING", "BOOL", "BOOLEAN"], _CAST),
    **dict.fromkeys(["COUNT", "SUM", "AVG", "MIN", "MAX"], _COUNT),
    **dict.fromkeys(["REGEXP_LIKE", "REGEXP_EXTRACT", "MATCHES"], "write x RLIKE 'pattern'"),
    "ILIKE": "for either case write lower(x) LIKE 'a%'",
    **dict.fromkeys(["SUBSTRING", "SUBSTR", "LEFT", "RIGHT", "TRIM", "CONCAT", "REPLACE", "INSTR", "LOCATE"], _PIECES),
    **dict.fromkeys(["GET_JSON_OBJECT", "JSON_EXTRACT", "JSON_VALUE", "GET"], _PATH),
    **dict.fromkeys(["ROUND", "FLOOR", "CEIL", "CEILING"], "ask for a range: x >= 1 AND x < 2"),
    **dict.fromkeys(
        ["ANY", "SOME"], "join conditions with OR, or write x IN (1, 2); for an array array_contains(a, 1)"
    ),
    "ALL": "join conditions with AND",
    "MOD": "write x % y",
    **dict.fromkeys(["POW", "POWER"], "write a product: x * x"),
    **dict.fromkeys(["SIZE", "ARRAY_SIZE", "CARDINALITY"], "length(x) is of a text; an array has array_contains(a, 1)"),
    "ARRAY_POSITION": "write array_contains(a, 1)",
    "LEN": "write length(x)",
    "XPATH": "write xpath_string(data, '//a') = 'x', or xpath_boolean(data, '//a = \"x\"') for any of several",
}
_SYMBOLS = {
    ";": "a filter is one condition; join conditions with AND or OR",
    "<=>": "use `=`, with IS NULL where a missing value is meant",
    "||": "for a choice write OR; texts cannot be joined in a filter",
    "&&": "write AND",
    "::": _CAST,
    "[": f"{_PATH}; ask an array with array_contains(data.a, value)",
    "]": "brackets are round in a filter: ( )",
    "}": "brackets are round in a filter: ( )",
    **dict.fromkeys(["?", "@", "$"], _PARAMETER),
    **dict.fromkeys(["->", "->>", ":", "{"], _PATH),
    "=>": "write >= for at least",
    **dict.fromkeys(["~", "~*", "!~"], "write x RLIKE 'pattern', or x NOT RLIKE 'pattern'"),
    "^": "there is no power and no exclusive or; write a product: x * x",
    "&": f"write AND; {_BITS}",
    "|": f"write OR; {_BITS}",
    "#": "a comment begins with --",
    "\\": "a backslash stands only inside quotes",
}
GLUED = {
    "===": "write =",
    "!==": "write <>",
    "=<": "write <=",
    "=!": "write <>",
    "//": "/ divides in doubles; a comment begins with --",
    "**": "there is no power: write a product, x * x",
    "<<": _BITS,
    ">>": _BITS,
}
"""Operators of other languages that arrive here as two of ours."""

MISSING = {
    **dict.fromkeys(["NONE", "NIL", "MISSING", "UNDEFINED", "NAN"], "write {x} IS NULL for a missing value"),
    "EMPTY": "write {x} = '', or {x} IS NULL",
    "UNKNOWN": "write (…) IS NOT TRUE AND (…) IS NOT FALSE",
    "DISTINCT": "write {x} = … or {x} <> …, with IS NULL where a missing value is meant",
}
"""Words people write behind IS."""

_CHARACTERS = {
    "≤": "<=",
    "≥": ">=",
    "≠": "<>",
    "−": "-",
    "–": "-",
    "×": "*",
    "÷": "/",
    "∧": "AND",
    "∨": "OR",
    "¬": "NOT",
}
_QUOTES = "‘’‚“”„«»′″´"
_DATE = re.compile(r"""['"](\d{4}-\d\d-\d\d)['"]\Z""")
_BASES = {"x": (16, "hexadecimal"), "b": (2, "binary"), "o": (8, "octal")}
_UNIT = re.compile(r"(\d+(?:\.\d+)?)[A-Za-z%°µ]+\Z")


def shown(text: str, most: int = 40) -> str:
    """Return a piece of a filter as a message may show it: not too long."""
    return text if len(text) <= most else text[: most - 1] + "…"


def infix(word: str, x: str, y: str) -> str | None:
    """Return help for a word that stands where an operator belongs, between `x` and `y`."""
    help = _INFIX.get(word)
    return None if help is None else help.format(x=x, y=y, lower=y.lower())


def leading(word: str, spelled: str, y: str) -> tuple[str, str] | None:
    """Return message and help for a word that opens something other than a filter; `y` is what follows it."""
    if word == "TIMESTAMP":
        return f"{spelled} is followed by a text in quotes", _MOMENT
    if word == "DATE" and (date := _DATE.match(y)):
        help = f"write the moment the day begins, with its zone: TIMESTAMP '{date[1]}T00:00:00Z'"
    elif (found := _LEADING.get(word)) is not None:
        help = found.format(y=y)
    else:
        return None
    return f"{spelled!r} is not part of the filter language", help


def function(name: str) -> str:
    """Return help for a function that does not exist."""
    if help := _FUNCTIONS.get(name.upper()):
        return help
    likely = near(name.lower(), FUNCTIONS)
    return f"did you mean {likely}?" if likely else f"there are {', '.join(sorted(FUNCTIONS))}"


def near(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the known word that `word` is most likely a slip for: the same in other letters, else the most alike."""
    names = list(known)
    same = [name for name in names if name.casefold() == word.casefold()]
    return next(iter(same or difflib.get_close_matches(word, names, n=1, cutoff=cutoff)), None)


def symbol(spelled: str, before: str, behind: str) -> str:
    """Return help for a symbol outside the language; `before` and `behind` are the words beside it, or empty."""
    if spelled == "~" and not before:
        return _BITS
    if spelled in ("[", "{") and before.upper() == "IN":
        return "write the list in round brackets: x IN (1, 2)"
    if spelled == "$" and behind == ".":
        return "write the path alone: data.a.b"
    if spelled in ("{", ":") and not (before[-1:].isalnum() or before[-1:] in ("_", "`")):
        return _PARAMETER
    if spelled == ";" and not behind:
        return "take the semicolon away"
    return _SYMBOLS.get(spelled, "see docs/FILTERS.md for what is")


def number(spelled: str) -> tuple[str, str]:
    """Return message and help for a word that begins with a digit and is no number."""
    message = f"{shown(spelled)!r} is neither a number nor a name"
    base, name = _BASES.get(spelled[1:2].lower(), (0, "")) if spelled[0] == "0" else (0, "")
    if base and len(spelled) <= 40:
        with contextlib.suppress(ValueError):
            return f"{spelled!r} is {name}", f"write the number in decimal: {int(spelled[2:], base)}"
    plain = spelled.replace("_", "")
    if plain.isdigit():
        return message, f"write the number without separators: {shown(plain)}"
    quoted = f"quote an odd name with back-ticks: `{shown(spelled)}`"
    if not base and (unit := _UNIT.match(spelled)):
        return message, f"write the number without its unit: {shown(unit[1])}; {quoted}"
    return message, f"{quoted}, a text with quotes: '{shown(spelled)}'"


def odd_character(spelled: str) -> tuple[int, str, str] | None:
    """Find a character that only looks like one of ours: its place in `spelled`, message and help."""
    for place, character in enumerate(spelled):
        if character in _CHARACTERS:
            return place, f"{character!r} is not part of the filter language", f"write {_CHARACTERS[character]}"
        if character in _QUOTES:
            return place, f"{character} is not a straight quote", "write a text in straight quotes: 'a'"
        if unicodedata.category(character) == "Cf":
            return place, f"an invisible character (U+{ord(character):04X}) stands here", "delete it"
    return None
