"""Entities from tags of word pieces: as transformers' pipeline, without white space at their ends.

The expected values are those of its 5.24 with the same pieces and scores, less white space at the
ends of entities and entities that were only white space.
"""

import numpy as np
import pytest

from bert_tf.pretrained.methods.tag import TaggedText
from bert_tf.text.byte_pairs import BytePairTokenizer
from bert_tf.text.fast_tokenization import FastTokenizer
from bert_tf.text.sentence_pieces import SentencePieceTokenizer
from tests.support.byte_pair_files import write_vocabulary
from tests.support.model_folders import VOCAB
from tests.support.sentence_piece_model import write_model

LETTERS = {"O": "O", "p": "I-PER", "b": "B-PER", "l": "I-LOC"}


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vocabularies")
    pieces = "[PAD] [CLS] [SEP] [MASK] ▁the ▁cat s ▁ , ▁1 0 t h".split()
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in VOCAB))
    return {
        "bert": FastTokenizer(str(folder / "vocab.txt")),
        "roberta": BytePairTokenizer(
            write_vocabulary(folder, ["Ġ t", "h e", "Ġt he", "c a", "Ġ ca", "Ġca t", "1 2"])
        ),
        "albert": SentencePieceTokenizer(write_model(folder / "small.model", pieces)),
    }


def find(tokenizer, text, tags, labels, strategy, max_seq_length=64):
    """Returns the entities; the tags of the pieces have the logit 1, 2, 3, 1, ..."""
    tagged = TaggedText(text, tokenizer, max_seq_length)
    logits = np.zeros([len(tags) + 2, len(labels)])
    for i, tag in enumerate(tags):
        logits[i + 1, labels.index(tag)] = 1 + i % 3
    assert [len(row["input_ids"]) for row in tagged.rows] == [len(logits)]
    found = tagged.join([logits], labels, strategy)
    assert all(text[e.start : e.end] == e.text == e.text.strip() != "" for e in found)
    return found


PIPELINE = [
    # roberta: t he Ġ Ġcat , Ċ t he Ġ 12 Ġ
    *[
        ("roberta", "the  cat,\nthe 12 ", "ppOpllpbpOl", *case)
        for case in (
            ("simple", "PER the .5933, PER cat .4754, LOC , .7906, PER t .4754, PER he .7906"),
            ("first", "PER the .4754, PER cat,\nthe .6727"),
            ("average", "PER the .5933, LOC cat,\nthe .4055"),
            ("max", "PER the .7112, LOC cat,\nthe .87"),
            ("word", "PER the  cat,\nthe 12 .574"),
        )
    ],
    # The space \u3000 is three pieces.
    ("roberta", "a\u3000the \t t", "ppplppOpb", "first", "PER a\u3000the .4754, PER t .87"),
    ("roberta", "a\u3000the \t t", "ppplppOpb", "average", "PER a\u3000the .6355, PER t .87"),
    ("roberta", "a\u3000the \t t", "ppplppOpb", "word", "PER a\u3000the .5933, PER t .87"),
    # ca t Ġ Ã © ! t he
    ("roberta", "cat é!the", "pppllbOb", "simple",
     "PER cat .6855, LOC é .5933, PER ! .87, PER he .7112"),
    ("roberta", "cat é!the", "pppllbOb", "first", "PER cat .6727, LOC é!the .5933"),
    ("roberta", "cat é!the", "Opblpppp", "word", "PER é!the .87"),  # the tag of its Ġ
    ("roberta", "\n \nthe", "pplpO", "word", "PER the .4754"),
    # ▁the ▁cat s , ▁1 0
    ("albert", "The  cats, 10", "lpbOpp", "simple",
     "LOC The .4754, PER cat .7112, PER s .87, PER 10 .7906"),
    ("albert", "The  cats, 10", "lpbOpp", "first", "LOC The .4754, PER cats, 10 .7112"),
    ("albert", "The  cats, 10", "lpbOpp", "average", "LOC The .4754, PER cats, 10 .5855"),
    ("albert", "the\ncat the", "plp", "max", "LOC the\ncat .7112, PER the .87"),
    ("albert", "the\ncat the", "plp", "word", "PER the .4754, LOC cat .7112, PER the .87"),
    # The first piece is only a space: ▁ s, then ▁ and an unknown letter; in "word" its tag counts.
    ("albert", " s é", "lOpl", "word", "LOC s .4754, PER é .87"),
    ("albert", " s é", "lOOO", "simple", ""),
    ("albert", "the ,", "Olp", "word", "LOC , .7112"),
    ("bert", "unaffable (cats)", "plpOppO", "first", "PER unaffable .4754, PER cats .7112"),
    ("bert", "unaffable (cats)", "plpOlbO", "max", "PER unaffable .87, PER cats .87"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "text", "tags", "strategy", "expected"), PIPELINE)
def test_pieces_with_spaces(tokenizers, kind, text, tags, strategy, expected):
    labels = [*LETTERS.values()]
    found = find(tokenizers[kind], text, [LETTERS[x] for x in tags], labels, strategy)
    shown = [f"{e.label} {e.text} {e.probability:.4f}" for e in found]
    assert ", ".join(x.replace(" 0.", " .").rstrip("0") for x in shown) == expected


@pytest.mark.parametrize(
    ("labels", "tags", "expected"),
    [
        ("O B-A I-A L-A U-A U-B", "U-A U-A B-A L-A U-B", "A the, A cat, A sat on, B mat"),
        ("O B-A I-A L-A U-A", "B-A I-A L-A I-A L-A", "A the cat sat, A on mat"),
        ("O B-A I-A E-A S-A", "S-A E-A B-A E-A I-A", "A the, A cat, A sat on, A mat"),
        ("O B-A M-A E-A S-A", "B-A M-A E-A O S-A", "A the cat sat, A mat"),
        ("O I-A I-B", "I-A I-A I-B O I-A", "A the cat, B sat, A mat"),
        ("O A E-mail", "A A E-mail E-mail O", "A the cat, E-mail sat on"),  # types, not tags
        ("O B-A I-A B I", "B-A B B I O", "A the, B cat sat, I on"),
    ],
)
def test_schemes(tokenizers, labels, tags, expected):
    arguments = tokenizers["bert"], "the cat sat on mat", tags.split(), labels.split()
    found = find(*arguments, "word")
    assert ", ".join(f"{e.label} {e.text}" for e in found) == expected
    single = [e.label for e in find(*arguments, "none")]
    assert single == [tag for tag in tags.split() if tag != "O"]
