"""Tests of tools/draw/attention_page.py: the file, and what a person sees and does in a browser."""

import base64
import hashlib
import html.parser
import json
import re

import numpy as np
import pytest

from bert_tf.pretrained.results import TextAttention
from tests.support import chromium
from tools.draw.attention_page import attention_page

LAYERS, HEADS = 3, 4
HOSTILE = ["</script><b>x</b>", "<!--<script>", "@DATA@", "&lt;\u2028'\"", "\u202e<img src=x>", "𝛑"]


def attention(
    tokens: list[str], first_of_b: int | None, layers=LAYERS, heads=HEADS
) -> TextAttention:
    """Returns random attention; tokens from `first_of_b` on are those of the second text."""
    length = len(tokens)
    logits = np.random.default_rng(length).normal(0, 2.5, (layers, heads, length, length))
    exponentials = np.exp(logits)
    probabilities = exponentials / exponentials.sum(axis=-1, keepdims=True)
    segment_ids = np.arange(length) >= (length if first_of_b is None else first_of_b)
    return TextAttention(tokens, segment_ids.astype(np.int32), probabilities.astype(np.float32))


PAIR = attention(["[CLS]", "the", "cat", "[SEP]", "it", "sat", "[SEP]"], 4)


def data_of(page: str) -> dict:
    """Returns the numbers in a page."""
    return json.loads(re.search(r'<script type="application/json".*?>(.*?)</script>', page)[1])


def test_the_weights_are_those_of_the_array():
    data = data_of(attention_page(PAIR, "a model", layer=1, head=2))
    codes = np.frombuffer(base64.b64decode(data["weights"]), np.uint8)
    weights = (codes.reshape(PAIR.probabilities.shape) / 255) ** 2
    np.testing.assert_allclose(weights, PAIR.probabilities, rtol=0, atol=0.004)
    small = PAIR.probabilities < 0.01
    assert small.any()
    np.testing.assert_allclose(weights[small], PAIR.probabilities[small], rtol=0, atol=0.0004)
    assert (data["layer"], data["head"], data["model"]) == (1, 2, "a model")
    assert data["segments"] == [0, 0, 0, 0, 1, 1, 1]


def test_a_page_of_60_tokens_is_small():
    page = attention_page(attention([f"token{i}" for i in range(60)], 30, 12, 12), "m")
    assert len(page) < 1.4 * 12 * 12 * 60 * 60


class _Elements(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.names: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.names.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href")]


def test_tokens_are_not_html():
    elements = []
    for tokens in (HOSTILE, ["a"] * len(HOSTILE)):
        page = attention_page(attention(tokens, None), "</script><b>")
        parser = _Elements()
        parser.feed(page)
        elements.append(parser.names)
        assert data_of(page)["tokens"] == tokens
        assert parser.addresses == ["data:,"]
    assert elements[0] == elements[1] and "b" not in elements[0]
    assert elements[0].count("script") == 2


def test_only_the_pages_own_script_may_run():
    page = attention_page(attention(HOSTILE, None), "m")
    script = re.search(r"<script>(.*?)</script>", page, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline';"
        f" script-src 'sha256-{digest}'" in page
    )


needs_chromium = pytest.mark.skipif(not chromium.CHROMIUM, reason="Chromium is not installed")


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium.open_chromium(tmp_path_factory.mktemp("chromium")) as page:
        yield page


@pytest.fixture
def show(browser, tmp_path):
    """A function that opens the page of some attention; the browser's page is returned."""

    def opened(shown: TextAttention, width: int = 1400, **options: int) -> chromium.Page:
        path = tmp_path / "attention.html"
        path.write_text(attention_page(shown, "m", **options), encoding="utf-8")
        browser.requests.clear()
        browser.errors.clear()
        browser.open(path.as_uri(), width)
        # The page itself, and nothing else.
        assert browser.requests == [path.as_uri()]
        assert browser.errors == []
        return browser

    return opened


LINES = """[...document.querySelectorAll('svg line')].map((line) => ['y1', 'y2', 'stroke-opacity',
  'class'].map((name) => line.getAttribute(name)))"""


def drawn(page: chromium.Page, exponent: float) -> dict[tuple[int, int], tuple[float, str]]:
    """Returns the weight and the class of each line by its tokens, as opacity tells it."""
    return {
        (int(float(y1)), int(float(y2))): (float(opacity) ** (1 / exponent), side)
        for y1, y2, opacity, side in page.evaluate(LINES)
    }


def check_lines(page: chromium.Page, weights: np.ndarray, chosen: np.ndarray, exponent=0.75):
    """Checks that the lines are those of `weights` [S, S] where `chosen`, bool [S, S], is set."""
    lines = drawn(page, exponent)
    expected = {(int(i), int(j)) for i, j in np.argwhere(chosen & (weights > 2e-5))}
    assert {*lines} == expected and expected
    for (i, j), (weight, side) in lines.items():
        assert abs(weight - weights[i, j]) < 0.005
        assert side == "ab"[PAIR.segment_ids[i]]


def title(page: chromium.Page) -> str:
    return page.evaluate("document.getElementById('head-title').textContent")


EVERY = np.ones((7, 7), bool)
IN_B = PAIR.segment_ids == 1
SPECIAL = np.array([token in ("[CLS]", "[SEP]") for token in PAIR.tokens])


@needs_chromium
def test_the_lines_are_those_of_the_chosen_head(show):
    page = show(PAIR, layer=1, head=2)
    assert title(page) == "Layer 1, head 2"
    check_lines(page, PAIR.probabilities[1, 2], EVERY)
    # The strongest lie over the others.
    opacities = [float(line[2]) for line in page.evaluate(LINES)]
    assert opacities == sorted(opacities)
    page.evaluate("document.querySelectorAll('#grid button')[2 * 4 + 3].click()")
    assert title(page) == "Layer 2, head 3"
    check_lines(page, PAIR.probabilities[2, 3], EVERY)
    page.evaluate(
        "const s = document.getElementById('layer'); s.value = 0;"
        "s.dispatchEvent(new Event('change'))"
    )
    check_lines(page, PAIR.probabilities[0, 3], EVERY)


@needs_chromium
def test_the_overview_has_every_head(show):
    page = show(PAIR)
    pixels = page.evaluate(
        "[...document.querySelectorAll('#grid canvas')].map((canvas) => [...canvas.getContext("
        "'2d').getImageData(0, 0, canvas.width, canvas.height).data].filter((_, i) => i % 4 == 3))"
    )
    opacity = np.array(pixels, float).reshape(PAIR.probabilities.shape) / 255
    np.testing.assert_allclose(opacity, PAIR.probabilities**0.6, rtol=0, atol=0.012)


@needs_chromium
def test_the_keyboard_alone_is_enough(show):
    page = show(PAIR)
    label = "document.activeElement.getAttribute('aria-label')"
    ring = "getComputedStyle(document.activeElement).outlineStyle"
    page.press("Tab")
    assert page.evaluate(label) == "Layer 0, head 0"
    page.press("ArrowDown", "ArrowRight", "ArrowRight")
    assert page.evaluate(label) == title(page) == "Layer 1, head 2"
    assert page.evaluate(ring) == "solid"
    check_lines(page, PAIR.probabilities[1, 2], EVERY)
    page.press("End", "ArrowRight", "ArrowUp", "ArrowUp")  # stays inside
    assert title(page) == "Layer 0, head 3"
    # One stop each: the two lists, the sentences, the check box.
    page.press("Tab", "Tab", "Tab", "Tab")
    assert page.evaluate("document.activeElement.id") == "special"
    page.press("Tab")
    assert page.evaluate(label) == "[CLS], sentence A"
    page.press("ArrowDown", "ArrowDown")
    assert page.evaluate(label) == "cat, sentence A"
    assert page.evaluate(ring) == "solid"
    row = np.arange(7)[:, np.newaxis] == 2
    check_lines(page, PAIR.probabilities[0, 3], row & EVERY, exponent=0.5)
    status = page.evaluate("document.getElementById('status').textContent")
    strongest = int(np.argmax(PAIR.probabilities[0, 3, 2]))
    figure = 100 * PAIR.probabilities[0, 3, 2, strongest]
    assert re.match(rf"“cat” attends to “{re.escape(PAIR.tokens[strongest])}” \d+%", status)
    assert abs(int(re.search(r" (\d+)%", status)[1]) - figure) < 1
    page.press("ArrowRight", "End")
    assert page.evaluate(label) == "[SEP], sentence B"
    column = np.arange(7)[np.newaxis] == 6
    check_lines(page, PAIR.probabilities[0, 3], column & EVERY, exponent=0.5)
    selected = (
        "[...document.querySelectorAll('#lines [aria-selected=true]')].map((x) => x.ariaLabel)"
    )
    assert page.evaluate(selected) == ["[SEP], sentence B"]
    page.press("Escape")
    check_lines(page, PAIR.probabilities[0, 3], EVERY)


@needs_chromium
def test_lines_between_the_sentences(show):
    page = show(PAIR)
    weights = PAIR.probabilities[0, 0]
    for part, rows, columns in (("AB", ~IN_B, IN_B), ("BA", IN_B, ~IN_B), ("BB", IN_B, IN_B)):
        page.evaluate(f"document.querySelector('input[value={part}]').click()")
        check_lines(page, weights, np.outer(rows, columns))
    page.evaluate("document.getElementById('special').click()")
    check_lines(page, weights, np.outer(IN_B & ~SPECIAL, IN_B & ~SPECIAL))
    page = show(attention(["[CLS]", "one", "[SEP]"], None))
    assert page.evaluate("document.getElementById('parts').offsetHeight") == 0


@needs_chromium
def test_hostile_tokens_are_shown_as_they_are(show):
    page = show(attention(HOSTILE, 3))
    assert (
        page.evaluate("[...document.querySelectorAll('#from bdi')].map((x) => x.textContent)")
        == HOSTILE
    )
    assert page.evaluate("document.querySelectorAll('b, img').length") == 0


CONTRAST = """(() => {
  const light = (color) => color.match(/[\\d.]+/g).slice(0, 3).map((value) => value / 255)
    .map((x) => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4)
    .reduce((sum, x, i) => sum + x * [0.2126, 0.7152, 0.0722][i], 0);
  const page = light(getComputedStyle(document.body).backgroundColor);
  const style = (query) => getComputedStyle(document.querySelector(query));
  const inks = [style('h1').color, style('.quiet').color, style('#from li bdi').color,
    style('line.a').stroke, style('line.b').stroke].map(light);
  return inks.map((ink) => (Math.max(ink, page) + 0.05) / (Math.min(ink, page) + 0.05));
})()"""
SIZES = """(() => {
  const items = [...document.querySelectorAll('li bdi')];
  return {
    font: Math.min(...items.map((x) => parseFloat(getComputedStyle(x).fontSize))),
    row: Math.min(...items.map((x) => x.parentNode.getBoundingClientRect().height)),
    cut: items.filter((x) => x.scrollWidth > x.clientWidth).length,
    wide: document.documentElement.scrollWidth - innerWidth,
    lines: document.querySelector('svg').getBoundingClientRect().width,
  };
})()"""


@needs_chromium
def test_60_tokens_can_be_read_in_light_and_dark(show):
    words = ["[CLS]", *(["internationalization", "##s", "cat"] * 20)[:58], "[SEP]"]
    page = show(attention(words, 30, layers=12, heads=12))
    pictures = set()
    for scheme in ("light", "dark"):
        page.prefer(scheme)
        assert min(page.evaluate(CONTRAST)) > 4.5  # WCAG AA
        picture = page.screenshot()
        assert picture.startswith(b"\x89PNG")
        pictures.add(picture)
    assert len(pictures) == 2
    for width in (1400, 480):
        page = show(attention(words, 30, layers=12, heads=12), width)
        sizes = page.evaluate(SIZES)
        assert sizes["font"] >= 12 and sizes["row"] >= 16 and sizes["lines"] >= 100, sizes
        assert sizes["wide"] <= 0, sizes
        assert width < 1000 or sizes["cut"] == 0, sizes
