"""The text of Wikipedia's commonest inline templates, which hold numbers, names and signs."""

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

# Templates that show characters.
_CHARACTERS = {
    "nbsp": " ", "space": " ", "spaces": " ", "thinsp": " ", "snd": " – ", "spnd": " – ",
    "sndash": " – ", "spaced ndash": " – ", "spaced en dash": " – ", "dash": " – ", "ndash": "–",
    "endash": "–", "en dash": "–", "mdash": "—", "emdash": "—", "em dash": "—", "snds": " – ",
    "spaced mdash": " — ", "spaced em dash": " — ", "bull": " • ", "•": " • ", "·": " · ",
    "dot": " · ", "middot": " · ", "'": "'", "'s": "'s", "!": "|", "=": "=", "nbhyph": "-",
    "hyphen": "-", "ellipsis": "...", "...": "...", "zwsp": "", "wbr": "", "shy": "",
}  # fmt: skip
# Templates that show one of their arguments, counted from 0; -1 is the last one.
_ARGUMENT = {
    **dict.fromkeys(
        "nowrap nobr nobreak nowr nobold normal small smaller big larger em strong abbr abbrv"
        " tooltip smallcaps sc underline sup sub sup2 var mvar code mono samp kbd visible_anchor"
        " vanchor not_a_typo proper_name as_written flag flagcountry bdi italic noitalic noitalics"
        " sic ill interlanguage_link interlanguage_link_multi nihongo".split(),
        0,
    ),
    "langx": 1,
    **dict.fromkeys("lang transl transliteration translit xlit script".split(), -1),
}
# Notes, marks of editors and pronunciations: nothing of a sentence is lost without them.
_SILENT = frozenset(
    "citation_needed cn fact sfn sfnp sfnm efn efn-ua refn r rp ref note notetag nbref when who"
    " which whom by_whom clarify clarification_needed dubious page_needed pn better_source_needed"
    " failed_verification vague according_to_whom dead_link anchor coord respell audio listen"
    " pronunciation flagicon clear - update_after update_inline".split()
)
_SILENT_STARTS = ("ipa", "cite", "citation", "infobox", "harv", "respell", "user ", "#")

_MONTHS = (
    "January February March April May June July August September October November December".split()
)
# A number and what follows it: the unit, or the word between two numbers.
_MEASURE = re.compile(r"(?:[-−+]?[.\d][\d.,+/ ]*\|[^|\d][^|]*(?:\||$))+")


@functools.lru_cache(4096)
def template_name(name: str) -> str:
    """Returns the name of a template in lower case, with single spaces for white space and _."""
    return " ".join(name.replace("_", " ").split()).lower().removeprefix("template:")


def template_text(name: str, params: Sequence[Any], show: Callable[[Any], str]) -> str | None:
    """Returns what a template shows; "" for notes and pronunciations, None if it is not known.

    `name` is from `template_name`; `params` are mwparserfromhell's; `show` returns the text of a
    parameter's value.
    """
    if name in _CHARACTERS:
        return _CHARACTERS[name]
    if name.startswith("formatnum:"):
        return name.partition(":")[2].strip()
    key = name.replace(" ", "_")
    if key in _SILENT or name.startswith(_SILENT_STARTS):
        return ""
    render = _TEXTS.get(name)
    index = 0 if re.match(r"lang-[a-z]", name) else _ARGUMENT.get(key)
    if render is None and index is None:
        return None
    arguments = []
    for param in params:
        if not param.showkey or str(param.name).strip() == str(len(arguments) + 1):
            arguments.append(show(param.value).strip())
    try:
        return render(arguments) if render else arguments[index]
    except IndexError:  # too few arguments
        return None


def _measure(arguments: list[str]) -> str | None:
    found = _MEASURE.match("|".join(arguments))
    return found[0].rstrip("|").replace("|", " ") if found else None


def _as_of(arguments: list[str]) -> str:
    year, *date = filter(None, [arguments[0], *arguments[1:3]])
    if date and re.fullmatch(r"0?[1-9]|1[0-2]", date[0]):
        date[0] = _MONTHS[int(date[0]) - 1]
    return " ".join(["As of", *reversed(date), year])


def _circa(arguments: list[str]) -> str:
    return " – ".join(f"c. {year}" for year in arguments if year) or "c."


def _fraction(arguments: list[str]) -> str:
    *whole, above, below = arguments if len(arguments) > 1 else ["1", arguments[0]]
    return " ".join([*whole, f"{above}⁄{below}"])


_TEXTS: dict[str, Callable[[list[str]], str | None]] = {
    **dict.fromkeys(("convert", "conv", "cvt"), _measure),
    **dict.fromkeys(("as of", "asof"), _as_of),
    **dict.fromkeys(("circa", "c.", "ca.", "ca"), _circa),
    **dict.fromkeys(("frac", "fraction", "sfrac"), _fraction),
}
