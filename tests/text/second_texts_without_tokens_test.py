"""Pairs, cut or without second tokens: the ids of the package `tokenizers`, or the original's."""

import json

import numpy as np
import pytest
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, processors

import bert_tf
from bert_tf.pretrained import text_input
from bert_tf.tasks.classification.examples import ClassificationEncoder, InputExample
from bert_tf.text.tokenizers import load_tokenizer
from tests.support.byte_pair_files import write_vocabulary
from tests.support.model_folders import VOCAB

LENGTH = 9
MANY = "the cat sat on a mat the cat sat on a mat"
PAIRS = [
    ("the cat", ""),
    ("the cat sat on a mat the cat sat", ""),  # cut to leave room for the special tokens
    ("", ""),
    ("cat", " "),
    ("", "the mat"),
    ("a", "a mat the cat sat on"),
    *((MANY[:i], MANY[:j]) for i in (7, 11, 14, 41) for j in (7, 11, 16, 41)),
    "the cat",
    "",
]
DROPPED = [("the cat", "\0"), ("the mat", "\u200b \ufeff")]  # BERT's tokenizer leaves nothing


def of_bert(folder):
    (folder / "vocab.txt").write_text("\n".join(VOCAB))
    theirs = tokenizers.Tokenizer(
        models.WordPiece({x: i for i, x in enumerate(VOCAB)}, unk_token="[UNK]")
    )
    theirs.normalizer = normalizers.BertNormalizer()
    theirs.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = [(x, VOCAB.index(x)) for x in ("[SEP]", "[CLS]")]
    theirs.post_processor = processors.BertProcessing(*special)
    return folder / "vocab.txt", theirs, PAIRS + DROPPED


def of_roberta(folder):
    path = write_vocabulary(folder, ["Ġ c", "Ġc a", "Ġca t"])
    theirs = tokenizers.Tokenizer(models.BPE.from_file(path, str(folder / "merges.txt")))
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = [(x, theirs.token_to_id(x)) for x in ("</s>", "<s>")]
    theirs.post_processor = processors.RobertaProcessing(*special, trim_offsets=False)
    return path, theirs, PAIRS


def padded(ids, length=LENGTH):
    return [*ids, *[0] * (length - len(ids))]


# With the graph, which takes seconds to make.
@pytest.mark.parametrize(
    ("kind", "length", "graph"),
    [(of_bert, LENGTH, (True, False)), *((x, LENGTH + 1, (False,)) for x in (of_bert, of_roberta))],
)
def test_ids_are_the_package_s_in_a_folder_of_hugging_face(kind, length, graph, tmp_path):
    path, theirs, texts = kind(tmp_path)
    name = {of_bert: "BertTokenizer", of_roberta: "RobertaTokenizer"}[kind]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name}))
    theirs.enable_truncation(length)
    encoded = [theirs.encode(*([x] if isinstance(x, str) else x)) for x in texts]
    tokenizer = load_tokenizer(str(path), kind is of_bert)
    rows = text_input.encode(texts, tokenizer, length)
    assert [row["input_ids"] for row in rows] == [x.ids for x in encoded]
    assert [row["segment_ids"] for row in rows] == [x.type_ids for x in encoded]
    encoder = ClassificationEncoder(tokenizer, length, ["0"])
    pairs = [(x, None) if isinstance(x, str) else x for x in texts]
    for pair, one in zip(pairs, encoded, strict=True):
        example = InputExample("1", *pair, "0")
        ids = [tokenizer.encode([x])[0].tolist() for x in encoder.texts(example)]
        (record,) = encoder.records(example, ids)
        assert record["input_ids"] == padded(one.ids, length)
        assert encoder.length_needed(ids) >= len(one.ids)
    both = [(x, one) for x, one in zip(texts, encoded, strict=True) if not isinstance(x, str)]
    firsts, seconds = (list(x) for x in zip(*(x for x, _ in both), strict=True))
    for in_graph in graph:
        found = bert_tf.Preprocessor(tokenizer, length, in_graph)((firsts, seconds))
        for values, kind in (("input_ids", "ids"), ("segment_ids", "type_ids")):
            expected = [padded(getattr(x, kind), length) for _, x in both]
            np.testing.assert_array_equal(found[values], expected)
    short = [(x, one.ids) for x, one in zip(texts, encoded, strict=True) if len(one.ids) < length]
    windows = text_input.TextRows([x for x, _ in short], tokenizer, length, "mean", None)
    assert [row["input_ids"] for row in windows.rows] == [ids for _, ids in short]


@pytest.mark.parametrize("in_graph", [True, False])
def test_such_a_pair_is_a_single_text_in_a_folder_of_the_original(in_graph, tmp_path):
    path, _, texts = of_bert(tmp_path)
    tokenizer = load_tokenizer(str(path), True)
    pairs = [x for x in texts if not isinstance(x, str) and not x[1].strip("\0\u200b \ufeff")]
    singles = [first for first, _ in pairs]
    made = text_input.encode(pairs, tokenizer, LENGTH)
    assert made == text_input.encode(singles, tokenizer, LENGTH)
    found = bert_tf.Preprocessor(tokenizer, LENGTH, in_graph)((singles, [x for _, x in pairs]))
    np.testing.assert_array_equal(found["input_ids"], [padded(x["input_ids"]) for x in made])
