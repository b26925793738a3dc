"""The text of Wikipedia's commonest inline templates, as readers of an article see it."""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bert_tf.datasets.measures import convert

Arguments = Sequence[str]
Options = Mapping[str, str]

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
        "".split(),
        0,
    ),
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

_LANGUAGES = {
    "ar": "Arabic", "bg": "Bulgarian", "ca": "Catalan", "cs": "Czech", "cy": "Welsh",
    "da": "Danish", "de": "German", "el": "Greek", "en": "English", "es": "Spanish",
    "eu": "Basque", "fa": "Persian", "fi": "Finnish", "fr": "French", "ga": "Irish",
    "grc": "Ancient Greek", "he": "Hebrew", "hi": "Hindi", "hr": "Croatian", "hu": "Hungarian",
    "id": "Indonesian", "it": "Italian", "ja": "Japanese", "ko": "Korean", "la": "Latin",
    "nl": "Dutch", "no": "Norwegian", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian",
    "ru": "Russian", "sa": "Sanskrit", "sk": "Slovak", "sl": "Slovene", "sr": "Serbian",
    "sv": "Swedish", "th": "Thai", "tr": "Turkish", "uk": "Ukrainian", "vi": "Vietnamese",
    "zh": "Chinese",
}  # fmt: skip
_MONTHS = (
    "January February March April May June July August September October November December".split()
)


@functools.lru_cache(4096)
def template_name(name: str) -> str:
    """Returns the name of a template in lower case, with single spaces for white space and _."""
    return " ".join(name.replace("_", " ").split()).lower().removeprefix("template:")


def template_text(name: str, params: Sequence[Any], show: Callable[[Any], str]) -> str | None:
    """Returns what a template shows; "" for notes and pronunciations, None if it is not known.

    Args:
        name: from `template_name`.
        params: the template's parameters, as mwparserfromhell gives them.
        show: returns the text of a parameter's value.
    """
    render = _renderer(name)
    if render is None or isinstance(render, str):
        return render
    arguments, options = [], {}
    for param in params:
        value = show(param.value)
        if not param.showkey:
            arguments.append(value)
            continue
        key = str(param.name).strip()
        if key.isdecimal() and key == str(len(arguments) + 1):
            arguments.append(value.strip())
        else:
            options[key] = value.strip()
    return render(arguments, options)


@functools.lru_cache(4096)
def _renderer(name: str) -> Callable[[Arguments, Options], str | None] | str | None:
    """Returns what renders a template's arguments, or its text; None if it is not known."""
    if name in _CHARACTERS:
        return _CHARACTERS[name]
    if name.startswith("formatnum:"):
        number = name.partition(":")[2]
        return lambda arguments, options: _format_number(number, arguments)
    if name.replace(" ", "_") in _SILENT or name.startswith(_SILENT_STARTS):
        return ""
    index = _ARGUMENT.get(name.replace(" ", "_"))
    if index is not None:
        return lambda arguments, options: arguments[index] if arguments else None
    if re.match(r"lang-[a-z]", name):
        language = name.removeprefix("lang-")
        return lambda arguments, options: _of_language([language, *arguments], options)
    return _RENDERERS.get(name)


def _format_number(text: str, flags: Sequence[str]) -> str:
    text = text.strip()
    if flags and flags[0].strip().upper() == "R":
        return text.replace(",", "")
    whole, point, decimals = text.partition(".")
    digits = re.search(r"(?<!\d)\d*+$", whole)[0]
    start = len(whole) - len(digits)
    first = start + (len(digits) % 3 or 3)
    groups = [whole[start:first], *(whole[i : i + 3] for i in range(first, len(whole), 3))]
    return whole[:start] + ",".join(groups) + point + decimals


def _of_language(arguments: Arguments, options: Options) -> str | None:
    if len(arguments) < 2:
        return options.get("text")
    code, text, *more = (argument.strip() for argument in arguments)
    language = options.get("label", _LANGUAGES.get(code, ""))
    roman = options.get("translit", more[0] if more else "")
    meaning = options.get("lit", options.get("translation", more[1] if len(more) > 1 else ""))
    shown = f"{language}: {text}" if language not in ("", "none") else text
    shown += f", romanized: {roman}" if roman else ""
    return shown + (f", literally '{meaning}'" if meaning else "")


def _as_of(arguments: Arguments, options: Options) -> str | None:
    if "alt" in options:
        return options["alt"]
    date = [argument.strip() for argument in arguments if argument.strip()]
    if not date:
        return None
    if len(date) > 1 and re.fullmatch(r"0?[1-9]|1[0-2]", date[1]):
        date[1] = _MONTHS[int(date[1]) - 1]
    if options.get("df", "").lower() in ("us", "mdy", "y") and len(date) > 2:
        text = f"{date[1]} {date[2]}, {date[0]}"
    else:
        text = " ".join(reversed(date[:3]))
    if options.get("bare"):
        return text
    start = "Since" if options.get("since") else "As of"
    return f"{start.lower() if options.get('lc') else start} {text}"


def _circa(arguments: Arguments, options: Options) -> str:
    return " – ".join(f"c. {year.strip()}" for year in arguments if year.strip()) or "c."


def _fraction(arguments: Arguments, options: Options) -> str | None:
    parts = [argument.strip() for argument in arguments]
    if not 1 <= len(parts) <= 3:
        return None
    *whole, above, below = parts if len(parts) > 1 else ["1", *parts]
    return " ".join([*whole, f"{above}⁄{below}"])


def _sic(arguments: Arguments, options: Options) -> str:
    text = "".join(arguments)
    return text if options.get("hide") else f"{text} [sic]".strip()


def _link(arguments: Arguments, options: Options) -> str | None:
    return options.get("lt") or (arguments[0].strip() if arguments else None)


def _japanese(arguments: Arguments, options: Options) -> str | None:
    english, *more = (argument.strip() for argument in arguments) if arguments else ("",)
    inside = ", ".join(filter(None, more[:2]))
    return f"{english} ({inside})".strip() if english and inside else english or inside or None


def _convert_short(arguments: Arguments, options: Options) -> str | None:
    return convert(arguments, {"abbr": "on", **options})


_RENDERERS: dict[str, Callable[[Arguments, Options], str | None]] = {
    **dict.fromkeys(("convert", "conv"), convert),
    "cvt": _convert_short,
    "langx": _of_language,
    **dict.fromkeys(("as of", "asof"), _as_of),
    **dict.fromkeys(("circa", "c.", "ca.", "ca"), _circa),
    **dict.fromkeys(("frac", "fraction", "sfrac"), _fraction),
    "sic": _sic,
    **dict.fromkeys(("ill", "interlanguage link", "interlanguage link multi"), _link),
    "nihongo": _japanese,
}
