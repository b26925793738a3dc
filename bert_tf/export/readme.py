"""The README.md of an exported folder: what is in it, and the lines that call the model."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import tensorflow as tf

from bert_tf.export.settings import LITERT, ONNX, SAVED_MODEL
from bert_tf.export.signatures import DEFAULT_SIGNATURE, POSITIONS
from bert_tf.text.tokenizers import WORD_PIECES, Tokenizer

EXAMPLE = "the cat sat on the mat"
_TITLES = {ONNX: "for ONNX Runtime", LITERT: "for LiteRT", SAVED_MODEL: "as a SavedModel"}
_PACKAGES = {
    ONNX: "onnxruntime numpy",
    LITERT: "ai-edge-litert numpy",
    SAVED_MODEL: "tensorflow-cpu",
}
_TEXTS = {
    "texts": f'"{EXAMPLE}"',
    "questions": '"where did the cat sit"',
    "contexts": '"the cat sat on the mat"',
    "choices": '["on the mat", "in the sky"]',
}


@dataclasses.dataclass(frozen=True)
class Interface:
    """What a signature takes and gives, by name."""

    inputs: Mapping[str, tf.TensorSpec]
    outputs: Mapping[str, tf.TensorSpec]

    @classmethod
    def of(cls, function: tf.types.experimental.ConcreteFunction) -> "Interface":
        """Returns the interface of a traced function that takes and returns tensors by name."""
        _, inputs = function.structured_input_signature
        outputs = {
            name: tf.TensorSpec(value.shape, value.dtype, name)
            for name, value in function.structured_outputs.items()
        }
        return cls(inputs, outputs)

    def described(self) -> dict[str, object]:
        """Returns the same for JSON; a size is null where it may be any."""
        return {
            kind: {
                name: {"dtype": spec.dtype.name, "shape": list(spec.shape)}
                for name, spec in specs.items()
            }
            for kind, specs in (("inputs", self.inputs), ("outputs", self.outputs))
        }


def readme(
    about: str,
    output_format: str,
    signatures: Mapping[str, Interface],
    labels: Sequence[str],
    tokens: Sequence[str],
    ids: Sequence[int],
    tokenizer: Tokenizer,
    vocabulary: Iterable[str],
) -> str:
    """Returns the text of README.md.

    Args:
        about: what the model is, on one line.
        output_format: one of `settings.FORMATS`.
        signatures: by name; formats other than a SavedModel have the default alone.
        labels: classes of the model; () without any.
        tokens, ids: of the example.
        tokenizer: of the model.
        vocabulary: names of its files.
    """
    interface = signatures[DEFAULT_SIGNATURE]
    takes_ids = "input_ids" in interface.inputs
    call = _call_ids(output_format, interface, tokens, ids) if takes_ids else _call_text(interface)
    lines = [
        f"# BERT {_TITLES[output_format]}",
        "",
        about,
        "",
        f"`pip install {_PACKAGES[output_format]}`, then in this folder:",
        "",
        "```python",
        *call,
        "```",
    ]
    for name, interface in signatures.items():
        if len(signatures) > 1:
            lines += ["", f"## Signature `{name}`"]
        lines += ["", "| | Name | Type | Shape |", "|---|---|---|---|"]
        for kind, specs in (("input", interface.inputs), ("output", interface.outputs)):
            for key, spec in specs.items():
                sizes = ", ".join("any" if size is None else str(size) for size in spec.shape)
                lines.append(f"| {kind} | `{key}` | {spec.dtype.name} | [{sizes}] |")
    lines += ["", "## What they are", ""]
    word_pieces = "word pieces, the numbers of their lines in `vocab.txt` from 0"
    first, *_ = files = list(vocabulary)
    pieces = word_pieces if first == WORD_PIECES else f"the pieces of `{first}`"
    start, end = tokenizer.sequence_tokens
    special = f"`{start}` and `{end}`"
    segments = f"1 for the second text and its `{end}`, 0 for all else."
    if tokenizer.layout.separators > 1:
        special = f"`{start} A {end}`, and two texts as `{start} A {end}{end} B {end}`"
    if not tokenizer.layout.second_segment:
        segments = "0."
    lines += [
        f"- `input_ids`: ids of {pieces}; with {special}, padded with 0 to one length.",
        "- `input_mask`: 1 for tokens, 0 for padding.",
        f"- `segment_ids`: {segments}",
    ]
    if any(POSITIONS in interface.inputs for interface in signatures.values()):
        lines.append(f"- `{POSITIONS}`: places of `{tokenizer.mask_token}` in `input_ids`, from 0.")
    if labels:
        lines.append("- `labels.txt`: the classes, in the order of the outputs' last axis.")
    lines += [
        "- `export.json`: this page for programs.",
        f"- `bert_config.json`, {', '.join(f'`{name}`' for name in files)},"
        " `tokenizer_config.json`: those of the model.",
    ]
    return "\n".join(lines) + "\n"


def _call_text(interface: Interface) -> list[str]:
    """Returns the lines of Python that call a SavedModel with text."""
    texts = dict(_TEXTS)
    if "logits" not in interface.outputs and "tokens" in interface.outputs:
        if "probabilities" in interface.outputs:
            texts["texts"] = f'"{EXAMPLE} [MASK]"'  # the masked language model
    arguments = [f"    {name}=tf.constant([{texts[name]}])," for name in interface.inputs]
    best = _first(interface, "tokens" if "[MASK]" in texts["texts"] else "probabilities")
    return [
        "import tensorflow as tf",
        "",
        'loaded = tf.saved_model.load(".")',
        f'model = loaded.signatures["{DEFAULT_SIGNATURE}"]',
        "outputs = model(",
        *arguments,
        ")",
        f'print(outputs["{best}"].numpy())',
    ]


def _first(interface: Interface, *preferred: str) -> str:
    names = (*preferred, "vectors", "values", *interface.outputs)
    return next(name for name in names if name in interface.outputs)


def _call_ids(
    output_format: str, interface: Interface, tokens: Sequence[str], ids: Sequence[int]
) -> list[str]:
    """Returns the lines of Python that call a model with ids."""
    shape = list(interface.inputs["input_ids"].shape)
    tokens, ids = tokens[: shape[-1]], list(ids[: shape[-1]])
    comment = f"  # {' '.join(tokens)}"
    if shape == [None, None]:
        array = [f"ids = np.array([{ids}], np.int32){comment}", "mask = np.ones_like(ids)"]
    else:
        free = (1, len(ids)) if len(shape) == 2 else (1, 4, len(ids))
        sizes = [x if x is not None else y for x, y in zip(shape, free, strict=True)]
        array = [
            f"ids = np.zeros({sizes}, np.int32)",
            f"ids[..., :{len(ids)}] = {ids}{comment}",
            "mask = np.zeros_like(ids)",
            f"mask[..., :{len(ids)}] = 1",
        ]
    begin = {
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
        SAVED_MODEL: [
            "import numpy as np",
            "import tensorflow as tf",
            "",
            'loaded = tf.saved_model.load(".")',
            f'model = loaded.signatures["{DEFAULT_SIGNATURE}"]',
        ],
    }
    call = {
        ONNX: "outputs = dict(zip(names, session.run(names, inputs)))",
        LITERT: "outputs = model(**inputs)",
        SAVED_MODEL: "outputs = model(**{x: tf.constant(y) for x, y in inputs.items()})",
    }
    lines = [
        *begin[output_format],
        *array,
        'inputs = {"input_ids": ids, "input_mask": mask, "segment_ids": 0 * ids}',
    ]
    if POSITIONS in interface.inputs:
        lines.append(f'inputs["{POSITIONS}"] = np.ones([len(ids), 1], np.int32)')
    values = ".numpy()" if output_format == SAVED_MODEL else ""
    best = _first(interface, "probabilities")
    return [*lines, call[output_format], f'print(outputs["{best}"]{values})']
