"""Tests of sentence data: columns of tables, bad rows, the sequences of a record."""

import pytest

from bert_tf.errors import UserError
from bert_tf.tasks.example_records import write_records
from bert_tf.tasks.sentences.data import SentenceEncoder, Sentences, read_sentences
from bert_tf.text.fast_tokenization import FastTokenizer
from bert_tf.tokenization import SEQUENCE_TOKENS
from tests.support.record_files import read_sequences

VOCAB = "[PAD] [UNK] [CLS] [SEP] a man is dancing in the rain , too".split()
PAIR = {"text_a_column": "first", "text_b_column": "second"}
SCORED = {**PAIR, "label_column": "score"}
TABLE = 'id|score|second|first\n1|4.5|"a b|c\n\n2|-1e0|d|e\n'.replace("|", "\t")


def read(folder, text, columns=SCORED, name="train.tsv", **options):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    options = {"has_header": True, "delimiter": None, "needed_by": "Training", **options}
    return read_sentences(str(path), columns, **options)


def test_columns_are_chosen_by_name(tmp_path):
    assert read(tmp_path, TABLE) == [Sentences(("c", '"a b'), 4.5), Sentences(("e", "d"), -1.0)]
    assert read(tmp_path, TABLE, PAIR)[0] == Sentences(("c", '"a b'), 0.0)
    assert read(tmp_path, TABLE, {"text_a_column": "second"})[1] == Sentences(("d",), 0.0)


def test_a_csv_file_without_header(tmp_path):
    text = '5;"a; b"\n0;c\n'
    columns = {"text_a_column": "1", "label_column": "0"}
    found = read(tmp_path, text, columns, "dev.csv", has_header=False, delimiter=";")
    assert found == [Sentences(("a; b",), 5.0), Sentences(("c",), 0.0)]


TRIPLETS = "a|p|n\nx|y|z\nu|v|w\n".replace("|", "\t")
TRIPLET = {"text_a_column": "a", "text_b_column": "p", "negative_column": "n"}


def test_a_third_text_is_read_from_its_column(tmp_path):
    columns = {**TRIPLET, "negative_column": "a", "text_a_column": "n"}
    assert read(tmp_path, TRIPLETS, TRIPLET)[1] == Sentences(("u", "v", "w"), 0.0)
    assert read(tmp_path, TRIPLETS, columns)[0] == Sentences(("z", "y", "x"), 0.0)


@pytest.mark.parametrize(
    "text, columns, options, message",
    [
        (TABLE, {**SCORED, "label_column": None}, {}, "^Training needs --label_column; the colu"),
        (TABLE + "3\t1\tx\n", SCORED, {}, "line 5: the line has 3 columns, but the header names 4"),
        (
            *(TABLE, PAIR, {"unread_scores": "score", "loss": "in_batch_negatives"}),
            "^--loss=in_batch_negatives reads no scores and trains every pair .* the score -1; the",
        ),
        (
            TRIPLETS.replace("n\n", "n\ts\n").replace("z", "z\t0.5").replace("w", "w\t5"),
            TRIPLET,
            {"unread_scores": "s", "loss": "triplet"},
            "^--loss=triplet reads no scores and trains every pair .* the score 0.5; the high",
        ),
        (TABLE, SCORED, {"refuse_empty": True}, "line 3: the line is empty, but examples fol"),
        (
            *(TABLE, SCORED, {"score_scale": 4.0}),
            r"line 2: score '4.5' must be a number from -4 to 4 \(--score_scale\); correct or"
            " delete the line, or change --label_column or --score_scale$",
        ),
        (
            *(TABLE.replace("4.5", "high"), SCORED, {}),
            "line 2: score 'high' must be a number; correct .*, or change --label_column$",
        ),
        (TABLE.replace("4.5", "4_5"), SCORED, {}, "score '4_5' must be a number;"),
        (TABLE.replace("4.5", "nan"), SCORED, {}, "score 'nan' must be a number;"),
        (TABLE.replace("4.5", "-inf"), SCORED, {}, "score '-inf' must be a number from -1"),
        *(
            (
                TABLE.replace("4.5", number),
                SCORED,
                {},
                rf"score '{number}' must be a number from -1e\+16 to 1e\+16; correct",
            )
            for number in ("1e39", "-3e38", "2e16")
        ),
        (TABLE.replace("4.5", "9" * 9000), SCORED, {}, "line 2: score '999"),
        *(
            (TRIPLETS.replace(text, "  "), TRIPLET, {}, f"line {line}: the column of --{flag} must")
            for text, line, flag in (
                ("y", 2, "text_b_column"),
                ("w", 3, "negative_column"),
                ("u", 3, "text_a_column"),
            )
        ),
        (
            *(TRIPLETS.replace("z", "x"), TRIPLET, {}),
            "line 2: the text of --negative_column must differ from the other two; it is 'x'",
        ),
        (TRIPLETS.replace("w", "v"), TRIPLET, {}, "line 3: .* differ from the other two; it is"),
    ],
)
def test_what_is_refused(tmp_path, text, columns, options, message):
    with pytest.raises(UserError, match=message) as error:
        read(tmp_path, text, columns, **options)
    assert len(str(error.value)) < 500


def written(folder, sentences, length):
    """Returns the records: pieces of each text, and the score."""
    (folder / "vocab.txt").write_text("\n".join(VOCAB) + "\n")
    tokenizer = FastTokenizer(str(folder / "vocab.txt"), True, SEQUENCE_TOKENS)
    path = str(folder / "file.tf_record")
    encoder = SentenceEncoder(tokenizer, length, len(sentences[0].texts))
    assert write_records(path, sentences, encoder) == len(sentences)
    found = list(read_sequences(path, VOCAB, length))
    assert not any(sum(segments) for texts, _ in found for _, segments in texts)
    return [([text for text, _ in texts], score) for texts, score in found]


def test_each_text_is_a_sequence_of_its_own(tmp_path):
    sentences = [
        Sentences(("A man is dancing.", "a man, too"), 2.5),
        Sentences(("the rain", ""), 0.0),
    ]
    assert written(tmp_path, sentences, 7) == [
        (["[CLS] a man is dancing [UNK] [SEP]", "[CLS] a man , too [SEP]"], 2.5),
        (["[CLS] the rain [SEP]", "[CLS] [SEP]"], 0.0),
    ]


def test_texts_that_are_too_long_are_cut_at_their_ends(tmp_path):
    sentences = [Sentences(("a man is dancing in the rain",)), Sentences(("the rain",))]
    assert written(tmp_path, sentences, 5) == [
        (["[CLS] a man is [SEP]"], 0.0),
        (["[CLS] the rain [SEP]"], 0.0),
    ]
