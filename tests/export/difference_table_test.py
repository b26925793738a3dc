"""The table of docs/serving.md: how far each head in each format is from the programs' outputs.

    python -m tests.export.difference_table_test

prints it anew.
"""

import re
import tempfile
from pathlib import Path

import pytest

from bert_tf.export import running
from bert_tf.export.exporting import export
from bert_tf.export.settings import FORMATS, ExportSettings
from bert_tf.export.signatures import HEADS, input_specs
from bert_tf.pretrained.folder import read_folder
from tests.export.exporting_test import BOUNDS
from tests.support.exported_heads import program_outputs, write_head
from tests.support.model_folders import CONFIG

PAGE = Path(__file__).resolve().parents[2] / "docs" / "serving.md"


def difference(folder: Path, head: str, output_format: str) -> float:
    """Returns the largest difference of a head's outputs in a format."""
    source = write_head(folder / "model", head)
    output = str(folder / "export")
    export(ExportSettings(input=source, output=output, format=output_format, input_kind="ids"))
    inputs = running.sample_inputs(input_specs(head), CONFIG["vocab_size"], 32)
    expected = program_outputs(head, read_folder(source), inputs)
    run = running.open_exported(output, output_format, "serving_default")
    return running.largest_difference(expected, run(inputs))


def rows() -> dict[str, list[float]]:
    """Returns the figures of the page, by head."""
    found = re.findall(
        r"^\| `(\w+)` \| ([\d.e-]+) \| ([\d.e-]+) \| ([\d.e-]+) \|$", PAGE.read_text(), re.M
    )
    return {head: [float(figure) for figure in figures] for head, *figures in found}


def test_the_page_has_each_head_within_the_bounds():
    assert {*rows()} == {*HEADS}
    for head, figures in rows().items():
        for output_format, figure in zip(FORMATS, figures, strict=True):
            assert figure <= BOUNDS[output_format], f"{head}, {output_format}"


@pytest.mark.slow
@pytest.mark.parametrize("output_format", FORMATS)
@pytest.mark.parametrize("head", HEADS)
def test_the_figures_are_those_of_the_page(tmp_path, head, output_format):
    """To rounding, which differs between processors."""
    measured = difference(tmp_path, head, output_format)
    said = dict(zip(FORMATS, rows()[head], strict=True))[output_format]
    assert measured <= max(5 * said, BOUNDS[output_format] / 5)


if __name__ == "__main__":
    print("| Head | SavedModel | ONNX | LiteRT |\n|---|--:|--:|--:|")
    for name in HEADS:
        figures = []
        for kind in FORMATS:
            with tempfile.TemporaryDirectory() as place:
                figures.append(f"{difference(Path(place), name, kind):.1e}")
        print(f"| `{name}` | {' | '.join(figures)} |")
