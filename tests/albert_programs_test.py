"""ALBERT through the programs: fine-tuned with a SentencePiece model and loaded; pre-trained."""

import json
import random

import numpy as np
import pytest

import bert_tf
from bert_tf.errors import UserError
from bert_tf.export.exporting import export
from bert_tf.export.settings import ExportSettings
from bert_tf.runs.folder import reporting
from tests.support.pretraining_runs import run, variables
from tests.support.sentence_piece_model import write_model
from tests.support.small_classification import VOCAB, WORDS, flags, write_reviews

CONFIG = {
    "vocab_size": 40,
    "embedding_size": 6,
    "hidden_size": 16,
    "num_hidden_layers": 4,
    "num_hidden_groups": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "inner_group_num": 1,
    "max_position_embeddings": 40,
    "type_vocab_size": 2,
    "net_structure_type": 0,
}


def write_albert(folder):
    """Returns the configuration's and the SentencePiece model's path."""
    config = folder / "albert_config.json"
    config.write_text(json.dumps(CONFIG))
    pieces = [*VOCAB[2:5], "▁", *(f"▁{word}" for word in WORDS)]
    return str(config), write_model(folder / "pieces.model", pieces)


def write_text(folder):
    """Returns the path of a text with an empty line after every fifth line."""
    rng = random.Random(3)
    lines = [" ".join(rng.choices(WORDS, k=rng.randint(3, 9))) * (i % 6 > 0) for i in range(120)]
    (folder / "text.txt").write_text("\n".join(lines))
    return str(folder / "text.txt")


def classify_as_the_program(reviews, out):
    """Returns the test texts and a loaded model's results, which equal run_classifier's."""
    model = bert_tf.load(str(out))
    lines = (reviews / "test.csv").read_text().splitlines()[1:]
    texts = [line.split(",")[0] for line in lines]
    results = model.classify(texts)
    found = [[r.probabilities[label] for label in model.labels] for r in results]
    np.testing.assert_allclose(found, np.loadtxt(out / "test_results.tsv"), rtol=1e-5)
    return texts, results


@pytest.mark.slow
def test_a_classifier_is_trained_and_loaded(tmp_path):
    reviews = write_reviews(tmp_path)
    config, model_file = write_albert(tmp_path)
    out = tmp_path / "out"
    log = run(
        *flags(reviews, out, "--do_train", "--do_eval", "--do_predict", "--num_train_epochs=6"),
        f"--bert_config_file={config}",
        f"--vocab_file={model_file}",
        program="run_classifier.py",
    )
    assert "unknown keys, which are ignored: ['net_structure_type']" in log
    assert reporting.read_results(str(out / "eval_results.txt"))["eval_accuracy"] > 0.9
    names = variables(out)
    assert "bert/encoder/transformer/group_1/inner_group_0/LayerNorm_1/gamma/adam_v" in names
    assert not any("layer_0" in name or "group_2" in name for name in names)

    classify_as_the_program(reviews, out)
    saved = tmp_path / "saved"
    export(ExportSettings(input=str(out), output=str(saved), input_kind="ids"))
    assert (saved / "spm.model").read_bytes() == (tmp_path / "pieces.model").read_bytes()
    assert not (saved / "vocab.txt").exists()
    assert "ids of the pieces of `spm.model`" in (saved / "README.md").read_text()
    with pytest.raises(UserError, match="--input_kind=text needs a vocabulary of word pieces"):
        export(ExportSettings(input=str(out), output=str(tmp_path / "text")))

    message = run(
        *flags(reviews, tmp_path / "other", "--do_eval", f"--init_checkpoint={out}"),
        f"--vocab_file={model_file}",
        program="run_classifier.py",
        status=1,
    )
    assert "must be the kind of model that --bert_config_file describes" in message


@pytest.mark.slow
def test_sentence_order_is_pre_trained(tmp_path):
    config, model_file = write_albert(tmp_path)
    lengths = ["--max_seq_length=24", "--max_predictions_per_seq=5"]
    make = [f"--input_file={write_text(tmp_path)}", f"--vocab_file={model_file}", *lengths]
    make += ["--objective=mlm_sop", "--do_whole_word_mask", "--ngram=2", "--dupe_factor=3"]
    run(*make, f"--output_file={tmp_path}/records", program="create_pretraining_data.py")
    out = tmp_path / "out"
    words = [f"--input_file={tmp_path}/records", f"--bert_config_file={config}", *lengths]
    words += ["--train_batch_size=8", "--objective=mlm_sop", "--optimizer=lamb"]
    words += [f"--output_dir={out}"]
    run(*words, "--do_train", "--do_eval", "--num_train_steps=10", "--num_warmup_steps=2")
    results = reporting.read_results(str(out / "eval_results.txt"))
    assert {"sentence_order_loss", "sentence_order_accuracy", "masked_lm_loss"} < results.keys()
    assert "next_sentence_loss" not in results and results["global_step"] == 10
    assert "cls/seq_relationship/output_weights/adam_m" in variables(out / "model.ckpt-10")
