"""Tests of datasets/wikipedia.py: which pages are articles, and what is text in their markup."""

import bz2

import pytest

from bert_tf.datasets import wikipedia
from bert_tf.datasets.wikipedia import passage_sentences
from tests.support.dumps import dump, page
from tests.support.refusals import refusal

RIVER = """{{Short description|River {{in|England}}}}
{{Infobox river
| name = Thames {{small|(see [[River|rivers]])}}
| length = {{convert|346|km}}
}}
[[File:Thames.jpg|thumb|The [[Thames]] at ''Oxford''. It is wide.]]
The '''Thames''' ({{IPAc-en|t|ɛ|m|z}}), known as the ''[[Isis, Oxford|Isis]]'',<ref name="a">{{cite
|title=x}} A note.</ref> is a [[river]]{{citation needed|date=May}} in [[England]].<ref name=b />
It rises at Kemble &amp; flows
east.<!-- a comment. --> See [http://example.org the map] or https://example.org/x now.

__NOTOC__
== History ==
In 1858 the smell was great&nbsp;&ndash; the [[Great Stink|'''Great''' Stink]].
* A list item. With two sentences.
** Another, with [[a link]].
# A number {{x|
y}} of things
: An indented line.
; A term : its description
=== Depth ===
{| class="wikitable"
! Head !! Depth
|-
| Oxford ||
{|
| 3&nbsp;m
|}
|}
Depth is <math>d = \\frac{1}{2}</math> metres.<gallery>
File:A.jpg|One
</gallery> Its name is ''Café–Straße'' in 中文。水很深。Old <nowiki>[[text]]</nowiki>.
<ul><li>An item.</li></ul>
<div class="x">A box<br />of text</div>
[[Category:Rivers]] [[Kategorie:Flüsse]]
"""


def test_the_passages_of_an_article():
    media = frozenset(("file", "category", "kategorie"))
    assert passage_sentences(RIVER, media) == [
        "The Thames, known as the Isis, is a river in England.",
        "It rises at Kemble & flows east.",
        "See the map or now.",
        "In 1858 the smell was great – the Great Stink.",
        "Depth is metres.",
        "Its name is Café–Straße in 中文。",
        "水很深。",
        "Old [[text]].",
        "A box of text",
    ]


def test_passages():
    for markup, sentences in (
        ("", []),
        ("{| class=x\n| Only a table.\n|}", []),
        ("* One.\n* Two.\n== Three ==\n{{four|Five.}}", []),
        ("Hard\nwrapped text.\nMore.\n\nNext one", ["Hard wrapped text.", "More.", "Next one"]),
        ("One\n* item\ntwo", ["One", "two"]),
        ("A (; b, {{c}}) d ( {{e}} ) f [ ] g .", ["A (b,) d f g."]),
        ("It is .NET (x) .5", ["It is .NET (x) .5"]),
        ("Not '''closed. And ''neither [[this.", ["Not closed.", "And neither [[this."]),
        ("{{Not closed\n| a = b\n}\nText <small>here.", ["Text here."]),
        ("{|\n| a cell. Or\n|-\nText.", ["Text."]),
        ("[[File:a|thumb|A [[b]]\n\n{{c}} d.]] [[:Category:E]] [[Image:f]].", ["Category:E."]),
        ("&#xD800;a &notit; b &lt;ref&gt;", ["\ufffda &notit; b"]),
        ("<span style='x'>a</span> <table><tr><td>b.</td></tr></table> <s>c</s>", ["a c"]),
        ("<blockquote>Said.</blockquote>He did <Ref>x</Ref>it.", ["Said.", "He did it."]),
        ("... {{x}} !? (—)", []),
        ("a\u2028b\x85c\x1cd\n\n\u3000e", ["a b c d", "e"]),
    ):
        assert passage_sentences(markup) == sentences


def test_inline_templates():
    for markup, shown in (
        ("{{convert|2,092|km|mi|0|abbr=on}}", "2,092 km"),
        ("{{Convert|346|km}}", "346 km"),
        ("{{convert|10|to|20|km|mi}}", "10 to 20 km"),
        ("{{cvt|3|-|4|lb}}", "3 - 4 lb"),
        ("{{convert|5|ft|11|in|m|abbr=on}}", "5 ft 11 in"),
        ("{{convert|-5|F}}", "-5 F"),
        ("{{convert|1+1/2|in|mm|disp=or}}", "1+1/2 in"),
        ("{{convert|1|mi|3}}", "1 mi"),
        ("{{formatnum:2092345.25}}", "2092345.25"),
        ("{{as of|2020|" + "1" * 5000 + "}}", "As of " + "1" * 5000 + " 2020"),
        ("{{lang|fr|l'[[été]] {{nowrap|''a'' b}}}}", "l'été a b"),
        ("{{Lang-ru|Москва|Moskva}}", "Москва"),
        ("{{langx|de|Köln|label=none}}", "Köln"),
        ("{{lang|1=ja|2=水}}", "水"),
        ("{{transliteration|ar|ISO|abc}}", "abc"),
        ("{{as_of|2012|5|7|lc=y}}", "As of 7 May 2012"),
        ("{{circa|1800|1850}}", "c. 1800 – c. 1850"),
        ("{{frac|3|1|2}}", "3 1⁄2"),
        ("{{sic|teh}}", "teh"),
        ("{{ill|Ort|de|Ort (Begriff)|lt=place}}", "Ort"),
        ("b{{nbsp}}c{{snd}}d{{'s}}", "b c – d's"),
        ("{{abbr|WHO|World Health Organization}}", "WHO"),
        ("b{{citation needed|date=May}}{{sfn|A|p=1}} {{IPAc-en|a}}", "b"),
    ):
        assert passage_sentences(f"It is {markup} here") == [f"It is {shown} here"]
        assert wikipedia.parse([wikipedia.Article("x", f"It {markup}", frozenset())])[1] == {}


def test_malformed_templates_do_no_harm():
    for markup in ("convert", "convert|", "convert|x|km", "convert|5", "lang|"):
        for more in ("", "|", "|||", "|1/0|km", "|9e9|m|m|99", "|1|m|m|-99", "|a=|=b"):
            shown = passage_sentences(f"It is {{{{{markup}{more}}}}} here")[0]
            assert shown.startswith("It is"), (markup, more)


def test_templates_that_are_left_out_are_counted():
    markup = (
        "{{Infobox|a}}\nA {{foo_bar|b}} c {{Foo bar}}.\n{{Main|d}}\n* e {{x}}<ref>f {{y}}</ref>"
    )
    articles = [wikipedia.Article("x", markup, frozenset())] * 2
    for _ in range(2):
        sentences, left_out = wikipedia.parse(articles)
        assert sentences == [["A c."]] * 2 and left_out == {"foo bar": 4, "x": 2}


OPEN = ["[[", "{{a|", "{|\n", "[http://x ", "{{{", "[", "<b>", "<ref x=", "<!--", '<br x="', "<p>"]
CLOSED = ["''", "&", "<li>", "* ", "{{a}}", "[b]", "<b/>", "<br>", "a < b"]


@pytest.mark.parametrize("part", [*OPEN, *CLOSED])
@pytest.mark.parametrize("end", ["", "}}" * 3_000])
def test_markup_that_takes_the_parser_hours_is_left_out(part, end):
    markup = f"Text.\n\n{part * 3_000}{end}\n\nEnd."
    (sentences,), _ = wikipedia.parse([wikipedia.Article("x", markup, frozenset())])
    assert (sentences is not None) == (part in CLOSED)
    if sentences:
        assert sentences[0] == "Text."


PAGES = [
    page("Äpfel", "first", "Äpfel &amp; \u201eBirnen\u201c <b>&lt;</b> 中文"),
    page("Talk", "Talk.", ns=1),
    page("Apfel", "#REDIRECT [[Äpfel]]", redirect="Äpfel"),
    page("Data", "{}", model="json"),
    page("Leer", ""),
    page("Brot", "Brot."),
]


def read(path) -> list[tuple[str, str]]:
    return [(x.title, x.markup) for x in wikipedia.read_articles(str(path), "input_file")]


def test_articles_are_pages_with_text(tmp_path):
    data = dump(*PAGES).encode()
    (tmp_path / "a.xml").write_bytes(data)
    # Dumps named "multistream" are compressed in parts.
    (tmp_path / "a.xml.bz2").write_bytes(bz2.compress(data[:700]) + bz2.compress(data[700:]))
    for name in ("a.xml", "a.xml.bz2"):
        assert read(tmp_path / name) == [
            ("Äpfel", "Äpfel &amp; \u201eBirnen\u201c <b>&lt;</b> 中文"),
            ("Leer", ""),
            ("Brot", "Brot."),
        ]
    article = next(wikipedia.read_articles(str(tmp_path / "a.xml"), "input_file"))
    assert article.media == {*"media file image category medium datei kategorie".split()}


@pytest.mark.parametrize("ending", [".xml", ".xml.bz2"])
def test_articles_before_a_cut_are_used(tmp_path, warnings, ending):
    path = tmp_path / f"a{ending}"
    pages = [page(f"Page {i}", f"Text {i * i}.") for i in range(500)]
    data = dump(*pages).encode()
    if ending == ".xml.bz2":
        # Of two streams, each of which is read when it is whole.
        middle = data.index(b"Page 77<")
        data = bz2.compress(data[:middle]) + bz2.compress(data[middle:])[:-40]
    else:
        data = data[: data.index(b"Text 5929.")]
    path.write_bytes(data)
    assert read(path) == [(f"Page {i}", f"Text {i * i}.") for i in range(77)]
    (warning,) = warnings
    assert warning.startswith(f"{path} is cut off or damaged (")
    assert warning.endswith("). The 77 articles before that are used; the last is 'Page 76'")


def test_a_file_that_is_not_a_dump_is_refused(tmp_path):
    for name, data, message in (
        ("a.xml", "Not XML.", "syntax error"),
        ("a.xml.bz2", dump(PAGES[0]), "Invalid data stream"),
        ("a.xml", dump(PAGES[0])[:900], "unclosed token"),
        ("a.xml", '<?xml version="1.0" encoding="nonsense"?>' + dump(PAGES[0]), "nonsense"),
    ):
        (tmp_path / name).write_text(data)
        refused = refusal(read, tmp_path / name)
        assert refused.startswith(f"--input_file: {tmp_path / name} must be a dump of MediaWiki")
        assert "or is cut off before the end of the first article" in refused and message in refused


def test_markup_that_the_parser_fails_on_is_told(monkeypatch):
    from mwparserfromhell.parser import ParserError

    def fail(markup, media):
        if markup == "bad":
            raise ParserError("x")
        return [markup]

    monkeypatch.setattr(wikipedia, "passage_sentences", fail)
    articles = [wikipedia.Article("t", text, frozenset()) for text in ("good", "bad", "fine")]
    assert wikipedia.parse(articles)[0] == [["good"], None, ["fine"]]
