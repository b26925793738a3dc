"""Messages quote what was received, but not at any length."""

import os
import re

import pytest

from bert_tf.errors import UserError, as_given, as_line, listed, needs_package, percent, quoted


def test_values_are_quoted_whole_or_cut_in_the_middle():
    assert quoted("it's") == '"it\'s"' and quoted([1, None]) == "[1, None]"
    assert quoted("x" * 98) == "'" + "x" * 98 + "'"
    text = quoted("a" * 1_000_000 + "z")
    assert text == "'" + "a" * 45 + " [...] " + "a" * 44 + "z'" and len(text) == 99
    assert "\n" not in quoted("line\n" * 1000)
    assert quoted(10**5000) == as_given(10**5000) == "<a very long int>"


def test_lists_show_their_first_values():
    assert listed([]) == "" and listed(["a", 2]) == "'a', 2"
    assert listed(range(11)) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ..."
    assert listed(range(10)) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9"
    assert listed(["x" * 40] * 9) == ", ".join(["'" + "x" * 40 + "'"] * 3) + ", ..."
    assert listed(["x" * 1000, "y"]).endswith("xx', 'y'")  # the first is always there


def test_shares_have_two_digits():
    shares = [(96, 96), (2999, 3000), (2, 3), (1, 11), (1, 3000), (0, 7)]
    assert [*map(percent, *zip(*shares, strict=True))] == "100% 100% 67% 9.1% 0.033% 0%".split()


def test_a_message_is_one_line_and_not_long():
    assert as_line(" a\n  b\r\nc\u2028d  e\n") == "a b c d  e"
    assert as_line("x" * 500) == "x" * 500
    assert as_line("a" * 300 + "\n" + "z" * 300) == "a" * 246 + " [...] " + "z" * 246
    assert (
        as_line("\x1b]0;a\x07 \udcff\u202e 日本 \x9b2J") == r"\x1b]0;a\x07 \udcff\u202e 日本 \x9b2J"
    )


@pytest.mark.parametrize(
    ("has_setup", "command"),
    [
        (True, r'in /\S+ `pip install -e "\.\[text\]"`'),
        (False, r'`pip install "path/to/checkout\[text\]"`'),
    ],
)
def test_the_command_for_an_extra_is_that_of_this_installation(monkeypatch, has_setup, command):
    monkeypatch.setattr(os.path, "exists", lambda path: has_setup)
    with pytest.raises(UserError) as error, needs_package("It", "pyarrow", "text"):
        raise ImportError("why")
    begin = "It needs pyarrow; run `pip install pyarrow`, or install the extra `text`: "
    assert re.fullmatch(rf"{begin}{command} \(why\)", str(error.value))
