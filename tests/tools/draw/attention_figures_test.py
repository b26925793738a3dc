"""Tests of tools/draw/attention_figures.py and pictures.py, and the checks of show_attention."""

import logging
import sys

import numpy as np
import pytest

from bert_tf.errors import UserError
from bert_tf.pretrained.results import TextAttention
from tools import show_attention
from tools.draw import pictures
from tools.draw.attention_figures import COLORS, draw_head, draw_heads

_RANDOM = np.random.default_rng(5)
ATTENTION = TextAttention(
    tokens=["[CLS]", "$x_2$", "\\frac", "[SEP]", "%s"],
    segment_ids=np.array([0, 0, 0, 0, 1], np.int32),
    probabilities=_RANDOM.dirichlet(np.ones(5), (2, 3, 5)).astype(np.float32),
)


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


def test_what_looks_like_a_formula_is_written_as_it_is(tmp_path, caplog):
    path = tmp_path / "one.png"
    with caplog.at_level(logging.WARNING):
        pictures.write_png(draw_head(ATTENTION, 0, 0), str(path))
    assert path.read_bytes().startswith(b"\x89PNG")
    assert not caplog.records


@pytest.mark.parametrize("name", ["gone/one.png", "file/one.png", ""])
def test_a_picture_that_cannot_be_written_names_its_flag(tmp_path, name):
    (tmp_path / "file").write_text("")
    path = f"{tmp_path}/{name}"
    with pytest.raises(UserError, match=f"^--output={path} (cannot be written: |must name a file)"):
        pictures.write_png(draw_head(ATTENTION, 0, 0), path, flag="output")


def test_a_character_without_a_font_is_told(tmp_path, caplog):
    odd = TextAttention(["\U0001fae8"], np.zeros(1, np.int32), np.ones((1, 1, 1, 1), np.float32))
    with caplog.at_level(logging.WARNING):
        pictures.write_png(draw_head(odd, 0, 0), str(tmp_path / "odd.png"))
    assert "characters that no installed font has are drawn as boxes" in caplog.text


def test_matplotlib_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    message = "A picture needs matplotlib; run `pip install matplotlib`, or"
    with pytest.raises(UserError, match=message):
        show_attention.check_output("a.png", "png")
    show_attention.check_output("a.html", "html")


@pytest.mark.parametrize(("name", "kind"), [("a.png", "html"), ("a", "html"), ("a.html", "png")])
def test_the_name_says_what_is_in_the_file(name, kind):
    with pytest.raises(UserError, match=rf"--output must end in .{kind} with --format={kind}; rec"):
        show_attention.check_output(name, kind)


def test_the_head_must_be_there():
    show_attention.check_head(ATTENTION, None, None)
    show_attention.check_head(ATTENTION, 1, 2)
    with pytest.raises(UserError, match="give both --layer and --head, or neither"):
        show_attention.check_head(ATTENTION, 1, None)
    with pytest.raises(UserError, match="--layer must be from 0 to 1 for this model; received 2"):
        show_attention.check_head(ATTENTION, 2, 2)
    with pytest.raises(UserError, match="--head must be from 0 to 2 for this model; received -1"):
        show_attention.check_head(ATTENTION, 0, -1)
