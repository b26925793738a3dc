"""Reads the articles of a MediaWiki dump, and extracts the text passages from their markup.

The paper, 3.1: "For Wikipedia we extract only the text passages and ignore lists, tables, and
headers." mwparserfromhell parses the markup; it is imported only when it is used.
"""

import bz2
import collections
import contextlib
import functools
import html
import itertools
import re
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple
from xml.etree import ElementTree

from absl import logging

from bert_tf.datasets.documents import split_sentences
from bert_tf.datasets.text_files import CountedFile
from bert_tf.errors import UserError, check_regular, needs_package, quoted
from bert_tf.files.storage import ending_of
from bert_tf.progress import Progress
from bert_tf.start import lazy_tensorflow as tf

# Numbers of the namespaces Media, File and Category, and their English names, which every wiki
# accepts in addition to its own names. Links to them show a file or categorize the article.
_MEDIA_NUMBERS = ("-2", "6", "14")
_MEDIA_NAMES = ("media", "file", "image", "category")

# Tags whose contents belong to a passage. The contents of all other tags (ref, math, table, ul,
# gallery) do not.
_BLOCK_TAGS = frozenset("blockquote center div p poem".split())
_TEXT_TAGS = _BLOCK_TAGS.union(
    "abbr b bdi bdo big cite del dfn em font i ins kbd mark nowiki q s samp section small span"
    " strong sub sup tt u var".split()
)
_LIST_TAGS = frozenset(("dd", "dt", "li"))
_LIST = "\0"  # marks the line of a list's item; never occurs in text

# The parser's time grows with the square of the number of brackets open at once, so a malicious
# page could take days. Articles have a few dozen open brackets.
_MOST_OPEN = 200
_LONGEST_NAME = 40  # characters to keep of a counted template's name
# A match with group 1 opens a bracket, others close one. Tags that may stay open are not counted.
_NESTING = (
    re.compile(r"(\{)|\}"),
    re.compile(r"(\[)|\]"),
    re.compile(r"(<)[A-Za-z!/]|>"),
    re.compile(r"(<(?!(?:br|hr|wbr|li|td|th|tr|dd|dt)\b)[A-Za-z])|</|/>", re.IGNORECASE),
)

# Lines left over from an unclosed table, template or list begin with one of these.
_LEFTOVER = re.compile(r"\s*[{|}]")
# Marks of bold and italic text, switches such as __NOTOC__, and unclosed tags.
_MARKS = re.compile(r"'{2,5}|__[A-Z]+__|</?[A-Za-z][^<>]*>")
# Leftovers of templates, as in "Paris ({{IPA|...}}; the capital {{note}}) is", with single spaces.
_EMPTY_BRACKETS = re.compile(r" ?\([,;:. ]*\)| ?\[ ?\]")
_OPENING = re.compile(r"\( ?[,;:] ?|\( ")
_SPACE_BEFORE = re.compile(r" ([,.;)](?: |$))")


# Name of a template -> how often `parse` has left it out within a line.
_left_out: collections.Counter[str] = collections.Counter()


class Article(NamedTuple):
    title: str
    markup: str
    media: frozenset[str]  # lower-case prefixes of links that show a file or categorize the article


def read_articles(path: str, flag: str) -> Iterator[Article]:
    """Yields the articles of a dump: pages of namespace 0 with wikitext, except redirects.

    The dump is XML, from MediaWiki's dumps or Special:Export, and compressed if its name ends in
    .bz2. The last revision of a page counts. If the dump is truncated or damaged, the articles
    before the damage are yielded, with a warning.
    """
    place = f"--{flag}: {path}"
    check_regular(path, place)
    count, last, skipped, problem = 0, "", collections.Counter[str](), None
    try:
        total = tf.io.gfile.stat(path).length
        with tf.io.gfile.GFile(path, "rb") as file, Progress("reading", "bytes", total) as work:
            counted = CountedFile(file, work)
            # `read1` returns the data before damage; `read` would lose it.
            read = bz2.BZ2File(counted).read1 if ending_of(path) == ".bz2" else counted.read
            for article in _articles(types.SimpleNamespace(read=read), skipped):
                yield article
                count, last = count + 1, article.title
    except tf.errors.OpError as error:
        raise UserError(f"{place} cannot be read: {error.message}") from error
    except (EOFError, OSError, LookupError, ValueError, ElementTree.ParseError) as error:
        problem = error
    if problem and not count:
        raise UserError(
            f"{place} must be a dump of MediaWiki, as .xml or .xml.bz2, in UTF-8. The file is"
            f" something else, or is cut off before the end of the first article ({problem})"
        )
    if problem:
        logging.warning(
            "%s is cut off or damaged (%s). The %d articles before that are used; the last is %s",
            *(path, problem, count, quoted(last)),
        )
    logging.info(
        "%s: %d articles; skipped %d redirects and %d pages that are not articles",
        *(path, count, skipped["redirects"], skipped["others"]),
    )


def _articles(file: Any, skipped: collections.Counter[str]) -> Iterator[Article]:
    """Yields the articles in the XML of `file`, and counts other pages in `skipped`."""
    media = set(_MEDIA_NAMES)
    parts = ElementTree.iterparse(file, ("start", "end"))
    _, root = next(parts)
    for event, element in parts:
        name = element.tag.rpartition("}")[2]
        if event == "end" and name == "namespace" and element.get("key") in _MEDIA_NUMBERS:
            media.add((element.text or "").lower())
        elif event == "end" and name == "page":
            # A later revision replaces an earlier one.
            fields = {part.tag.rpartition("}")[2]: part.text or "" for part in element.iter()}
            is_text = fields.get("model", "wikitext") == "wikitext"
            if not is_text or fields.get("ns", "0") != "0":
                skipped["others"] += 1
            elif "redirect" in fields:
                skipped["redirects"] += 1
            else:
                title, markup = fields.get("title", ""), fields.get("text", "")
                yield Article(title, markup, frozenset(media))
            root.clear()


def check_parser() -> None:
    """Raises UserError, with the command to install mwparserfromhell, if it is missing."""
    with needs_package("The markup of Wikipedia", "mwparserfromhell", "wikipedia"):
        import mwparserfromhell  # noqa: F401


def parse(articles: Sequence[Article]) -> tuple[list[list[str] | None], collections.Counter[str]]:
    """Returns the sentences of each article's passages, and how often each template was left out.

    An article's sentences are None if the parser fails, or would take hours because of open
    brackets. Only templates within a line are counted.
    """
    from mwparserfromhell.parser import ParserError

    _left_out.clear()
    found: list[list[str] | None] = []
    for article in articles:
        found.append(None)
        if all(_most_open(article.markup, pattern) <= _MOST_OPEN for pattern in _NESTING):
            with contextlib.suppress(ParserError, RecursionError):
                found[-1] = passage_sentences(article.markup, article.media)
    return found, collections.Counter(_left_out)


def _most_open(markup: str, pattern: re.Pattern) -> int:
    """Returns the largest number of brackets open at once; `pattern` is one of `_NESTING`."""
    count = most = 0
    for opening in pattern.findall(markup):
        count = count + 1 if opening else max(count - 1, 0)
        most = max(most, count)
    return most


def passage_sentences(markup: str, media: frozenset[str] = frozenset(_MEDIA_NAMES)) -> list[str]:
    """Returns the sentences of the passages in a text with markup; see `Article` for `media`.

    Lists, tables, headers, references, formulas, comments and files are left out, as are templates
    that `template_text` does not know.
    """
    import mwparserfromhell

    parts: list[str] = []
    # Bold and italic are not parsed: in articles their marks often overlap or stay open.
    _add_text(mwparserfromhell.parse(markup, skip_style_tags=True), media, parts)
    lines = [
        "" if _LIST in line or _LEFTOVER.match(line) else _clean(line)
        for line in "".join(parts).splitlines()
    ]
    # As in MediaWiki, a paragraph goes on until an empty line.
    paragraphs = [" ".join(group) for _, group in itertools.groupby(lines, key=bool)]
    sentences = split_sentences("\n".join(paragraphs))
    return [sentence for sentence in sentences if any(map(str.isalnum, sentence))]


def _add_text(code: Any, media: frozenset[str], parts: list[str]) -> None:
    """Adds the text of parsed markup to `parts`; all other kinds of nodes are left out."""
    from mwparserfromhell import nodes

    for node in code.nodes:
        if isinstance(node, nodes.Text):
            parts.append(node.value)
        elif isinstance(node, nodes.Wikilink):
            title = str(node.title).strip()
            if title.partition(":")[0].rstrip().lower() in media:
                continue
            if node.text is None:
                parts.append(title.removeprefix(":"))  # [[:Category:Rivers]] is a plain link
            else:
                _add_text(node.text, media, parts)
        elif isinstance(node, nodes.Template):
            _add_template(node, media, parts)
        elif isinstance(node, nodes.HTMLEntity):
            parts.append(html.unescape(str(node)))
        elif isinstance(node, nodes.ExternalLink) and node.title is not None:
            _add_text(node.title, media, parts)
        elif isinstance(node, nodes.Heading):
            parts.append("\n")
        elif isinstance(node, nodes.Tag):
            _add_tag(node, media, parts)


def _add_template(template: Any, media: frozenset[str], parts: list[str]) -> None:
    """Adds what a template shows; counts an unknown template within a line."""
    from mwparserfromhell.nodes import Text

    def show(value: Any) -> str:
        if len(value.nodes) == 1 and type(value.nodes[0]) is Text:
            return value.nodes[0].value
        found: list[str] = []
        _add_text(value, media, found)
        return "".join(found)

    name = template_name(str(template.name))
    text = template_text(name, template.params, show)
    if text is not None:
        parts.append(text)
    elif parts and parts[-1] and parts[-1][-1] not in "\n\0":
        _left_out[name[:_LONGEST_NAME]] += 1


def _add_tag(tag: Any, media: frozenset[str], parts: list[str]) -> None:
    name = str(tag.tag).strip().lower()
    if name == "br":
        parts.append(" ")
    elif tag.wiki_markup and name in _LIST_TAGS:  # the rest of its line is the item
        parts.append(_LIST)
    elif name in _TEXT_TAGS and tag.contents is not None:
        edge = "\n\n" if name in _BLOCK_TAGS else ""
        parts.append(edge)
        _add_text(tag.contents, media, parts)
        parts.append(edge)


def _clean(line: str) -> str:
    line = " ".join(_MARKS.sub("", line).split())
    line = _OPENING.sub("(", _EMPTY_BRACKETS.sub("", line))
    return _SPACE_BEFORE.sub(r"\1", line).strip()


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
# Notes, editors' marks, and pronunciations: a sentence is complete without them.
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
# Numbers, each with the unit or the word that follows it.
_MEASURE = re.compile(r"(?:[-−+]?[.\d][\d.,+/ ]*\|[^|\d][^|]*(?:\||$))+")


@functools.lru_cache(4096)
def template_name(name: str) -> str:
    """Returns the name of a template in lower case, with single spaces for white space and _."""
    return " ".join(name.replace("_", " ").split()).lower().removeprefix("template:")


def template_text(name: str, params: Sequence[Any], show: Callable[[Any], str]) -> str | None:
    """Returns what a template shows; "" for notes and pronunciations, None if it is unknown.

    Knows the most common templates within lines, which show numbers, names and symbols. `params`
    are mwparserfromhell's; `show` returns the text of a parameter's value.
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
