"""The README.md of an exported folder: what is in it, and the lines that call the model."""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from bert_tf.export.settings import LITERT, ONNX, SAVED_MODEL
from bert_tf.export.signatures import POSITIONS

_TITLES = {ONNX: "for ONNX Runtime", LITERT: "for LiteRT"}
_PACKAGES = {ONNX: "onnxruntime numpy", LITERT: "ai-edge-litert numpy"}


def readme(
    description: str,
    output_format: str,
    inputs: Mapping[str, tf.TensorSpec],
    outputs: Mapping[str, tf.TensorSpec],
    labels: Sequence[str],
    tokens: Sequence[str],
    ids: Sequence[int],
) -> str:
    """Returns the text of README.md, for a model that takes ids.

    Args:
        description: of the model, on one line.
        output_format: one of `settings.FORMATS`.
        inputs, outputs: of the signature.
        labels: classes of the model; () without any.
        tokens, ids: of the example.
    """
    names = {name: _shape(spec) for name, spec in (*inputs.items(), *outputs.items())}
    tables = [
        f"| `{name}` | {spec.dtype.name} | {names[name]} |"
        for name, spec in (*inputs.items(), *outputs.items())
    ]
    title = _TITLES.get(output_format, "as a SavedModel")
    package = _PACKAGES.get(output_format, "tensorflow")
    lines = [
        f"# BERT {title}",
        "",
        description,
        "",
        f"`pip install {package}`, then in this folder:",
        "",
        "```python",
        *_call(output_format, inputs, outputs, tokens, ids),
        "```",
        "",
        "| Input or output | Type | Shape |",
        "|---|---|---|",
        *tables,
        "",
        "`input_ids` are ids of word pieces, their numbers in `vocab.txt` from 0, padded with 0 to"
        " one length. `input_mask` is 1 for",
        "tokens and 0 for padding. `segment_ids` is 1 for the tokens of the second text and its"
        " [SEP], 0 for all others.",
    ]
    if POSITIONS in inputs:
        lines += [
            "`masked_lm_positions` are the places of [MASK] in `input_ids`, from 0; logits at"
            " places that only fill up are to be ignored."
        ]
    if labels:
        lines += ["", "`labels.txt` names the classes in the order of the outputs' last axis."]
    lines += [
        "",
        "`export.json` says the same for programs. `bert_config.json`, `vocab.txt` and"
        " `tokenizer_config.json` are those of the model.",
    ]
    return "\n".join(lines) + "\n"


def _shape(spec: tf.TensorSpec) -> str:
    sizes = ["any" if size is None else str(size) for size in spec.shape]
    return f"[{', '.join(sizes)}]"


def _call(
    output_format: str,
    inputs: Mapping[str, tf.TensorSpec],
    outputs: Mapping[str, tf.TensorSpec],
    tokens: Sequence[str],
    ids: Sequence[int],
) -> list[str]:
    """Returns the lines of Python that call the model."""
    shape = list(inputs["input_ids"].shape)
    tokens, ids = tokens[: shape[-1]], list(ids[: shape[-1]])
    comment = f"  # {' '.join(tokens)}"
    if shape == [None, None]:
        array = [f"ids = np.array([{ids}], np.int32){comment}"]
    else:
        free = (1, len(ids)) if len(shape) == 2 else (1, 4, len(ids))
        sizes = [x if x is not None else y for x, y in zip(shape, free, strict=True)]
        array = [f"ids = np.zeros({sizes}, np.int32)", f"ids[..., :{len(ids)}] = {ids}{comment}"]
    lines = {
        ONNX: [
            "import numpy as np",
            "import onnxruntime",
            "",
            'session = onnxruntime.InferenceSession("model.onnx")',
            "names = [output.name for output in session.get_outputs()]",
        ],
        LITERT: [
            "import numpy as np",
            "from ai_edge_litert.interpreter import Interpreter",
            "",
            'model = Interpreter("model.tflite").get_signature_runner()',
        ],
    }.get(
        output_format,
        [
            "import numpy as np",
            "import tensorflow as tf",
            "",
            'loaded = tf.saved_model.load(".")',
            'model = loaded.signatures["serving_default"]',
        ],
    )
    lines += [
        *array,
        "mask = (ids > 0).astype(np.int32)",
        'inputs = {"input_ids": ids, "input_mask": mask, "segment_ids": 0 * ids}',
    ]
    if POSITIONS in inputs:
        lines.append(f'inputs["{POSITIONS}"] = np.ones([len(ids), 1], np.int32)')
    lines.append(
        {
            ONNX: "outputs = dict(zip(names, session.run(names, inputs)))",
            LITERT: "outputs = model(**inputs)",
        }.get(output_format, "outputs = model(**{x: tf.constant(y) for x, y in inputs.items()})")
    )
    best = next(n for n in ("probabilities", "vectors", *outputs) if n in outputs)
    values = ".numpy()" if output_format == SAVED_MODEL else ""
    lines.append(f'print(outputs["{best}"]{values})')
    return lines
