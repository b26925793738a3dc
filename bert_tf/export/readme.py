"""Makes the README.md of an exported folder from `templates/`: its files and how to call it."""

import dataclasses
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

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
    """The inputs and outputs of a signature, by name."""

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
        """Returns the interface for JSON; null stands for any size."""
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
        about: a description of the model, on one line.
        output_format: one of `settings.FORMATS`.
        signatures: by name; formats other than a SavedModel only have the default.
        labels: classes of the model; () if it has none.
        tokens, ids: the example's.
        tokenizer: the model's.
        vocabulary: names of the vocabulary's files.
    """
    interface = signatures[DEFAULT_SIGNATURE]
    template, inputs, output = output_format, "", _first(interface, "probabilities")
    if "input_ids" in interface.inputs:
        inputs = _ids(interface, tokens, ids)
    else:
        template = f"{SAVED_MODEL}_text"
        texts = _texts(interface)
        inputs = "\n".join(f"    {x}=tf.constant([{texts[x]}])," for x in interface.inputs)
        if "[MASK]" in texts["texts"]:
            output = _first(interface, "tokens")
    call = _fill(f"{template}.txt", signature=DEFAULT_SIGNATURE, inputs=inputs, output=output)
    first, *_ = files = list(vocabulary)
    word_pieces = f"word pieces, the numbers of their lines in `{WORD_PIECES}` from 0"
    start, end = tokenizer.sequence_tokens
    special = f"`{start}` and `{end}`"
    if tokenizer.layout.separators > 1:
        special = f"`{start} A {end}`, and two texts as `{start} A {end}{end} B {end}`"
    more = ""
    if any(POSITIONS in interface.inputs for interface in signatures.values()):
        more += f"- `{POSITIONS}`: positions of `{tokenizer.mask_token}` in `input_ids`, from 0.\n"
    if labels:
        more += "- `labels.txt`: the classes, in the order of the outputs' last axis.\n"
    segments = "0."
    if tokenizer.layout.second_segment:
        segments = f"1 for the second text and its `{end}`, 0 for all else."
    return _fill(
        "readme.txt",
        title=_TITLES[output_format],
        about=about,
        packages=_PACKAGES[output_format],
        call=call.removesuffix("\n"),
        signatures="\n".join(_tables(signatures)),
        pieces=word_pieces if first == WORD_PIECES else f"the pieces of `{first}`",
        special=special,
        segments=segments,
        more=more,
        files=", ".join(f"`{name}`" for name in files),
    )


def _fill(template: str, **values: str) -> str:
    path = Path(__file__).parent / "templates" / template
    return string.Template(path.read_text(encoding="utf-8")).substitute(values)


def _tables(signatures: Mapping[str, Interface]) -> Iterator[str]:
    """Yields the lines of tables with the inputs and outputs of each signature."""
    for name, interface in signatures.items():
        if len(signatures) > 1:
            yield f"\n## Signature `{name}`"
        yield "\n| | Name | Type | Shape |\n|---|---|---|---|"
        for kind, specs in (("input", interface.inputs), ("output", interface.outputs)):
            for key, spec in specs.items():
                sizes = ", ".join("any" if size is None else str(size) for size in spec.shape)
                yield f"| {kind} | `{key}` | {spec.dtype.name} | [{sizes}] |"


def _texts(interface: Interface) -> dict[str, str]:
    """Returns an example for each input that is text."""
    is_masked_lm = "logits" not in interface.outputs and {"tokens", "probabilities"}.issubset(
        interface.outputs
    )
    return {**_TEXTS, "texts": f'"{EXAMPLE} [MASK]"'} if is_masked_lm else _TEXTS


def _first(interface: Interface, preferred: str) -> str:
    names = (preferred, "vectors", "values", *interface.outputs)
    return next(name for name in names if name in interface.outputs)


def _ids(interface: Interface, tokens: Sequence[str], ids: Sequence[int]) -> str:
    """Returns the lines of Python that make `inputs` from the ids of the example."""
    shape = list(interface.inputs["input_ids"].shape)
    tokens, ids = tokens[: shape[-1]], list(ids[: shape[-1]])
    comment = f"  # {' '.join(tokens)}"
    if shape == [None, None]:
        lines = [f"ids = np.array([{ids}], np.int32){comment}", "mask = np.ones_like(ids)"]
    else:
        free = (1, len(ids)) if len(shape) == 2 else (1, 4, len(ids))
        sizes = [x if x is not None else y for x, y in zip(shape, free, strict=True)]
        lines = [
            f"ids = np.zeros({sizes}, np.int32)",
            f"ids[..., :{len(ids)}] = {ids}{comment}",
            "mask = np.zeros_like(ids)",
            f"mask[..., :{len(ids)}] = 1",
        ]
    lines.append('inputs = {"input_ids": ids, "input_mask": mask, "segment_ids": 0 * ids}')
    if POSITIONS in interface.inputs:
        lines.append(f'inputs["{POSITIONS}"] = np.ones([len(ids), 1], np.int32)')
    return "\n".join(lines)
