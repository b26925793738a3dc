"""Tests of tools/show_attention.py: the file, and what a person sees and does in a browser."""

import base64
import hashlib
import html
import json
import logging
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

from bert_tf.pretrained.results import TextAttention
from tests.support.numpy_bert import log_softmax
from tests.support.refusals import refuses
from tools import show_attention
from tools.draw import pictures
from tools.show_attention import COLORS, attention_page, draw_head, draw_heads

LAYERS, HEADS = 3, 4
HOSTILE = ["</script><b>x</b>", "<!--<script>", "@DATA@", "&lt;\u2028'\"", "\u202e<img src=x>", "𝛑"]


def attention(tokens: list[str], length_of_a: int, layers=LAYERS, heads=HEADS) -> TextAttention:
    """Returns random attention; tokens from `length_of_a` on belong to the second text."""
    length = len(tokens)
    logits = np.random.default_rng(length).normal(0, 2.5, (layers, heads, length, length))
    probabilities = np.exp(log_softmax(logits))
    segment_ids = np.arange(length) >= length_of_a
    return TextAttention(tokens, segment_ids.astype(np.int32), probabilities.astype(np.float32))


PAIR = attention(["[CLS]", "the", "cat", "[SEP]", "it", "sat", "[SEP]"], 4)


def data_of(page: str) -> dict:
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


def digest_of(script: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"


def test_tokens_are_not_html():
    elements = []
    for tokens in (HOSTILE, ["a"] * len(HOSTILE)):
        page = attention_page(attention(tokens, len(tokens)), "</script><b>")
        elements.append(re.findall(r"<(!?[-\w]+)", page))
        assert data_of(page)["tokens"] == tokens
        assert re.findall(r'(?:src|href)="(.*?)"', page) == ["data:,"]
    assert elements[0] == elements[1] and not {"b", "img"} & {*elements[0]}
    assert elements[0].count("script") == 2
    # Only the page's own script may run.
    script = re.search(r"<script>(.*?)</script>", page, re.DOTALL)[1]
    rules = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src"
    assert f"{rules} '{digest_of(script)}'" in page


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_chromium = pytest.mark.skipif(not CHROMIUM, reason="Chromium is not installed")

# A script in the page does the actions of a person and records what the page shows after each.
EARLY = """
const errors = [];
addEventListener('error', (event) => errors.push(event.message));
document.addEventListener('securitypolicyviolation', (event) => errors.push(event.blockedURI));
"""
LATE = """
const press = (...keys) => keys.forEach((key) => document.activeElement.dispatchEvent(
  new KeyboardEvent('keydown', {key, bubbles: true, cancelable: true})));
const click = (query, number = 0) => document.querySelectorAll(query)[number].click();
const shown = (value) => ({
  value: value ?? null,
  title: byId('head-title').textContent,
  status: byId('status').textContent,
  lines: [...document.querySelectorAll('svg line')].map((line) => ['y1', 'y2', 'stroke-opacity',
    'class'].map((name) => line.getAttribute(name))),
  focus: document.activeElement.getAttribute('aria-label'),
  ring: getComputedStyle(document.activeElement).outlineStyle,
  selected: [...document.querySelectorAll('#lines [aria-selected=true]')].map((x) => x.ariaLabel),
});
addEventListener('load', () => {
  const steps = [shown(), ...[@ACTIONS@].map((action) => shown(action()))];
  const fetched = performance.getEntriesByType('resource').map((entry) => entry.name);
  document.body.append(element('pre', {id: 'steps'}, JSON.stringify({steps, errors, fetched})));
});
"""


@pytest.fixture
def show(tmp_path):
    """A function that opens a page and returns what it shows at first and after each action."""

    def opened(attention: TextAttention, *actions: str, width=1400, dark=False, **options):
        page = attention_page(attention, "m", **options)
        late = LATE.replace("@ACTIONS@", ", ".join(f"() => {action}" for action in actions))
        for script, place in ((EARLY, '<script type="application/json"'), (late, "</body>")):
            page = page.replace(place, f"<script>{script}</script>{place}")
            page = page.replace("script-src", f"script-src '{digest_of(script)}'")
        path = tmp_path / "attention.html"
        path.write_text(page, encoding="utf-8")
        command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
        command += [f"--user-data-dir={tmp_path}/chromium", f"--window-size={width},1000"]
        command += [f"--blink-settings=preferredColorScheme={int(not dark)}"]
        done = subprocess.run(
            [*command, "--dump-dom", path.as_uri()], capture_output=True, text=True, timeout=120
        )
        found = re.search('<pre id="steps">(.*?)</pre>', done.stdout, re.DOTALL)
        assert found, done.stderr
        written = json.loads(html.unescape(found[1]))
        assert written["errors"] == written["fetched"] == []
        return written["steps"]

    return opened


def check_lines(step: dict, weights: np.ndarray, chosen: np.ndarray, exponent=0.75):
    """Checks that there is a line for each of `weights` [S, S] where `chosen` [S, S] is True."""
    lines = {
        (int(float(y1)), int(float(y2))): (float(opacity) ** (1 / exponent), side)
        for y1, y2, opacity, side in step["lines"]
    }
    expected = {(int(i), int(j)) for i, j in np.argwhere(chosen & (weights > 2e-5))}
    assert {*lines} == expected and expected
    for (i, j), (weight, side) in lines.items():
        assert abs(weight - weights[i, j]) < 0.005
        assert side == "ab"[PAIR.segment_ids[i]]


EVERY = np.ones((7, 7), bool)
IN_B = PAIR.segment_ids == 1
SPECIAL = np.array([token in ("[CLS]", "[SEP]") for token in PAIR.tokens])


@needs_chromium
def test_the_lines_are_those_of_the_chosen_head(show):
    change = "(byId('layer').value = 0, byId('layer').dispatchEvent(new Event('change')))"
    steps = show(PAIR, "click('#grid button', 2 * 4 + 3)", change, layer=1, head=2)
    for step, (layer, head) in zip(steps, [(1, 2), (2, 3), (0, 3)], strict=True):
        assert step["title"] == f"Layer {layer}, head {head}"
        check_lines(step, PAIR.probabilities[layer, head], EVERY)
        # The strongest are drawn last, on top.
        opacities = [float(line[2]) for line in step["lines"]]
        assert opacities == sorted(opacities)


@needs_chromium
def test_the_overview_has_every_head(show):
    pixels = (
        "[...document.querySelectorAll('#grid canvas')].map((canvas) => [...canvas.getContext("
        "'2d').getImageData(0, 0, canvas.width, canvas.height).data].filter((_, i) => i % 4 == 3))"
    )
    opacity = np.array(show(PAIR, pixels)[1]["value"], float)
    opacity = opacity.reshape(PAIR.probabilities.shape) / 255
    np.testing.assert_allclose(opacity, PAIR.probabilities**0.6, rtol=0, atol=0.012)


@needs_chromium
def test_the_keyboard_alone_is_enough(show):
    # Tab stops at these; of radio buttons, only at the checked one.
    stops = """[...document.querySelectorAll('button, select, input, li')].filter((x) =>
      x.tabIndex === 0 && x.checked !== false | x.type === 'checkbox').map((x) =>
      x.id || x.value || x.ariaLabel)"""
    first, *steps = show(
        PAIR,
        stops,
        "document.querySelector('#grid button').focus()",
        "press('ArrowDown', 'ArrowRight', 'ArrowRight')",
        "press('End', 'ArrowRight', 'ArrowUp', 'ArrowUp')",  # stays inside
        "document.querySelector('#from li').focus()",
        "press('ArrowDown', 'ArrowDown')",
        "press('ArrowRight', 'End')",
        "press('Escape')",
    )
    assert steps[0]["value"] == [
        *("Layer 0, head 0", "layer", "head", "all", "special"),
        *("[CLS], sentence A", "[CLS], sentence A"),
    ]
    _, start, moved, corner, token, attends, attended, every = steps
    assert start["focus"] == "Layer 0, head 0" and start["ring"] == "solid"
    assert moved["focus"] == moved["title"] == "Layer 1, head 2" and moved["ring"] == "solid"
    check_lines(moved, PAIR.probabilities[1, 2], EVERY)
    assert corner["title"] == "Layer 0, head 3"
    weights = PAIR.probabilities[0, 3]
    assert token["focus"] == "[CLS], sentence A"
    assert attends["focus"] == "cat, sentence A" and attends["ring"] == "solid"
    row, column = np.arange(7)[:, np.newaxis] == 2, np.arange(7)[np.newaxis] == 6
    check_lines(attends, weights, row & EVERY, exponent=0.5)
    strongest = int(np.argmax(weights[2]))
    told = rf"“cat” attends to “{re.escape(PAIR.tokens[strongest])}” (\d+)%"
    figure = float(re.match(told, attends["status"])[1])
    assert abs(figure - 100 * weights[2, strongest]) < 1
    assert attended["focus"] == "[SEP], sentence B"
    check_lines(attended, weights, column & EVERY, exponent=0.5)
    assert attended["selected"] == ["[SEP], sentence B"] and every["selected"] == []
    check_lines(every, weights, EVERY)


@needs_chromium
def test_lines_between_the_sentences(show):
    parts = ("AB", "BA", "BB")
    radios = [f"click('input[value={part}]')" for part in parts]
    _, *steps = show(PAIR, *radios, "click('#special')")
    sides = {"A": ~IN_B, "B": IN_B}
    for part, step in zip(parts, steps, strict=False):
        check_lines(step, PAIR.probabilities[0, 0], np.outer(sides[part[0]], sides[part[1]]))
    within = np.outer(IN_B & ~SPECIAL, IN_B & ~SPECIAL)
    check_lines(steps[-1], PAIR.probabilities[0, 0], within)
    single = attention(["[CLS]", "one", "[SEP]"], 3)
    assert show(single, "byId('parts').offsetHeight")[1]["value"] == 0


@needs_chromium
def test_hostile_tokens_are_shown_as_they_are(show):
    texts = "[...document.querySelectorAll('#from bdi')].map((x) => x.textContent)"
    elements = "document.querySelectorAll('b, img').length"
    _, tokens, count = show(attention(HOSTILE, 3), texts, elements)
    assert (tokens["value"], count["value"]) == (HOSTILE, 0)


CONTRAST = """(() => {
  const light = (color) => color.match(/[\\d.]+/g).slice(0, 3).map((value) => value / 255)
    .map((x) => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4)
    .reduce((sum, x, i) => sum + x * [0.2126, 0.7152, 0.0722][i], 0);
  const page = light(getComputedStyle(document.body).backgroundColor);
  const style = (query) => getComputedStyle(document.querySelector(query));
  const inks = [style('h1').color, style('.quiet').color, style('#from li bdi').color,
    style('line.a').stroke, style('line.b').stroke].map(light);
  const contrasts = inks.map((ink) => (Math.max(ink, page) + 0.05) / (Math.min(ink, page) + 0.05));
  return [page, Math.min(...contrasts)];
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
    shown = attention(words, 30, layers=12, heads=12)
    assert len(attention_page(shown, "m")) < 1.4 * 12 * 12 * 60 * 60
    pages = []
    for width, dark in ((1400, False), (500, True)):
        _, colors, figures = show(shown, CONTRAST, SIZES, width=width, dark=dark)
        page, contrast = colors["value"]
        pages.append(page)
        assert contrast > 4.5  # WCAG AA
        sizes = figures["value"]
        assert sizes["font"] >= 12 and sizes["row"] >= 16 and sizes["lines"] >= 100, sizes
        assert sizes["wide"] <= 0, sizes
        assert width < 1000 or sizes["cut"] == 0, sizes
    assert pages[0] > 0.9 and pages[1] < 0.1


ATTENTION = attention(["[CLS]", "$x_2$", "\\frac", "[SEP]", "%s"], 4, layers=2, heads=3)


def test_the_grid_has_each_head_in_its_place():
    axes = draw_heads(ATTENTION).axes
    assert len(axes) == 6
    for number, square in enumerate(axes):
        shown = square.images[0].get_array()
        np.testing.assert_allclose(shown, ATTENTION.probabilities[number // 3, number % 3] ** 0.6)
        assert square.images[0].get_clim() == (0, 1)
    assert [square.get_title() for square in axes] == ["0", "1", "2", "", "", ""]
    assert [square.get_ylabel() for square in axes] == ["0", "", "", "1", "", ""]


def test_the_lines_of_one_head():
    from matplotlib.colors import to_rgb

    (axes,) = draw_head(ATTENTION, 1, 2).axes
    weights = ATTENTION.probabilities[1, 2]
    (lines,) = axes.collections
    ends, colors = lines.get_segments(), lines.get_colors()
    assert len(ends) == 25
    for ((x0, i), (x1, j)), color in zip(ends, colors, strict=True):
        assert (x0, x1) == (0, 1)
        assert color[3] == pytest.approx(weights[int(i), int(j)] ** 0.75, abs=1e-6)
        assert tuple(color[:3]) == to_rgb(COLORS[int(i == 4)])
    assert axes.get_ylim() == (4.5, -0.5)  # the first token at the top
    texts = [(text.get_text(), text.get_position()[1]) for text in axes.texts]
    assert texts == [(token, row) for row, token in enumerate(ATTENTION.tokens)] * 2


def test_pictures_are_written(tmp_path, caplog):
    """What looks like a formula as it is; a character without a font is told."""
    path = tmp_path / "one.png"
    with caplog.at_level(logging.WARNING):
        pictures.write_png(draw_head(ATTENTION, 0, 0), str(path))
        assert path.read_bytes().startswith(b"\x89PNG") and not caplog.records
        tokens, probabilities = ["\U0001fae8"], np.ones((1, 1, 1, 1), np.float32)
        odd = TextAttention(tokens, np.zeros(1, np.int32), probabilities)
        pictures.write_png(draw_head(odd, 0, 0), str(path))
    assert "characters that no installed font has are drawn as boxes" in caplog.text
    for name in ("gone/one.png", "one.png/one.png", ""):
        wrong = f"{tmp_path}/{name}"
        message = f"^--output={wrong} (cannot be written: |must name a file)"
        figure = draw_head(ATTENTION, 0, 0)
        refuses(message, pictures.write_png, figure, wrong, flag="output")


def test_flags_that_do_not_fit(monkeypatch):
    for name, kind in (("a.png", "html"), ("a", "html"), ("a.html", "png")):
        message = rf"--output must end in .{kind} with --format={kind}; rec"
        refuses(message, show_attention.check_output, name, kind)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    message = "A picture needs matplotlib; run `pip install matplotlib`, or"
    refuses(message, show_attention.check_output, "a.png", "png")
    show_attention.check_output("a.html", "html")
    show_attention.check_head(ATTENTION, None, None)
    show_attention.check_head(ATTENTION, 1, 2)
    for layer, head, message in (
        (1, None, "give both --layer and --head, or neither"),
        (2, 2, "--layer must be from 0 to 1 for this model; received 2"),
        (0, -1, "--head must be from 0 to 2 for this model; received -1"),
    ):
        refuses(message, show_attention.check_head, ATTENTION, layer, head)
