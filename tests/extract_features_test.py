"""Tests of extract_features.py and bert_tf.tasks.extraction, with NumPy and golden files."""

import functools
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import tokenization
from bert_tf.engine import distribution
from bert_tf.errors import UserError
from bert_tf.files import checkpoints
from bert_tf.model.configuration import BertConfig
from bert_tf.model_folder.hugging_face.vector_settings import VectorSettings, write_vector_settings
from bert_tf.tasks.extraction import lines, run
from bert_tf.tasks.extraction.model import FeaturesModel
from bert_tf.tasks.extraction.settings import OUTPUTS, ExtractionSettings
from bert_tf.text.fast_tokenization import FastTokenizer
from tests.support.golden import golden_cases
from tests.support.numpy_bert import NumpyBert, random_weights
from tests.support.original_features import original_features
from tests.support.pretraining_runs import run as run_program
from tests.support.refusals import refusal, refuses

WORDS = "[PAD] [UNK] [CLS] [SEP] a b c d ##e ##f ! naive long".split()
CONFIG = {"vocab_size": len(WORDS), "hidden_size": 6, "num_hidden_layers": 2}
CONFIG |= {"num_attention_heads": 2, "intermediate_size": 10, "max_position_embeddings": 40}
CONFIG |= {"type_vocab_size": 2, "hidden_act": "gelu"}
TEXT = (
    "a be ||| cef d!\n"
    "\n"
    "  na\u00efve d \u65e5\n" + "long " * 30 + "||| be c\n"
    "a ||| b ||| c\r\n"
    "c d a b ||| \u200b\n"
    "a!"
)
TOKENS = [
    "[CLS] a b ##e [SEP] c ##e ##f d ! [SEP]".split(),
    ["[CLS]", "[SEP]"],
    "[CLS] naive d [UNK] [SEP]".split(),
    ["[CLS]", *["long"] * 30, "[SEP]", "b", "##e", "c", "[SEP]"],
    "[CLS] a [UNK] [UNK] [UNK] b [SEP] c [SEP]".split(),
    "[CLS] c d a b [SEP]".split(),
    "[CLS] a ! [SEP]".split(),
]
MAX_SEQ_LENGTH = 37
LAYERS = (-1, 0, -1, 1)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("features")
    (folder / "input.txt").write_bytes(TEXT.encode())
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in WORDS))
    (folder / "bert_config.json").write_text(json.dumps(CONFIG))
    model = FeaturesModel(BertConfig.from_dict(CONFIG))
    weights = random_weights({v.path: v.shape for v in model.variables}, seed=8)
    checkpoints.write(str(folder / "bert_model.ckpt"), weights)
    return folder


def extract(files, output_file, max_bytes=1 << 20, **settings):
    names = {"input_file": "input.txt", "init_checkpoint": "bert_model.ckpt"}
    names |= {"vocab_file": "vocab.txt"}
    settings = {
        **{flag: str(files / name) for flag, name in names.items()},
        **{"output_file": str(output_file), "layers": ",".join(map(str, LAYERS))},
        **{"max_seq_length": MAX_SEQ_LENGTH, "length_buckets": "none", "batch_size": 2},
        **settings,
    }
    strategy = distribution.get_strategy("one_device", 1)
    config = BertConfig.from_dict(CONFIG)
    num_lines = run.extract_features(config, strategy, ExtractionSettings(**settings), max_bytes)
    assert num_lines == sum(1 for _ in lines.read_lines(settings["input_file"]))
    return output_file


@pytest.fixture(scope="module")
def oracle(files) -> list[dict[str, np.ndarray]]:
    """The outputs for each line, computed one line at a time without padding."""
    reader = tf.train.load_checkpoint(str(files / "bert_model.ckpt"))
    weights = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    model = NumpyBert(CONFIG, weights)
    results = []
    for tokens in TOKENS:
        ids = np.array([[WORDS.index(token) for token in tokens]])
        first = tokens.index("[SEP]") + 1
        segment_ids = np.array([[0] * first + [1] * (len(tokens) - first)])
        output = model.forward(ids, np.ones_like(ids), segment_ids)
        vectors = np.stack([output["all_encoder_layers"][i][0] for i in LAYERS], axis=1)
        probs = np.stack([output["attention_probs"][i][0] for i in LAYERS])  # [L, N, t, t]
        results.append(
            {
                "token_vectors": vectors,
                "mean_vector": vectors.mean(axis=0),
                "pooled_vector": output["pooled_output"][0],
                "attention_probs": probs.transpose(2, 3, 0, 1),
            }
        )
    return results


def assert_close(actual, expected, decimals=None):
    assert np.shape(actual) == expected.shape
    error = 2e-6 * np.abs(expected).max() + (0.51 * 10**-decimals if decimals else 0)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=error)


# --- the text -------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_seq_length", [3, 4, 5, 8, 20, 37])
def test_lines_become_examples(files, max_seq_length):
    vocab_file = str(files / "vocab.txt")
    reference = tokenization.FullTokenizer(vocab_file)
    tokenizer = FastTokenizer(vocab_file)
    examples = list(lines.read_examples(str(files / "input.txt"), tokenizer, max_seq_length))
    texts = [("a be", "cef d!"), ("", ""), ("na\u00efve d \u65e5", "")]
    texts += [(" ".join(["long"] * 30), "be c"), ("a ||| b", "c"), ("c d a b", "\u200b")]
    texts.append(("a!", ""))
    assert [example.linex_index for example in examples] == list(range(len(texts)))
    for example, (text_a, text_b) in zip(examples, texts, strict=True):
        expected = original_features(reference, text_a, text_b, max_seq_length)
        assert (example.tokens, example.features) == expected
    if max_seq_length == 37:
        assert [example.tokens for example in examples] == TOKENS


def test_unusable_text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(b"good\nbad \xff\n")
    refuses("text.txt, line 2, is not UTF-8 .*decompress the file", lines.count_lines, str(path))
    for folder in (tmp_path, "/"):
        refuses(f"file={folder} must be a file, not a folder; ", lines.count_lines, str(folder))
    path.write_bytes(b"")
    refuses("the file is empty; it must have a text, or two texts", lines.count_lines, str(path))
    with pytest.raises(UserError, match="--input_file=.*absent.txt cannot be read"):
        lines.count_lines(str(tmp_path / "absent.txt"))
    path.write_text("\n", encoding="utf-8-sig")  # a byte-order mark does not count as text
    assert lines.count_lines(str(path)) == 1 and list(lines.read_lines(str(path))) == [""]


# --- what is computed -----------------------------------------------------------------------------


def by_layer(layers):
    assert [layer["index"] for layer in layers] == list(LAYERS)
    return np.array([layer["values"] for layer in layers])


def read_json(path):
    """Yields the tokens and the outputs of each line, as the functions below do."""
    for i, text in enumerate(path.read_text().splitlines()):
        line = json.loads(text)
        assert list(line) == ["linex_index", "features", *OUTPUTS[1:]]
        assert line["linex_index"] == i
        features = line["features"]
        assert all(list(feature) == ["token", "layers"] for feature in features)
        yield (
            [feature["token"] for feature in features],
            {
                "token_vectors": np.array([by_layer(feature["layers"]) for feature in features]),
                "mean_vector": by_layer(line["mean_vector"]),
                "pooled_vector": np.array(line["pooled_vector"]),
                "attention_probs": by_layer(line["attention_probs"]).transpose(2, 3, 0, 1),
            },
        )


def read_npz(path):
    with np.load(path) as archive:
        arrays = dict(archive)
    assert set(arrays) == {"layers", "tokens", "token_splits", *OUTPUTS}
    np.testing.assert_array_equal(arrays["layers"], LAYERS)
    splits = arrays["token_splits"]
    pairs = np.concatenate([[0], np.cumsum(np.diff(splits) ** 2)])
    assert len(arrays["attention_probs"]) == pairs[-1]
    for i, size in enumerate(np.diff(splits)):
        rows = slice(splits[i], splits[i + 1])
        probs = arrays["attention_probs"][pairs[i] : pairs[i + 1]]
        yield (
            arrays["tokens"][rows].tolist(),
            {
                "token_vectors": arrays["token_vectors"][rows],
                "mean_vector": arrays["mean_vector"][i],
                "pooled_vector": arrays["pooled_vector"][i],
                "attention_probs": probs.reshape(size, size, *probs.shape[1:]),
            },
        )


def read_tfrecord(path):
    for i, record in enumerate(tf.data.TFRecordDataset(str(path)).as_numpy_iterator()):
        features = tf.train.Example.FromString(record).features.feature
        assert set(features) == {"linex_index", "layers", "tokens", *OUTPUTS}
        assert features["linex_index"].int64_list.value == [i]
        assert tuple(features["layers"].int64_list.value) == LAYERS
        tokens = [token.decode() for token in features["tokens"].bytes_list.value]
        size = len(tokens)
        shapes = {"token_vectors": (size, 4, 6), "mean_vector": (4, 6), "pooled_vector": 6}
        shapes["attention_probs"] = (size, size, 4, 2)
        yield tokens, {n: np.reshape(features[n].float_list.value, shapes[n]) for n in shapes}


READERS = {"json": read_json, "npz": read_npz, "tfrecord": read_tfrecord}


def check_file(path, output_format, oracle):
    found = list(READERS[output_format](path))
    assert [tokens for tokens, _ in found] == TOKENS
    for (_, outputs), expected in zip(found, oracle, strict=True):
        assert outputs.keys() == expected.keys()
        for name, value in expected.items():
            assert_close(outputs[name], value, decimals=6 if output_format == "json" else None)


@pytest.mark.parametrize(
    "output_format, length_buckets", [("json", "5,16"), ("npz", "none"), ("tfrecord", "5,16")]
)
def test_the_file_has_what_numpy_computes(files, tmp_path, oracle, output_format, length_buckets):
    flags = {"output_format": output_format, "length_buckets": length_buckets}
    several = 4000  # bytes of a chunk
    path = extract(files, tmp_path / "out", several, outputs=",".join(OUTPUTS), **flags)
    check_file(path, output_format, oracle)
    assert os.listdir(tmp_path) == ["out"]


def test_chunks_are_whole_batches_that_fit_into_memory():
    for output, lengths, batch_size, expected in (
        ("token_vectors", (16,), 1, 8),  # 16 x 2 layers x 8 x 4 bytes = 1 KiB for each line
        ("token_vectors", (4, 16), 1, 32),  # its 3 tokens are padded to 4
        ("token_vectors", (16,), 5, 10),  # whole batches: 8 KiB are reached within the second
        ("mean_vector", (16,), 1, 100),  # 64 bytes, and never more than 100 batches
        ("attention_probs", (16,), 1, 2),  # 16 x 16 x 2 layers x 2 heads x 4 bytes, and the mean
    ):
        config = BertConfig(9, hidden_size=8, num_attention_heads=2)
        examples = (lines.Example(i, ["[CLS]", "a", "[SEP]"], {}) for i in range(253))
        arguments = config, [0, 1], [output], batch_size, lengths, 8 << 10
        chunks = list(run.make_chunks(examples, *arguments))
        assert {len(chunk) for chunk in chunks[:-1]} == {expected}
        assert [example.linex_index for chunk in chunks for example in chunk] == list(range(253))


def test_only_what_is_asked_for(files, tmp_path, oracle):
    path = extract(files, tmp_path / "out.jsonl", outputs="pooled_vector")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [list(line) for line in lines] == [["linex_index", "features", "pooled_vector"]] * 7
    assert lines[1]["features"] == [{"token": "[CLS]"}, {"token": "[SEP]"}]


def test_the_vectors_of_a_long_line_are_those_of_its_windows_joined(files, tmp_path):
    flags = {"output_format": "npz", "outputs": "mean_vector,pooled_vector", "max_seq_length": 6}
    found, long = [], {"long_text": "max", "window_stride": 2}
    for text, more in (("d !\na b c d a b c\n", long), ("d !\na b c d\nc d a b\na b c\n", {})):
        (tmp_path / "lines").write_text(text)
        more = {"input_file": str(tmp_path / "lines"), **flags, **more}
        with np.load(extract(files, tmp_path / "out.npz", **more)) as archive:
            found.append({key: archive[key] for key in archive})
    joined, parts = found
    assert joined.keys() == {"layers", "tokens", "token_splits", "mean_vector", "pooled_vector"}
    assert joined["token_splits"].tolist() == parts["token_splits"][[0, 1, 4]].tolist()
    for name in ("mean_vector", "pooled_vector"):
        expected = [parts[name][0], parts[name][1:].max(axis=0)]
        np.testing.assert_allclose(joined[name], expected, atol=1e-6)


@pytest.mark.slow
def test_the_program_on_several_replicas(files, tmp_path, oracle):
    run_program(
        *(f"--input_file={files}/input.txt", f"--output_file={tmp_path}/out.jsonl"),
        *(f"--vocab_file={files}/vocab.txt", f"--bert_config_file={files}/bert_config.json"),
        *(f"--init_checkpoint={files}/bert_model.ckpt", f"--outputs={','.join(OUTPUTS)}"),
        *("--layers=-1,0,-1,1", f"--max_seq_length={MAX_SEQ_LENGTH}", "--batch_size=4"),
        *("--distribution_strategy=mirrored", "--num_cpu_devices=2"),
        program="extract_features.py",
    )
    check_file(tmp_path / "out.jsonl", "json", oracle)


@pytest.mark.parametrize("length_buckets", ["none", "auto"])
@pytest.mark.parametrize("case", golden_cases("programs/golden.json", program="extract_features"))
def test_golden(tmp_path, case, length_buckets):
    golden = Path(os.environ["BERT_TF_GOLDEN"])
    folder = golden / "programs"
    settings = ExtractionSettings(
        input_file=f"{folder}/sentences.txt",
        output_file=f"{tmp_path}/features.jsonl",
        init_checkpoint=f"{folder}/bert_model.ckpt",
        vocab_file=f"{golden}/../released/vocab_uncased.txt",
        length_buckets=length_buckets,
        **case["flags"],
    )
    config = BertConfig.from_json_file(f"{folder}/bert_config.json")
    run.extract_features(config, distribution.get_strategy("one_device", 1), settings)
    with open(settings.output_file) as ours, open(folder / "features.jsonl") as theirs:
        for our_line, their_line in zip(ours, theirs, strict=True):
            found, expected = json.loads(our_line), json.loads(their_line)
            values, expected_values = (
                [layer.pop("values") for feature in line["features"] for layer in feature["layers"]]
                for line in (found, expected)
            )
            # Everything but the values, and the order of the keys.
            assert json.dumps(found) == json.dumps(expected)
            np.testing.assert_allclose(values, expected_values, rtol=1e-4, atol=3e-6)


# --- how it is written ----------------------------------------------------------------------------


def test_numbers_are_rounded_as_python_rounds(tmp_path):
    rng = np.random.default_rng(2)
    drawn = rng.normal(size=5000) * 10.0 ** rng.integers(-8, 5, 5000)
    halves = np.arange(-500, 500) / 128  # of the sixth decimal, too
    values = np.float32([*drawn, *halves, 0.0, -0.0, -1e-9, 1e30])
    expected = [round(float(x), 6) for x in values]
    path = tmp_path / "out.jsonl"
    with lines.write_json(str(path), [-1]) as write:
        write(0, [], {"pooled_vector": values})
    line = {"linex_index": 0, "features": [], "pooled_vector": expected}
    assert path.read_text() == json.dumps(line) + "\n"


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path):
    for open_writer in (
        lambda path: lines.write_json(path, [-1]),
        lambda path: lines.write_tfrecord(path, [-1]),
        lambda path: lines.write_npz(path, [-1], ["pooled_vector"], 5),
    ):
        path = tmp_path / "out"
        path.write_text("old")
        with pytest.raises(KeyboardInterrupt), open_writer(str(path)) as write:
            write(0, ["[CLS]"], {"pooled_vector": np.zeros(3, np.float32)})
            raise KeyboardInterrupt
        assert os.listdir(tmp_path) == ["out"] and path.read_text() == "old"
        # An error of the computation is not one of the file.
        with pytest.raises(tf.errors.ResourceExhaustedError), open_writer(str(path)):
            raise tf.errors.ResourceExhaustedError(None, None, "no memory")
        is_directory = "must name a?\\s?files?, but .* is a directory"
        for wrong, message in ((tmp_path, is_directory), (path / "below", "--output_file")):
            with pytest.raises(UserError, match=message), open_writer(str(wrong)):
                pass
        with open_writer(str(path)) as write:
            write(0, ["[CLS]"], {"pooled_vector": np.zeros(3, np.float32)})
        assert os.listdir(tmp_path) == ["out"] and path.read_bytes() != b"old"


# --- what is refused ------------------------------------------------------------------------------


def test_flags_that_do_not_fit(files, tmp_path):
    for settings, message in (
        (
            {"layers": "-1,3,-4"},
            "--layers=-1,3,-4: numbers must be from -2 to 1, because the model has 2 layers (0 is"
            " the first, -1 the last); got 3, -4",
        ),
        ({"layers": "-1;-2"}, "--layers=-1;-2: must be numbers separated by commas"),
        ({"outputs": "tokens"}, "--outputs=tokens: must be one or more of token_vectors, mean_"),
        ({"max_seq_length": 41}, "The length 41 of --max_seq_length must be at most max_pos"),
        ({"length_buckets": "50"}, "no length may be above --max_seq_length=37"),
        (
            {"input_file": "no/such", "output_file": "./no/such"},
            "--output_file=./no/such must not be a file of --input_file, which it would replace",
        ),
        (
            {"long_text": "mean"},
            "--long_text=mean combines the windows of a line into one vector, so",
        ),
        ({"long_text": "max", "outputs": "mean_vector,attention_probs"}, "received 'mean_vector,"),
    ):
        assert message in refusal(extract, files, **{"output_file": tmp_path / "out", **settings})
        assert os.listdir(tmp_path) == []


def test_files_that_do_not_fit(files, tmp_path):
    refused = functools.partial(refusal, extract, files, tmp_path / "out")
    vocab_file = tmp_path / "vocab.txt"
    for words, message in (
        ([*WORDS, "more"], "has 14 tokens, and vocab_size of --bert_config_file is"),
        (WORDS[:-1], "token in the same line as the vocabulary of --init_che"),
    ):
        vocab_file.write_text("".join(f"{word}\n" for word in words))
        assert message in refused(vocab_file=str(vocab_file))
    write_vector_settings(str(tmp_path), VectorSettings(prompt="a "), 6)
    told = refused(init_checkpoint=str(tmp_path / "a.ckpt"), outputs="mean_vector")
    assert re.search("modules.json .* prompt='a '; this program makes the mean", told)

    reader = tf.train.load_checkpoint(str(files / "bert_model.ckpt"))
    weights = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    checkpoint = str(tmp_path / "model" / "x.ckpt")
    for missing, outputs, message in (
        ("pooler", "pooled_vector", "lacks 'bert/pooler/dense/kernel', 'bert/pooler/dense/b"),
        ("layer_1", "token_vectors", "it lacks 'bert/encoder/layer_1/attention/self/q"),
    ):
        checkpoints.write(checkpoint, {n: w for n, w in weights.items() if missing not in n})
        assert message in refused(init_checkpoint=checkpoint, outputs=outputs)
        if missing == "pooler":  # nothing else needs it
            extract(files, tmp_path / "out", init_checkpoint=checkpoint)
