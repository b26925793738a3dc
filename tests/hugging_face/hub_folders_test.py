"""Folders as the Hub has them: ids and outputs of transformers; XLM-RoBERTa and CamemBERT."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

import bert_tf
from bert_tf.model_folder.reader import ModelFiles
from bert_tf.text import sequences
from bert_tf.text.byte_pairs import CAMEMBERT
from bert_tf.text.tokenizers import load_tokenizer
from tests.support.encoded import ids_of_each, placed_pieces, tokens_of_each
from tests.support.hugging_face_folders import assert_same_bits
from tests.support.refusals import refusal
from tools import convert_checkpoint

HUB = Path(os.environ.get("BERT_TF_HUB_FOLDERS", Path(__file__).parent / "hub"))
FOLDERS = sorted(HUB.iterdir())
NAMES = [folder.name for folder in FOLDERS]


@pytest.mark.parametrize("folder", FOLDERS, ids=NAMES)
def test_ids_and_outputs_are_those_of_transformers(folder):
    model = bert_tf.load(folder)
    layout = model.tokenizer.layout
    rows = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    for row in rows:
        ids = [layout.cls_id, *model.tokenizer.encode([row["text"]])[0][:126], layout.sep_id]
        assert ids == row["ids"], row["text"]
    rows = [row for row in rows if "outputs" in row]
    ids = tf.ragged.constant([row["ids"] for row in rows], tf.int32)
    inputs = {"input_ids": ids.to_tensor(model.config.pad_token_id or 0)}
    inputs["input_mask"] = tf.ones_like(ids).to_tensor()
    if "masked_lm" in model.heads:
        inputs["masked_lm_positions"] = tf.ragged.range(ids.row_lengths()).to_tensor()
    output = model.model(inputs)
    if not model.heads:
        output = output.sequence_output
    output = np.asarray(output[0] if isinstance(output, tuple | list) else output)
    for row, found in zip(rows, output.reshape(len(rows), -1), strict=True):
        np.testing.assert_allclose(found[: len(row["outputs"])], row["outputs"], atol=2e-5)


def tensors_of(folder):
    files = map(safetensors.numpy.load_file, folder.glob("*.safetensors"))
    return {name: tensor for file in files for name, tensor in file.items()}


@pytest.mark.parametrize("folder", FOLDERS, ids=NAMES)
def test_there_and_back(tmp_path, folder):
    """What is written has the names and the values that transformers wrote."""
    convert_checkpoint.convert(str(folder), str(tmp_path / "tf"), "checkpoint")
    convert_checkpoint.convert(str(tmp_path / "tf"), str(tmp_path / "hf"), "safetensors")
    assert_same_bits(tensors_of(tmp_path / "hf"), tensors_of(folder))
    before, after = (json.loads((x / "config.json").read_text()) for x in (folder, tmp_path / "hf"))
    ignored = {"qa_dropout", "seq_classif_dropout"}  # a checkpoint has no place for them
    for key in (before.keys() & after.keys()) - ignored:
        assert after[key] == before[key], key
    rows = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    for name in ("tf", "hf"):
        tokenizer = ModelFiles(str(tmp_path / name)).tokenizer()
        layout = tokenizer.layout
        for row, ids in zip(rows, ids_of_each(tokenizer, [x["text"] for x in rows]), strict=True):
            assert [layout.cls_id, *ids[:126], layout.sep_id] == row["ids"]


MODEL = "sentencepiece.bpe.model"


def test_words():
    tokenizer = load_tokenizer(str(HUB / "024" / MODEL), False)
    options = {"separators": 2, "second_segment": 0, "hugging_face": True}
    assert tokenizer.layout == sequences.Layout(0, 2, **options)
    text = " 10  cats, the <mask>"
    pieces = [
        *zip(
            "▁ 1 0 ▁c at s , ▁th e <mask>".split(),
            "1 1 0 c at s , th e <mask>".split(),
            strict=True,
        )
    ]
    begins = [True, False, False, True, False, False, False, True, False, True]
    expected = [(*piece, begin) for piece, begin in zip(pieces, begins, strict=True)]
    assert placed_pieces(tokenizer, text) == expected
    (ids,) = ids_of_each(tokenizer, [text])
    inside = [not piece.begins_word for piece in tokenizer.pieces(text)]
    assert [i in tokenizer.continuations for i in ids] == inside
    assert tokenizer.text_of(ids) == "10 cats, the<mask>"
    assert tokens_of_each(tokenizer, "THE") == [["▁", "T", "<unk>"]]
    assert tokens_of_each(tokenizer.after_lowering(), "THE") == [["▁th", "e"]]


def changed(**changes):
    def change(folder):
        content = json.loads((folder / "tokenizer.json").read_text())
        for part, values in changes.items():
            content[part] = content[part] | values if values else None
        (folder / "tokenizer.json").write_text(json.dumps(content))

    return change


def written(name, content):
    return lambda folder: (folder / name).write_text(json.dumps(content))


def without_mask(folder):
    vocab = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    changed(model={"vocab": [*vocab, ["x", -1.0]]})(folder)


def own_steps(tokenizer_class):
    """Returns what makes the folder's tokenizer.json split at other white space."""

    def change(folder):
        changed(pre_tokenizer=None)(folder)
        written("tokenizer_config.json", {"tokenizer_class": tokenizer_class})(folder)

    return change


OTHER_ENDS = {"vocab": [["<s>", 0], *[[x, 0] for x in ("<pad>", "</s>", "<mask>")]]}
XL = "received 'xlm-roberta-xl', whose layers normalize their input"
ENDS = "must begin and end like XLM-RoBERTa's or CamemBERT's; it begins with"
STEPS = (
    "PreTrainedTokenizerFast takes tokenizer.json as it is, but its normalizer and pre_tokenizer"
    " are not XLM-RoBERTa's"
)
REFUSED = [
    ("023", written("config.json", {"model_type": "xlm-roberta-xl"}), XL),
    ("023", without_mask, ENDS),
    ("023", own_steps("PreTrainedTokenizerFast"), STEPS),
    ("023", changed(model={"byte_fallback": True}), 'its model must be {"type": "Unigram"}'),
    ("024", changed(model=OTHER_ENDS), "must begin and end like"),
    ("026", lambda x: (x / MODEL).write_bytes(b"\x0a\x05"), "a field cannot be read"),
    ("024", lambda x: shutil.copy(HUB / "022" / MODEL, x), "must have the same vocabulary"),
]


def test_what_is_refused(tmp_path):
    for row, (number, change, message) in enumerate(REFUSED):
        folder = shutil.copytree(HUB / number, tmp_path / f"{row}")
        change(folder)
        assert message in refusal(bert_tf.load, folder)
    told = refusal(load_tokenizer, str(HUB / "022" / MODEL), True)  # the casing
    assert "is a SentencePiece model of fairseq, which is trained on text as it is written" in told


def test_the_class_says_how_text_is_split(tmp_path):
    """As in transformers 5, which takes only pieces and characters from the file then."""
    folder = shutil.copytree(HUB / "023", tmp_path / "folder")
    expected = bert_tf.load(folder).tokenizer.encode(["Où est  le café?"])
    own_steps("CamembertTokenizerFast")(folder)
    found = bert_tf.load(folder).tokenizer.encode(["Où est  le café?"])
    assert found[0].tolist() == expected[0].tolist()


@pytest.mark.parametrize("beside", [None, {"model_type": "camembert"}])
def test_a_vocabulary_alone_does_not_say_whose_it_is(tmp_path, caplog, beside):
    shutil.copy(HUB / "022" / MODEL, tmp_path)
    if beside:
        (tmp_path / "bert_config.json").write_text(json.dumps(beside))
    with caplog.at_level("WARNING", logger="absl"):
        tokenizer = load_tokenizer(str(tmp_path / MODEL), False)
    kind = CAMEMBERT if beside else "XLMRobertaTokenizer"
    assert tokenizer.settings.tokenizer_class == kind
    assert ("its ids are taken to be XLM-RoBERTa's" in caplog.text) == (not beside)
