"""RE2's syntax, against Python's where both mean the same."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tools.emulators.workflows.errors import WorkflowError
from tools.emulators.workflows.library.regex import compiled

SAME = [
    *("abc", "a.c", "^a", "c$", "a*", "a+b?", "(ab)+", "[a-c]+", "[^a-c]", r"\d+", r"\w+\s\w+", r"\bfoo\b", r"\Bo"),
    *(
        "a{2}",
        "a{1,2}b",
        "a{2,}",
        r"\x61",
        r"[\d_-]+",
        "(?i)ABC",
        "(?s)a.c",
        "(?m)^b",
        "(?:a|b)c",
        r"[]a]",
        r"a\.b",
    ),
    *(r"(?P<name>a)b", "(?i:A)b", r"\Aab", r"[\w.]+@[\w.]+", r"[^\n]+", r"\t", "a|", "é+", r"[а-я]+"),
]
TEXTS = ["", "abc", "aabbc", "foo bar", "a\nc\nb", "ABC", "x{,2}", "a.b@c.d", "éé ая", "a12_-]", "\t", "foo foobar"]


@pytest.mark.parametrize("pattern", SAME)
def test_matches_as_python_does(pattern: str) -> None:
    for text in TEXTS:
        expected = [match.span() for match in re.finditer(pattern, text, re.ASCII)]
        found = compiled(pattern).find_all(text)
        # An empty match right behind another counts in Python and not in RE2.
        ends = {end for start, end in expected if end > start}
        assert found == [(start, end) for start, end in expected if end > start or start not in ends]


@given(st.text("ab*+?|().", max_size=8), st.text("ab", max_size=6))
@settings(max_examples=300, deadline=None)
def test_whether_anything_matches_never_depends_on_which_match_is_taken(pattern: str, text: str) -> None:
    assume("(?)" not in pattern)  # flags that are none: nothing to RE2, an error to Python
    try:
        mine = compiled(pattern)
    except WorkflowError:
        return
    assert (mine.search(text, 0) is not None) == (re.search(pattern, text) is not None)


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("a|ab|abc", "abcd", [(0, 3)]),
        ("(a?)(ab)?", "ab", [(0, 2)]),
        ("a*?", "aa", [(0, 2)]),
        ("(?U)a+", "aa", [(0, 2)]),
        ("a*", "baac", [(0, 0), (1, 3), (4, 4)]),
        (r"\z", "ab\n", [(3, 3)]),
        ("b$", "ab\n", []),
        ("[[:alpha:]]+", "ab1é", [(0, 2)]),
        ("[[:^digit:]]+", "1ab2", [(1, 3)]),
        (r"\pL+", "1äb2", [(1, 3)]),
        (r"\P{L}+", "ä12b", [(1, 3)]),
        (r"[\p{Lu}\d]+", "aB1c", [(1, 3)]),
        (r"\Qa.b*\E+", "a.b**", [(0, 5)]),
        (r"\x{1F600}", "a😀", [(1, 2)]),
        ("(?i)[^a]", "Ab", [(1, 2)]),
        ("(a(?i)b)c", "aBcaBC", [(0, 3)]),
        ("{", "a{b", [(1, 2)]),
        ("x{,2}", "x{,2}", [(0, 5)]),
    ],
)
def test_what_re2_means(pattern: str, text: str, expected: list[tuple[int, int]]) -> None:
    assert compiled(pattern).find_all(text) == expected


@pytest.mark.parametrize(
    "pattern",
    [
        *(
            "(",
            ")",
            "[",
            "[a",
            "*a",
            "a**",
            "a++",
            "(?=a)",
            "(?!a)",
            "(?<=a)",
            "(?<!a)",
            "(?>a)",
            r"\1",
            r"\k<a>",
            r"\Z",
        ),
        *(
            "a{1001}",
            "a{2,1}",
            r"\p{Greek}",
            r"\e",
            "[z-a]",
            "(?P=a)",
            "(?P<a>x)(?P<a>y)",
            "\\",
            "[[:nope:]]",
            r"\C",
            "(?x)a",
        ),
    ],
)
def test_what_re2_refuses(pattern: str) -> None:
    with pytest.raises(WorkflowError) as caught:
        compiled(pattern)
    assert caught.value.tags() == ["ValueError"]


def test_no_expression_takes_exponential_time() -> None:
    assert compiled("(a*)*b").search("a" * 200, 0) is None


def test_an_expression_that_is_too_large() -> None:
    with pytest.raises(WorkflowError):
        compiled("((a{1000}){1000}){1000}")
