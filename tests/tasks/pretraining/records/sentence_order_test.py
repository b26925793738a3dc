"""ALBERT's records: golden digests of the original, n-grams, and what the flags refuse."""

import os
from pathlib import Path

import pytest

from bert_tf.datasets.text_files import read_files
from bert_tf.tasks.pretraining.records import data
from bert_tf.tasks.pretraining.records.data_settings import PretrainingDataSettings
from bert_tf.text.sentence_pieces import SentencePieceTokenizer
from tests.support.golden import golden_cases
from tests.support.sentence_piece_model import write_model

# The original's defaults, where they differ from those of BERT's program.
DEFAULTS = {
    "max_seq_length": 512,
    "dupe_factor": 40,
    "do_whole_word_mask": True,
    "do_lower_case": True,
}


class UnknownIs0(dict):
    """A vocabulary of a model without [CLS], [SEP] and [MASK]: the original takes <unk>."""

    def __missing__(self, token):
        return 0


@pytest.mark.parametrize("case", golden_cases("albert/records/golden.json"))
def test_digests_of_the_original(tmp_path, case, monkeypatch):
    golden = Path(os.environ["BERT_TF_GOLDEN"])
    monkeypatch.syspath_prepend(str(golden))
    import records_digest

    model = str(golden / "albert/text" / case["spm_model"])
    settings = PretrainingDataSettings(
        input_file="none",
        output_file="none",
        vocab_file=model,
        objective="mlm_sop",
        **{**DEFAULTS, **case["flags"]},
    )
    tokenizer = SentencePieceTokenizer(model, settings.do_lower_case)
    tokenizer.vocab = UnknownIs0(tokenizer.vocab)
    outputs = [str(tmp_path / f"{i}.tfrecord") for i in range(len(case["digest"]))]
    files = [str(golden / "albert/records" / name) for name in case["inputs"]]
    lines = (lines for _, lines in read_files(files, "input_file", settings.text_field))
    data.write_records(lines, tokenizer, settings, outputs, settings.random_seed)
    assert [records_digest.digest(path) for path in outputs] == case["digest"]


def test_a_line_of_combining_marks_ends_a_document(tmp_path):
    pieces = ["[CLS]", "[SEP]", "[MASK]", "▁the", "▁cat", "▁sat"]
    model = write_model(tmp_path / "small.model", pieces)
    records = []
    for name, line in (("empty", ""), ("marks", "\u0301\u0308"), ("control", "\x07")):
        text = tmp_path / name
        text.write_text("\n".join(["the cat sat", "cat the", line, "sat the", "the the"]))
        settings = PretrainingDataSettings(
            input_file=str(text),
            output_file=f"{text}.tfrecord",
            vocab_file=model,
            objective="mlm_sop",
            max_seq_length=16,
        )
        data.create_pretraining_data(settings)
        records.append(Path(settings.output_file).read_bytes())
    assert records[0] == records[1] != records[2]
