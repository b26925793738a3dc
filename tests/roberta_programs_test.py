"""RoBERTa through the programs: pre-trained with dynamic masks, fine-tuned, loaded.

And its vocabulary in the tasks: spaces belong to words, pairs have four special tokens.
"""

import csv
import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

import bert_tf
from bert_tf.engine import distribution
from bert_tf.errors import UserError
from bert_tf.export.exporting import export
from bert_tf.export.settings import ExportSettings
from bert_tf.model.family import read_config
from bert_tf.pretrained.text_input import encode, encode_masks
from bert_tf.runs.flags.settings import TextSettings
from bert_tf.runs.folder import reporting
from bert_tf.runs.training.fine_tuning_checks import make_tokenizer
from bert_tf.tasks.classification.examples import ClassificationEncoder
from bert_tf.tasks.extraction.run import extract_features
from bert_tf.tasks.extraction.settings import ExtractionSettings
from bert_tf.tasks.multiple_choice.data import QuestionEncoder
from bert_tf.tasks.pretraining.records.data import create_pretraining_data
from bert_tf.tasks.pretraining.records.data_settings import PretrainingDataSettings
from bert_tf.tasks.squad import answers, features
from bert_tf.tasks.squad.examples import SquadData, SquadExample, read_squad_examples
from bert_tf.tasks.squad.words import FinalText
from bert_tf.tasks.tagging.data import Sentence, TaggingEncoder, read_sentences
from bert_tf.text.tokenizers import load_tokenizer
from tests.albert_test import classify_as_the_program, write_text
from tests.support.byte_pair_files import word_merges, write_vocabulary
from tests.support.encoded import ids_of_each, tokens_of_each
from tests.support.pretraining_runs import run, variables
from tests.support.record_files import read_records
from tests.support.refusals import refuses
from tests.support.small_classification import WORDS, flags, write_reviews
from tests.support.squad_files import settings_of_lengths
from tools import convert_checkpoint
from tools.build_vocabulary import BYTE_BPE, build_vocabulary

QUICKSTART = Path(__file__).resolve().parents[1] / "flags" / "quickstart"
CONFIG = {
    "model_type": "roberta",
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 42,
}


def vocabulary(vocab_file):
    return json.loads(Path(vocab_file).read_text(encoding="utf-8"))


def write_roberta(folder):
    """Returns the configuration's and the vocabulary's path."""
    vocab_file = write_vocabulary(folder, word_merges(WORDS))
    config = folder / "bert_config.json"
    config.write_text(json.dumps({**CONFIG, "vocab_size": len(vocabulary(vocab_file))}))
    return str(config), vocab_file


def test_a_padding_id_that_differs_from_the_model_s_is_refused(tmp_path):
    config_file, vocab_file = write_roberta(tmp_path)
    config = read_config(config_file)
    settings = TextSettings(vocab_file=vocab_file, do_lower_case=False)
    assert make_tokenizer(config, settings, None).vocab["<pad>"] == config.pad_token_id == 1
    config.pad_token_id = 0
    message = "^--vocab_file=.*: <pad> has the id 1, but pad_token_id of --bert_config_file is 0,"
    refuses(message, make_tokenizer, config, settings, None)


def test_features_are_refused_without_room_for_a_pair_or_over_the_merges(tmp_path):
    config_file, vocab_file = write_roberta(tmp_path)
    (tmp_path / "text.txt").write_text("film ||| was fine\n")
    for ending in ("index", "data-00000-of-00001"):
        (tmp_path / f"model.ckpt-7.{ending}").touch()
    files = {"input_file": "text.txt", "output_file": "merges.txt"}
    files |= {"init_checkpoint": "model.ckpt-7"}
    files = {flag: f"{tmp_path}/{name}" for flag, name in files.items()} | {"layers": "-1"}
    settings = ExtractionSettings(
        **files, vocab_file=vocab_file, do_lower_case=False, max_seq_length=4
    )
    given = read_config(config_file), distribution.get_strategy("one_device", 1)
    message = "merges.txt must not be a file of --vocab_file, which it"
    refuses(message, extract_features, *given, settings)
    settings = dataclasses.replace(settings, max_seq_length=3)
    rule = "^--max_seq_length must be at least 4, for the special tokens of a pair; received 3$"
    refuses(rule, extract_features, *given, settings)


@pytest.mark.slow
def test_a_classifier_is_trained_and_loaded(tmp_path):
    reviews = write_reviews(tmp_path)
    (tmp_path / "roberta").mkdir()
    config, vocab_file = write_roberta(tmp_path / "roberta")
    out = tmp_path / "out"
    more = [f"--bert_config_file={config}", f"--vocab_file={vocab_file}"]
    message = run(*flags(reviews, out, "--do_eval"), *more, program="run_classifier.py", status=1)
    assert "is trained on text as it is written; set --do_lower_case=False" in message
    run(
        *flags(reviews, out, "--do_train", "--do_eval", "--do_predict", "--num_train_epochs=12"),
        *more,
        "--do_lower_case=False",
        "--learning_rate=2e-3",
        program="run_classifier.py",
    )
    assert reporting.read_results(str(out / "eval_results.txt"))["eval_accuracy"] > 0.9
    assert json.loads((out / "bert_config.json").read_text())["model_type"] == "roberta"

    texts, results = classify_as_the_program(reviews, out)
    saved, there = tmp_path / "saved", tmp_path / "there"
    ids = ExportSettings(input=str(out), output=str(saved), input_kind="ids")
    export(ids)
    # LiteRT looks up even segments, although RoBERTa has only one.
    export(dataclasses.replace(ids, output=str(tmp_path / "lite"), format="litert"))
    convert_checkpoint.convert(str(out), str(there), "safetensors")
    written = " ".join((saved / "README.md").read_text().split())
    assert "`vocab.json`: a text as `<s> A </s>`, and two texts as `<s> A </s></s> B" in written
    assert "- `segment_ids`: 0." in written and "`vocab.json`, `merges.txt`" in written
    for name in ("vocab.json", "merges.txt"):
        source = (tmp_path / "roberta" / name).read_bytes()
        assert (saved / name).read_bytes() == (there / name).read_bytes() == source
    again = bert_tf.load(str(there)).classify(texts)
    assert [r.probabilities for r in again] == [r.probabilities for r in results]
    with pytest.raises(UserError, match="of word pieces; .* has vocab.json and merges.txt"):
        export(dataclasses.replace(ids, output=str(tmp_path / "text"), input_kind="text"))


@pytest.mark.slow
def test_masks_are_drawn_while_pre_training(tmp_path):
    config, vocab_file = write_roberta(tmp_path)
    make = [f"--input_file={write_text(tmp_path)}", f"--vocab_file={vocab_file}"]
    make += ["--max_seq_length=24", "--nomask", "--dupe_factor=3", "--do_lower_case=False"]
    name = f"{tmp_path}/records"
    run(*make, "--objective=mlm", f"--output_file={name}", program="create_pretraining_data.py")
    out = tmp_path / "out"
    words = [f"--input_file={name}", f"--bert_config_file={config}", "--max_seq_length=24"]
    words += ["--max_predictions_per_seq=5", "--train_batch_size=8", f"--output_dir={out}"]
    words += ["--do_train", "--do_eval", "--num_train_steps=40", "--num_warmup_steps=4"]
    words += ["--learning_rate=5e-3", "--dynamic_masking", f"--vocab_file={vocab_file}"]
    message = run(*words, status=1)
    assert "--objective=mlm_nsp needs a model with a head for pairs of sentences" in message
    run(*words, "--objective=mlm", "--do_whole_word_mask")
    results = reporting.read_results(str(out / "eval_results.txt"))
    assert results["global_step"] == 40 and results["masked_lm_loss"] < 5.0
    assert not any("seq_relationship" in name for name in variables(out))


def create(folder, **changes):
    """Returns the records of a small text, lists by name."""
    (folder / "text.txt").write_text("the film was\nfine\nso very lovely")
    _, vocab_file = write_roberta(folder)
    files = {"input_file": f"{folder}/text.txt", "output_file": f"{folder}/records"}
    options = {"do_lower_case": False, "max_predictions_per_seq": 9, "dupe_factor": 1, **changes}
    create_pretraining_data(PretrainingDataSettings(**files, vocab_file=vocab_file, **options))
    return read_records(folder / "records")


def test_words_begin_with_a_space_or_a_sentence(tmp_path):
    (record,) = create(tmp_path, objective="mlm", mask=False, max_seq_length=24)
    # The first word of a line has no space, and so a piece for each letter.
    pieces = [["t", "h", "e"], ["Ġfilm"], ["Ġwas"], [*"fine"], ["s", "o"], ["Ġvery"], ["Ġlovely"]]
    vocab = vocabulary(tmp_path / "vocab.json")
    tokens = ["<s>", *(piece for word in pieces for piece in word), "</s>"]
    numbers = [0, *(i for i, word in enumerate(pieces, 1) for _ in word), 0]
    padding = [0] * (24 - len(tokens))
    assert record["input_ids"] == [vocab[token] for token in tokens] + padding
    assert record["word_ids"] == numbers + padding
    assert record["segment_ids"] == [0] * 24


def test_whole_words_are_masked(tmp_path):
    settings = {"objective": "mlm", "max_seq_length": 24}
    (unmasked,) = create(tmp_path, **settings, mask=False)
    numbers = unmasked["word_ids"]
    settings |= {"do_whole_word_mask": True, "masked_lm_prob": 0.5}
    for seed in range(9):
        (record,) = create(tmp_path, **settings, random_seed=seed)
        places = [place for place in record["masked_lm_positions"] if place]
        chosen = {numbers[place] for place in places}
        assert places == [i for i, number in enumerate(numbers) if number in chosen and number]
        restored = list(record["input_ids"])
        for place, label in zip(places, record["masked_lm_ids"], strict=False):
            restored[place] = label
        assert restored == unmasked["input_ids"]


def test_pairs_have_two_separators_between_them(tmp_path):
    settings = {"mask": False, "max_seq_length": 30, "short_seq_prob": 0.0}
    for record in create(tmp_path, **settings):
        ids = record["input_ids"][: sum(record["input_mask"])]
        first = ids.index(2)
        assert ids[0] == 0 and ids[first : first + 2] == [2, 2] and ids[-1] == 2
        assert ids.count(2) == 3 and not any(record["segment_ids"])
        special = [i for i, number in enumerate(record["word_ids"][: len(ids)]) if not number]
        assert special == [0, first, first + 1, len(ids) - 1]
    with pytest.raises(UserError, match="--max_seq_length must be at least 6, .*; received 5"):
        create(tmp_path, **{**settings, "max_seq_length": 5})


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The flags of a small model whose vocabulary is learned from the quickstart's text."""
    folder = tmp_path_factory.mktemp("model")
    vocab_file = str(folder / "vocab.json")
    build_vocabulary(str(QUICKSTART / "corpus.txt"), vocab_file, 900, kind=BYTE_BPE)
    config = {**CONFIG, "vocab_size": 900, "hidden_size": 32, "max_position_embeddings": 66}
    (folder / "bert_config.json").write_text(json.dumps(config))
    return [
        f"--vocab_file={vocab_file}",
        f"--bert_config_file={folder}/bert_config.json",
        *("--do_lower_case=False", "--max_seq_length=64", "--learning_rate=2e-3"),
    ]


@pytest.mark.slow
def test_questions_are_answered(model, tmp_path):
    source = QUICKSTART / "squad.json"
    run(
        *model,
        *(f"--train_file={source}", f"--predict_file={source}", f"--output_dir={tmp_path}/out"),
        *("--do_train", "--do_predict", "--version_2_with_negative", "--max_query_length=16"),
        *("--doc_stride=32", "--train_batch_size=12", "--num_train_epochs=60"),
        program="run_squad.py",
    )
    results = reporting.read_results(f"{tmp_path}/out/eval_results.txt")
    assert results["best_exact"] > 60  # it guesses 0 to 20
    answered = json.loads((tmp_path / "out" / "predictions.json").read_text())
    loaded = bert_tf.load(str(tmp_path / "out"))
    data = read_squad_examples(str(source), "predict_file", False, True)
    questions = [example.question_text for example in data.examples]
    contexts = [data.contexts[example.context_index] for example in data.examples]
    lengths = {"max_seq_length": 64, "doc_stride": 32}
    found = loaded.answer(questions, contexts, null_score_diff_threshold=0.0, **lengths)
    same = [answer.text == text for answer, text in zip(found, answered.values(), strict=True)]
    assert np.mean(same) > 0.95  # the program truncates questions to 16 pieces
    for answer, context in zip(found, contexts, strict=True):
        assert context[answer.start : answer.end].split() == answer.text.split()


@pytest.mark.slow
def test_entities_are_tagged(model, tmp_path):
    """Each word has the tag that the loaded model gives it in the sentence as a text."""
    out = tmp_path / "out"
    run(
        *model,
        *(f"--data_dir={QUICKSTART}/entities", f"--output_dir={out}", "--do_train"),
        *("--do_predict", "--train_batch_size=8", "--num_train_epochs=40"),
        "--nodocument_context",
        program="run_tagging.py",
    )
    loaded = bert_tf.load(str(out))
    sentences = read_sentences(str(out / "predictions.txt"), "predict_file")
    found = loaded.tag([" ".join(sentence.words) for sentence in sentences])
    for sentence, entities in zip(sentences, found, strict=True):
        pairs = zip(sentence.words, sentence.tags, strict=True)
        tagged = " ".join(word for word, tag in pairs if tag != "O")
        assert " ".join(entity.text for entity in entities) == tagged
    assert sum(map(len, found)) > 3


@pytest.mark.slow
def test_endings_sentences_and_features(model, tmp_path):
    run(
        *model,
        *(f"--data_dir={QUICKSTART}/endings", f"--output_dir={tmp_path}/endings"),
        *("--do_train", "--do_eval", "--train_batch_size=4", "--num_train_epochs=1"),
        program="run_multiple_choice.py",
    )
    results = reporting.read_results(f"{tmp_path}/endings/eval_results.txt")
    with open(QUICKSTART / "endings/val.csv") as file:
        rows = [*csv.DictReader(file)]
    choices = [[f"{row['sent2']} {row[f'ending{i}']}" for i in range(4)] for row in rows]
    questions = [(row["sent1"], own) for row, own in zip(rows, choices, strict=True)]
    scores = bert_tf.load(f"{tmp_path}/endings").predict(questions)
    right = np.argmax(scores, axis=-1) == [int(row["label"]) for row in rows]
    assert results["eval_accuracy"] == right.mean() and results["global_step"] == 12 // 4
    run(
        *model,
        *(f"--data_dir={QUICKSTART}/sentences", f"--output_dir={tmp_path}/sentences"),
        *("--text_a_column=sentence1", "--text_b_column=sentence2", "--label_column=score"),
        *("--score_scale=5", "--do_train", "--do_eval", "--train_batch_size=8"),
        *("--num_train_epochs=1", f"--export_dir={tmp_path}/exported"),
        program="run_sentence_similarity.py",
    )
    (tmp_path / "lines.txt").write_text("A small town. ||| The sea\n")
    run(
        *[flag for flag in model if "learning_rate" not in flag],
        *(f"--input_file={tmp_path}/lines.txt", f"--output_file={tmp_path}/features.jsonl"),
        *("--layers=-1", f"--init_checkpoint={tmp_path}/exported"),
        program="extract_features.py",
    )
    line = json.loads((tmp_path / "features.jsonl").read_text())
    tokens = [feature["token"] for feature in line["features"]]
    assert tokens[0] == "<s>" and tokens.count("</s>") == 3
    assert "".join(tokens).replace("Ġ", " ") == "<s>A small town.</s></s>The sea</s>"
    pretrained = bert_tf.load(f"{tmp_path}/exported")  # without normalize its vectors have length 1
    vector = pretrained.encode(("A small town.", "The sea"), normalize=False)
    last = np.array([feature["layers"][0]["values"] for feature in line["features"]])
    np.testing.assert_allclose(vector, last.mean(0), atol=2e-5)


TEXT = "smith was born (1895-1943). fine"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    return load_tokenizer(
        write_vocabulary(folder, word_merges("the film was fine smith born".split())), False
    )


def tokens(tokenizer, ids):
    return [tokenizer.inv_vocab[int(i)] for i in ids]


def test_a_context_is_tokenized_like_its_text(tokenizer):
    text = "film  was\tfine (1895-1943)."
    (context,) = features.tokenize_contexts([text], tokenizer)
    whole, _ = tokenizer.encode([" ".join(text.split())])
    assert context.ids.tolist() == whole.tolist()
    assert tokens(tokenizer, context.ids)[:6] == ["f", "i", "l", "m", "Ġwas", "Ġfine"]
    assert context.word_starts.tolist() == [0, 4, 5, 6, len(whole)]


def test_an_answer_is_found_within_a_word_and_mapped_back(tokenizer):
    (context,) = features.tokenize_contexts([TEXT], tokenizer)
    at = answers.ContextText(TEXT, context, tokenizer, FinalText(tokenizer.split_words)).of
    pieces = tokens(tokenizer, context.ids)
    first, last = pieces.index("("), pieces.index("4")
    assert pieces[first - 1] == "Ġ" and pieces[first + 1 : first + 5] == list("1895")
    for span, expected in (
        ((first + 1, first + 4), "1895"),
        ((first - 1, first + 4), "(1895"),
        ((0, len("smith") - 1), "smith"),
        ((last - 2, len(pieces) - 1), "1943). fine"),
    ):
        found, start, end = at(*span)
        assert found == TEXT[start:end] == expected


def encoded(tokenizer, context, answer, words, start=None):
    """Returns the record of a question on a context, and its encoder."""
    more = () if start is None else (start,)
    example = SquadExample("q", "the film", 0, (answer,), *words, *more)
    settings = settings_of_lengths(max_seq_length=60, doc_stride=16, max_query_length=9)
    encoder = features.SquadEncoder(SquadData([context], [example]), tokenizer, settings, True)
    (record,) = encoder.records(example, ids_of_each(tokenizer, encoder.texts(example)))
    return record, encoder


@pytest.mark.parametrize(
    ("answer", "expected"), [("1895", list("1895")), ("born", ["Ġborn"]), ("fine", ["Ġfine"])]
)
def test_the_positions_of_answers(tokenizer, answer, expected):
    """With the space before an answer, if it begins a word; without, if it does not."""
    word = next(i for i, word in enumerate(TEXT.split()) if answer in word)
    record, encoder = encoded(tokenizer, TEXT, answer, (word, word))
    (window,), (context,) = encoder.windows, encoder.contexts
    (start,), (end,) = record["start_positions"], record["end_positions"]
    ids = record["input_ids"]
    assert tokens(tokenizer, ids[start : end + 1]) == expected
    # <s> the film </s></s> context </s>
    query = tokenizer.encode(["the film"])[0].tolist()
    assert ids[: window.offset] == [0, *query, 2, 2]
    assert ids[window.offset : window.offset + len(context.ids)] == context.ids.tolist()


def test_an_answer_in_text_without_spaces_is_where_it_starts(tokenizer):
    context, answer, start = "film \u732b\u3001\u732b\u3001film\u732b\u3002", "\u732b", 7
    record, encoder = encoded(tokenizer, context, answer, (1, 1), start)
    (window,), (pieces,) = encoder.windows, encoder.contexts
    first, last = (record[f"{side}_positions"][0] - window.offset for side in ("start", "end"))
    assert tokenizer.text_of(pieces.ids[first : last + 1].tolist()) == answer
    at = answers.ContextText(context, pieces, tokenizer, FinalText(tokenizer.split_words)).of
    assert at(first, last) == (answer, start, start + 1)


def test_words_of_a_sentence_have_their_spaces_and_need_room(tokenizer):
    encoder = TaggingEncoder(tokenizer, 20, ["O"], False)
    texts = encoder.texts([Sentence(["the", "film"], None, 0), Sentence(["was"], None, 0)])
    assert tokens_of_each(tokenizer, *texts) == [[*"the"], ["Ġfilm"], [*"was"]]
    at_least = "--max_seq_length must be at least"
    refuses(f"{at_least} 5, .*; received 4", ClassificationEncoder, tokenizer, 4, ["a"])
    refuses(f"{at_least} 6, .*; received 5", QuestionEncoder, tokenizer, 5, 4)


def test_a_text_is_cut_to_the_length(tokenizer):
    texts = [("the film was fine", "born born born born born"), "the"]
    pair, single = encode(texts, tokenizer, 9)
    assert pair["input_ids"][:1] == [0] and pair["input_ids"].count(2) == 3
    assert len(pair["input_ids"]) == 9 and single["input_ids"][-1] == 2
    assert not np.any(pair["segment_ids"])
    (row,) = encode_masks(["the <mask> was <mask>"], tokenizer, 20)
    expected = ["<s>", "t", "h", "e", "<mask>", "Ġwas", "<mask>", "</s>"]
    assert tokens(tokenizer, row["input_ids"]) == expected
    assert row["masked_lm_positions"] == [4, 6]
