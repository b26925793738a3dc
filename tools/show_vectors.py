r"""Draws the vectors of texts as points on a plane, and writes them for TensorBoard's projector.

    python -m tools.show_vectors --vectors=means.npz --texts=texts.txt --labels=labels.txt \
        --output_dir=output/vectors

--vectors is an archive of extract_features.py with --output_format=npz, --texts the file that it
read. A line of --labels is the class of that text, which sets the point's colour. The tool writes

    pca.png, tsne.png       the points, by principal components and by t-SNE
    vectors.tsv, metadata.tsv, projector_config.pbtxt
                            the vectors with texts and classes; to see them, run
                            `tensorboard --logdir=output/vectors` and choose Projector

Vectors are divided by their lengths first, so that near points have a large cosine. t-SNE keeps
neighbours together, but distances between far groups mean nothing. The same vectors always give the
same pictures. Up to 60 texts are written beside their points.
"""

if __name__ == "__main__" and not __package__:
    raise SystemExit("Run this from the folder above: python -m tools.show_vectors")

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from absl import flags, logging

from bert_tf.errors import UserError
from bert_tf.files import storage
from bert_tf.files.whole_files import UnfinishedFile, write_whole
from bert_tf.runs.flags import command_flags

from . import search
from .draw.pictures import import_matplotlib, write_png
from .search import read_archive, read_lines

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FLAGS = flags.FLAGS

METHODS = {"pca": "principal components", "tsne": "t-SNE"}
_MOST_TEXTS = 60  # more texts in a picture could not be read
_LONGEST_TEXT = 40  # characters of a text in a picture
_SIZE = (11, 8)  # inches of a picture
_FONT = 7  # points
_RISES = (0.0, 7.0, -7.0, 14.0, -14.0)  # of a text above its point, in points, preferred first
_PERPLEXITY = 30.0  # of t-SNE, as in its paper; lower for few points
_FEW_POINTS = 1000
_COLORS = 10
_MARKERS = "os^vDPX*"  # the next one each time the colours of the classes repeat
_MOST_CLASSES = _COLORS * len(_MARKERS)


def project(vectors: np.ndarray, method: str) -> np.ndarray:
    """Returns the position in the plane, float [n, 2], of each vector, float32 [n, H]; n >= 3."""
    # These take seconds to import.
    import threadpoolctl
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    if method == "pca":
        return PCA(2, random_state=0).fit_transform(vectors)
    perplexity = min(_PERPLEXITY, (len(vectors) - 1) / 3)
    tsne = TSNE(2, perplexity=perplexity, init="pca", random_state=0)
    # With few points threads only wait for each other, for minutes on a busy machine.
    threads = 1 if len(vectors) <= _FEW_POINTS else None
    with threadpoolctl.threadpool_limits(threads, "openmp"):
        return tsne.fit_transform(vectors)


def text_offsets(places: np.ndarray, texts: Sequence[str]) -> list[tuple[float, float]]:
    """Returns the offset from each point to its text's start (x > 0) or end, in 1/72 inch.

    A text runs towards the middle of the picture, so that it stays inside. It is above, beside or
    below its point, where it covers the least of the earlier texts.
    """
    spread = np.ptp(places, axis=0)
    points = (places - places.min(axis=0)) / np.where(spread == 0, 1, spread)
    points *= 0.8 * 72 * np.array(_SIZE)  # in points of the picture, nearly
    taken = np.stack([points - 3, points + 3], axis=1)  # boxes: their lower and upper corners
    offsets = []
    for (x, y), text in zip(points, texts, strict=True):
        width, height = 0.52 * _FONT * len(text), 1.2 * _FONT
        shift = 5.0 if x < 0.4 * 72 * _SIZE[0] else -5.0
        left = x + shift if shift > 0 else x + shift - width
        boxes = [
            np.array([[left, y + rise - height / 2], [left + width, y + rise + height / 2]])
            for rise in _RISES
        ]
        best = int(np.argmin([_overlap(box, taken) for box in boxes]))
        taken = np.concatenate([taken, boxes[best][np.newaxis]])
        offsets.append((shift, _RISES[best]))
    return offsets


def _overlap(box: np.ndarray, others: np.ndarray) -> float:
    """Returns the area of a box, float [2, 2], that other boxes, float [n, 2, 2], cover."""
    sides = np.minimum(box[1], others[:, 1]) - np.maximum(box[0], others[:, 0])
    return float(np.clip(sides, 0, None).prod(axis=1).sum())


def draw_points(
    places: np.ndarray, texts: Sequence[str], labels: Sequence[str], method: str
) -> "Figure":
    """Returns the picture of points, float [n, 2], with a colour for each class.

    `texts` and `labels` have an item for each point, or are empty. At most 60 texts are drawn.
    """
    matplotlib = import_matplotlib()
    figure = matplotlib.figure.Figure(_SIZE, layout="constrained")
    axes = figure.add_subplot()
    classes = sorted({*labels}) or [""]
    names = np.array(labels if labels else [""] * len(places))
    size = 40 if len(places) <= _MOST_TEXTS else max(6, 24 - len(places) / 250)
    for number, name in enumerate(classes):
        chosen = places[names == name]
        style = {"color": f"C{number % _COLORS}", "marker": _MARKERS[number // _COLORS]}
        axes.scatter(*chosen.T, s=size, alpha=0.8, linewidths=0, label=name, **style)
    if texts and len(texts) <= _MOST_TEXTS:
        short = [text[:_LONGEST_TEXT] + "…" * (len(text) > _LONGEST_TEXT) for text in texts]
        for place, text, (x, y) in zip(places, short, text_offsets(places, short), strict=True):
            align = "left" if x > 0 else "right"
            annotated = {"textcoords": "offset points", "fontsize": _FONT, "ha": align}
            axes.annotate(text, place, (x, y), va="center", **annotated)
    axes.set_title(f"{len(places)} vectors, {METHODS[method]}", fontsize=11)
    axes.set(xticks=[], yticks=[])
    axes.margins(0.08)
    if labels:
        columns = 1 + (len(classes) - 1) // 30
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=9, ncols=columns)
    return figure


def write_projector_files(
    output_dir: str, vectors: np.ndarray, texts: Sequence[str], labels: Sequence[str]
) -> None:
    """Writes the files that TensorBoard's projector reads from its --logdir.

    `texts` and `labels` have an item for each vector, float32 [n, H], or are empty.
    """
    with UnfinishedFile(os.path.join(output_dir, "vectors.tsv")) as file:
        for vector in vectors:
            file.write(("\t".join(f"{x:.7g}" for x in vector) + "\n").encode())
        file.finish()
    columns = {"text": texts, "class": labels}
    columns = {name: values for name, values in columns.items() if values}
    config = 'embeddings {\n  tensor_name: "vectors"\n  tensor_path: "vectors.tsv"\n'
    if columns:
        config += '  metadata_path: "metadata.tsv"\n'
        rows = list(zip(*columns.values(), strict=True))
        # The projector expects no header above a single column.
        rows = [tuple(columns), *rows] if len(columns) > 1 else rows
        lines = ["\t".join(" ".join(value.split()) for value in row) for row in rows]
        write_whole(os.path.join(output_dir, "metadata.tsv"), "\n".join(lines) + "\n")
    write_whole(os.path.join(output_dir, "projector_config.pbtxt"), config + "}\n")


def sample(count: int, most: int) -> np.ndarray:
    """Returns which of `count` points to draw, in order: all, or `most` drawn at random."""
    if count <= most:
        return np.arange(count)
    logging.info("Drawing %d of the %d vectors, chosen at random (--max_points)", most, count)
    return np.sort(np.random.default_rng(0).choice(count, most, replace=False))


def main() -> None:
    import_matplotlib()  # fail before the work
    vectors, texts = read_archive()
    labels = read_lines(FLAGS.labels, "labels", len(vectors)) if FLAGS.labels else []
    if len({*labels}) > _MOST_CLASSES:
        raise UserError(
            f"--labels={FLAGS.labels} must have at most {_MOST_CLASSES} classes, one for each pair"
            f" of colour and marker; it has {len({*labels})}"
        )
    storage.make_output_dir(FLAGS.output_dir)
    write_projector_files(FLAGS.output_dir, vectors, texts, labels)
    rows = sample(len(vectors), FLAGS.max_points)
    drawn_texts = [texts[row] for row in rows] if texts else []
    drawn_labels = [labels[row] for row in rows] if labels else []
    for method in METHODS:
        figure = draw_points(project(vectors[rows], method), drawn_texts, drawn_labels, method)
        write_png(figure, os.path.join(FLAGS.output_dir, f"{method}.png"))
    absolute = FLAGS.output_dir if "://" in FLAGS.output_dir else os.path.abspath(FLAGS.output_dir)
    print(f"Look at the vectors in TensorBoard: tensorboard --logdir={absolute}")


if __name__ == "__main__":
    search.define_archive_flags()
    flags.adopt_module_key_flags(search)
    flags.DEFINE_string("labels", None, "The texts' classes, one on each line.")
    flags.DEFINE_string("output_dir", None, "The folder to write to.", required=True)
    flags.DEFINE_integer(
        "max_points",
        5000,
        "Largest number of points in a picture; t-SNE of 5,000 takes about half a minute. The"
        " projector's files have all vectors.",
        lower_bound=3,
    )
    command_flags.run_program(main)
