r"""LIKE and RLIKE: the translation into RE2 against Python's `re`, what is refused, and what a hostile pattern costs.

`re` is a stranger to both Java and RE2. On the common ground (ASCII letters, classes, counts, groups, anchors) it must
agree; where Java differs from it (`$` and line ends, `.`, `\s`) the expected value is written out.
"""

from __future__ import annotations

import random
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.filters.patterns import PatternError, compile_like, compile_regex, like_parts, like_shape

ATOMS = [
    "a",
    "b",
    "c",
    "ab",
    ".",
    "[ab]",
    "[^a]",
    "[a-c]",
    r"\d",
    r"\w",
    r"\.",
    r"[\-x]",
    "1",
    "é",
    "(?:a|b)",
    "(ab|c)",
    "x",
]
COUNTS = ["", "", "", "*", "+", "?", "{2}", "{1,2}", "{0,1}", "*?", "+?", "??", "{1,2}?"]
ALPHABET = "abcx1.-é\n"


def random_pattern(chance: random.Random, depth: int = 0) -> str:
    """A pattern that Python and Java read the same way, as long as no line end stands in the text."""
    branches = []
    for _ in range(chance.choice([1, 1, 1, 2])):
        pieces = [chance.choice(ATOMS) for _ in range(chance.randint(1, 3))]
        if depth < 2 and chance.random() < 0.3:
            pieces.append(f"({random_pattern(chance, depth + 1)})")
        branches.append("".join(_counted(piece, chance.choice(COUNTS)) for piece in pieces))
    text = "|".join(branches)
    if depth == 0:
        text = chance.choice(["", "", "^"]) + text + chance.choice(["", "", r"\z"])
        text = chance.choice(["", "", "(?i)", "(?s)", "(?is)"]) + text
    return text


def _counted(piece: str, count: str) -> str:
    whole = len(piece) == 1 or piece[0] in "([" or (piece[0] == "\\" and len(piece) == 2)
    return (piece if whole or not count else f"(?:{piece})") + count


def as_python(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern.replace(r"\z", r"\Z"), re.ASCII)


def random_text(chance: random.Random, alphabet: str) -> str:
    return "".join(chance.choice(alphabet) for _ in range(chance.randint(0, 6)))


def test_translation_agrees_with_python() -> None:
    chance = random.Random(5)
    answers = []
    for _ in range(2_000):
        pattern = random_pattern(chance)
        test, python = compile_regex(pattern), as_python(pattern)
        for _ in range(8):
            text = random_text(chance, ALPHABET)
            expected = python.search(text) is not None
            assert test(text) is expected, (pattern, text)
            answers.append(expected)
    assert answers.count(True) > 2_000
    assert answers.count(False) > 2_000


def with_end(chance: random.Random) -> str:
    """A random pattern that ends in `$`."""
    flags = chance.choice(["", "(?i)", "(?s)"])
    return f"{flags}{chance.choice(['', '^'])}({random_pattern(chance, 1)})$"


def test_end_of_line_agrees_with_python_on_newlines() -> None:
    """Python's `$` knows only the newline as a final line end; on those texts it and Java agree."""
    chance = random.Random(6)
    answers = []
    for _ in range(1_000):
        pattern = with_end(chance)
        test, python = compile_regex(pattern), as_python(pattern)
        for _ in range(8):
            text = random_text(chance, ALPHABET) + chance.choice(["", "\n", "\n\n"])
            expected = python.search(text) is not None
            assert test(text) is expected, (pattern, text)
            answers.append(expected)
    assert answers.count(True) > 500
    assert answers.count(False) > 500


JAVA = [
    # pattern, text, found: as java.util.regex has it
    ("a$", "a\n", True),
    ("a$", "a\r\n", True),
    ("a$", "a\r", True),
    ("a$", "a\u0085", True),
    ("a$", "a\u2029", True),
    ("a$", "a\n\n", False),
    ("a$", "a\n\r", False),
    ("a$", "a\x0b", False),
    ("a\r$", "a\r\n", False),
    ("a\r\n$", "a\r\n", True),
    ("^$", "\r\n", True),
    ("(a|b$)", "b\n", True),
    ("(?:b|(?:a$))", "a\n", True),
    ("$", "", True),
    ("$", "x", True),
    (r"a\z", "a\n", False),
    (r"\Aa", "a", True),
    (r"\Aa", "ba", False),
    (".", "\n", False),
    (".", "\r", False),
    (".", "\u0085", False),
    (".", "\u2028", False),
    (".", "\x0b", True),
    (".", "\x1c", True),
    ("(?s).", "\n", True),
    ("(?s)^.$", "\n", True),
    ("^..$", "😀", False),
    ("^.$", "😀", True),
    ("^[^a]$", "😀", True),
    (r"\s", "\x0b", True),
    (r"\s", "\x1c", False),
    (r"\s", "\u00a0", False),
    (r"\S", "\u00a0", True),
    (r"\d", "٣", False),
    (r"\w", "é", False),
    (r"\W", "é", True),
    (r"[\s\d]", "5", True),
    (r"[^\w]", "é", True),
    (r"[\w-]", "-", True),
    ("(?i)ab", "aB", True),
    ("(?i)[^a]", "A", False),
    ("(?i)[A-C]", "b", True),
    ("(?i)é", "É", False),
    ("(?i)k", "\u212a", False),
    ("(?i)[Z-a]", "z", True),
    ("(?i)[Z-a]", "A", True),
    ("(?i)[Z-a]", "B", False),
    (r"(?i)\x41", "a", True),
    ("(?i)ß", "ẞ", False),
    ("a{2}", "aa", True),
    ("a{2,}", "a", False),
    ("^a{0,2}$", "aaa", False),
    ("}", "}", True),
    ("]", "]", True),
    ("a,b", "a,b", True),
    (r"\x{1F600}", "😀", True),
    (r"\u00e9", "é", True),
    (r"\t\n\r\f", "\t\n\r\f", True),
    (r"\#\ \-\_", "# -_", True),
    ("", "", True),
    ("(?i)", "x", True),
    ("()", "", True),
    ("(|a)b", "b", True),
    ("[a^]", "^", True),
    ("[.]", "x", False),
    (r"[\]]", "]", True),
    (r"[\\]", "\\", True),
    ("[a-]", "-", True),
    ("[-a]", "-", True),
    ("a^b", "a^b", False),
    ("-", "-", True),
]


@pytest.mark.parametrize(("pattern", "text", "found"), JAVA)
def test_meaning_is_javas(pattern: str, text: str, found: bool) -> None:
    assert compile_regex(pattern)(text) is found


REFUSED = [
    *(
        "(",
        ")",
        "a)",
        "[a",
        "[",
        "[]",
        "[]a]",
        "a**",
        "a*+",
        "a++",
        "a?+",
        "a{2}{3}",
        "*",
        "+a",
        "?",
        "{2}",
        "a{",
        "a{,2}",
    ),
    *("a{3,2}", "a{1001}", "(a{1000}){1000}", "^*", "$+", r"\z?", "a$b", "$$", "(a$)b", "(a$)*", "($|a)b", r"$|\z"),
    *(
        "(?=a)",
        "(?!a)",
        "(?<=a)b",
        "(?<!a)b",
        "(?>a)",
        "(?<n>a)",
        "(?P<n>a)",
        "(?i:a)",
        "a(?i)b",
        "(?m)a",
        "(?x)a",
        "(?u)a",
    ),
    *(
        r"(a)\1",
        r"\k<n>",
        r"\b",
        r"\B",
        r"\G",
        r"\Z",
        r"\R",
        r"\X",
        r"\h",
        r"\v",
        r"\e",
        r"\cA",
        r"\0",
        r"\012",
        r"\Qa\E",
    ),
    *(
        r"\p{L}",
        r"\P{L}",
        r"\pL",
        r"\N{DASH}",
        r"\é",
        "\\",
        r"\x",
        r"\x4",
        r"\x{}",
        r"\x{110000}",
        r"\x{D800}",
        r"\u12",
    ),
    *(
        r"\ud800",
        "[a&&b]",
        "[[a]]",
        "[a[b]",
        r"[\D]",
        r"[\z]",
        "[b-a]",
        r"[a-\d]",
        "[a-",
        "[a-c-e]",
        "[a--b]",
        "[\\",
        "a\bb",
    ),
    "(" * 41 + ")" * 41,
]


@pytest.mark.parametrize("pattern", REFUSED)
def test_what_java_and_re2_read_differently_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError) as caught:
        compile_regex(pattern)
    assert str(caught.value)


@given(st.text("ab$^.*+?{}()[]|\\-&2,:iszdwAzQpu<=!é\n", max_size=12))
def test_any_pattern_is_refused_or_served(pattern: str) -> None:
    try:
        test = compile_regex(pattern)
    except PatternError:
        return
    for text in ("", "a", "ab", "a\n", "b\r\n", "é", "{}2,"):
        assert isinstance(test(text), bool)


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(a|a)*$", "(a|aa)+$", "(.*a){20}$", "(?i)(a*)*b", "^(([a-z])+.)+[A-Z]([a-z])+$"]
)
def test_catastrophic_patterns_take_linear_time(pattern: str) -> None:
    test = compile_regex(pattern)
    started = time.perf_counter()
    test("a" * 100_000 + "!")
    assert time.perf_counter() - started < 2


def test_catastrophic_like_takes_linear_time() -> None:
    test = compile_like("%a" * 50 + "%b")
    started = time.perf_counter()
    assert test("a" * 100_000) is False
    assert time.perf_counter() - started < 2


# -- LIKE


def like_by_python(pattern: str, escape: str, text: str) -> bool:
    out, index = [], 0
    while index < len(pattern):
        if pattern[index] == escape:
            index += 1
            out.append(re.escape(pattern[index]))
        else:
            out.append({"%": ".*", "_": "."}.get(pattern[index]) or re.escape(pattern[index]))
        index += 1
    return re.fullmatch("".join(out), text, re.DOTALL) is not None


@given(
    st.lists(st.sampled_from(["a", "b", "%", "_", "!%", "!_", "!!", "é", "😀", "\n", ".", "*", "\\"]), max_size=7),
    st.lists(st.sampled_from(["a", "b", "%", "_", "!", "é", "😀", "\n", ".", "*", "\\"]), max_size=7),
)
def test_like_agrees_with_python(pieces: list[str], characters: list[str]) -> None:
    pattern, text = "".join(pieces), "".join(characters)
    assert compile_like(pattern, "!")(text) is like_by_python(pattern, "!", text)
    fitting = "".join({"%": "ab", "_": "b"}.get(piece, piece[-1]) for piece in pieces)
    assert compile_like(pattern, "!")(fitting) is True


@pytest.mark.parametrize(
    ("pattern", "shape"),
    [
        ("", ("exact", "")),
        ("ab", ("exact", "ab")),
        ("%", ("prefix", "")),
        ("%%", ("prefix", "")),
        ("ab%", ("prefix", "ab")),
        ("%ab", ("suffix", "ab")),
        ("%ab%", ("contains", "ab")),
        ("a%b", ("general", "a")),
        ("_", ("general", "")),
        ("50\\%", ("exact", "50%")),
        ("50\\%%", ("prefix", "50%")),
    ],
)
def test_shapes_of_like(pattern: str, shape: tuple[str, str]) -> None:
    assert like_shape(pattern) == shape


@pytest.mark.parametrize("pattern", ["a\\", "\\a", "a\\b%", "\\\\\\"])
def test_an_escape_that_escapes_nothing_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="must stand before"):
        like_parts(pattern)
