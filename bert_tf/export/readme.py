"""Makes the README.md of an export from `templates/`: its files, and how to call the model."""

import string
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bert_tf.export.settings import ENCODER, LITERT, ONNX, SAVED_MODEL
from bert_tf.export.signatures import DEFAULT_SIGNATURE
from bert_tf.pretrained.build import POSITIONS
from bert_tf.pretrained.folder import ModelFolder
from bert_tf.text import sequences
from bert_tf.text.tokenizer_settings import TOKENIZER_CONFIG
from bert_tf.text.tokenizers import WORD_PIECES

EXAMPLE = "the cat sat on the mat"
# Format -> end of the title, and packages to install.
_FORMATS = {
    ONNX: ("for ONNX Runtime", "onnxruntime numpy"),
    LITERT: ("for LiteRT", "ai-edge-litert numpy"),
    SAVED_MODEL: ("as a SavedModel", "tensorflow-cpu"),
}
_TEXTS = {
    "texts": f'"{EXAMPLE}"',
    "second_texts": '"the dog ran"',
    "questions": '"where did the cat sit"',
    "contexts": '"the cat sat on the mat"',
    "choices": '["on the mat", "in the sky"]',
}
# The example prints the first of these outputs, or else the model's first output.
_PRINTED = ("probabilities", "vectors", "values")


def readme(description: Mapping[str, Any], folder: ModelFolder) -> str:
    """Returns the content of README.md; `description` is the content of export.json."""
    config, tokenizer = folder.config, folder.tokenizer
    casing = "uncased" if tokenizer.do_lower_case else "cased"
    numbers = "8-bit integers for matrices" if description["quantize"] else description["dtype"]
    about = (
        f"{config.NAME} with the head `{description['head']}`: {config.num_hidden_layers} layers,"
        f" hidden size {config.hidden_size}, {casing}, {numbers}. Exported by bert-tf."
    )
    first, *_ = tokenizer.files
    word_pieces = f"word pieces, the numbers of their lines in `{WORD_PIECES}` from 0"
    start, end = tokenizer.sequence_tokens
    between = end * tokenizer.layout.separators
    segments = "0."
    if tokenizer.layout.second_segment:
        segments = f"1 for the second text and its `{end}`, 0 for everything else."
    title, packages = _FORMATS[description["format"]]
    return _fill(
        "readme.txt",
        title=title,
        about=about,
        packages=packages,
        call=_call(description, folder).removesuffix("\n"),
        signatures="\n".join(_tables(description["signatures"])),
        pieces=word_pieces if first == WORD_PIECES else f"the pieces of `{first}`",
        special=f"`{start} A {end}`, and two texts as `{start} A {between} B {end}`",
        segments=segments,
        more="".join(f"- {note}\n" for note in _notes(description, folder)),
        files=", ".join(f"`{name}`" for name in {**tokenizer.files, TOKENIZER_CONFIG: ""}),
    )


def _call(description: Mapping[str, Any], folder: ModelFolder) -> str:
    """Returns the code that calls the model and prints an output."""
    template, is_masked_lm = description["format"], description["head"] == "masked_lm"
    interface = description["signatures"][DEFAULT_SIGNATURE]
    inputs, outputs = interface["inputs"], interface["outputs"]
    if "input_ids" in inputs:
        code = _ids(inputs, folder)
    else:
        template = f"{SAVED_MODEL}_text"
        texts = {**_TEXTS, "texts": f'"{EXAMPLE} [MASK]"'} if is_masked_lm else _TEXTS
        code = "\n".join(f"    {name}=tf.constant([{texts[name]}])," for name in inputs)
    printed = [*(["tokens"] if is_masked_lm else []), *_PRINTED, *outputs]
    output = next(name for name in printed if name in outputs)
    return _fill(f"{template}.txt", signature=DEFAULT_SIGNATURE, inputs=code, output=output)


def _notes(description: Mapping[str, Any], folder: ModelFolder) -> Iterator[str]:
    """Yields what callers must know about this model's inputs and outputs."""
    head, config, settings = description["head"], folder.config, folder.vectors
    if head == "masked_lm":
        mask = folder.tokenizer.mask_token
        yield f"`{POSITIONS}`: positions of `{mask}` in `input_ids`, from 0."
    if description["labels"]:
        yield "`labels.txt`: the classes, in the order of the outputs' last axis."
    if head == "classification" and config.is_multi_label:
        yield (
            "`probabilities`: one for each class, since a text can have several; they do not add"
            f" up to 1. A text has the classes with at least {config.threshold:.4g}."
        )
    if head == "regression" and folder.has_sigmoid:
        yield (
            "`values`: the outputs of a cross-encoder. `rank` of bert_tf returns their sigmoids,"
            " 1 / (1 + exp(-value))."
        )
    if head == ENCODER and settings.do_lower_case:
        yield "A text must be lower-cased before it is split into pieces."
    if head == ENCODER and settings.prompt:
        yield f"Put this prompt before each text: {settings.prompt!r}."
    if trained := description["trained_max_seq_length"]:
        yield f"The model was trained with at most {trained} pieces."


def _fill(template: str, **values: str) -> str:
    path = Path(__file__).parent / "templates" / template
    return string.Template(path.read_text(encoding="utf-8")).substitute(values)


def _tables(signatures: Mapping[str, Any]) -> Iterator[str]:
    for name, interface in signatures.items():
        if len(signatures) > 1:
            yield f"\n## Signature `{name}`"
        yield "\n| | Name | Type | Shape |\n|---|---|---|---|"
        for kind, tensors in interface.items():
            for key, tensor in tensors.items():
                sizes = ", ".join("any" if x is None else str(x) for x in tensor["shape"])
                yield f"| {kind.removesuffix('s')} | `{key}` | {tensor['dtype']} | [{sizes}] |"


def _ids(inputs: Mapping[str, Any], folder: ModelFolder) -> str:
    shape, tokenizer = inputs["input_ids"]["shape"], folder.tokenizer
    pieces, _ = tokenizer.encode([EXAMPLE])
    ids = sequences.pack_pair(pieces.tolist(), None, 0, tokenizer.layout)["input_ids"]
    ids = ids[: folder.max_seq_length][: shape[-1]]
    comment = f"  # {' '.join(tokenizer.inv_vocab[i] for i in ids)}"
    if shape == [None, None]:
        lines = [f"ids = np.array([{ids}], np.int32){comment}", "mask = np.ones_like(ids)"]
    else:
        free: Sequence[int] = (1, len(ids)) if len(shape) == 2 else (1, 4, len(ids))
        sizes = [y if x is None else x for x, y in zip(shape, free, strict=True)]
        lines = [
            f"ids = np.zeros({sizes}, np.int32)",
            f"ids[..., :{len(ids)}] = {ids}{comment}",
            "mask = np.zeros_like(ids)",
            f"mask[..., :{len(ids)}] = 1",
        ]
    lines.append('inputs = {"input_ids": ids, "input_mask": mask, "segment_ids": 0 * ids}')
    if POSITIONS in inputs:
        lines.append(f'inputs["{POSITIONS}"] = np.ones([len(ids), 1], np.int32)')
    return "\n".join(lines)
