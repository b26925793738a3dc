"""Tests that vectors of a folder of sentence-transformers equal that library's, or are refused."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

import bert_tf
from bert_tf.export.exporting import export
from bert_tf.export.settings import ExportSettings
from bert_tf.model_folder.hugging_face.vector_settings import (
    VectorSettings,
    check_mean_vectors,
    read_vector_settings,
    write_vector_settings,
)
from bert_tf.model_folder.reader import ModelFiles
from bert_tf.pretrained.folder import read_folder
from tests.support.hugging_face_folders import ENCODER, HEADS, POOLER, make_tensors, write_folder
from tests.support.numpy_bert import assert_near
from tests.support.refusals import refusal
from tools import convert_checkpoint

pytestmark = pytest.mark.usefixtures("eager")

VOCAB = "[PAD] [UNK] [CLS] [SEP] [MASK] a b c ##c A B é ?".replace(" ", "\n")
TEXTS = ["A b cc a", "é B ?"]
OLD = "sentence_transformers.models."


def modules(transformer="", pooling="1_Pooling", *more, names=OLD):
    kinds = [("Transformer", transformer), ("Pooling", pooling), *more]
    return [
        {"idx": i, "name": str(i), "path": path, "type": names + kind}
        for i, (kind, path) in enumerate(kinds)
    ]


MODULES, POOLING = "modules.json", "1_Pooling/config.json"
INPUT, OUTPUT = "sentence_bert_config.json", "config_sentence_transformers.json"
NORMALIZE = ("Normalize", "2_Normalize")
SIZE = {"word_embedding_dimension": 6}
MEAN = {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}
VERSION_6 = {
    "transformer_task": "feature-extraction",
    "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
    "module_output_name": "token_embeddings",
}
ALL = ["lasttoken", "max", "mean_sqrt_len_tokens", "weightedmean", "cls", "mean"]
# Name -> files, beside a modules.json of a transformer and a pooling.
LAYOUTS = {
    "version 6": {
        INPUT: VERSION_6,
        "tokenizer_config.json": {"do_lower_case": False, "model_max_length": 5},
        POOLING: {"embedding_dimension": 6, "pooling_mode": "mean"},
        OUTPUT: {
            "__version__": {"sentence_transformers": "6.2.0"},
            "model_type": "SentenceTransformer",
            "prompts": {"document": "", "query": "c "},
            "default_prompt_name": None,
            "similarity_fn_name": "cosine",
        },
    },
    "every pooling without the prompt": {
        POOLING: {"embedding_dimension": 6, "pooling_mode": ALL, "include_prompt": False},
        OUTPUT: {"prompts": {"q": "c "}, "default_prompt_name": "q"},
    },
    "0_Transformer": {
        MODULES: modules("0_Transformer", "1_Pooling", NORMALIZE),
        f"0_Transformer/{INPUT}": {"max_seq_length": 4, "do_lower_case": False},
        POOLING: SIZE | MEAN,
    },
    "lower-cased": {
        INPUT: {"max_seq_length": 128, "do_lower_case": True},
        POOLING: {"pooling_mode_cls_token": True} | SIZE,
    },
    "sentence_distilbert_config.json": {
        INPUT: {},
        "sentence_distilbert_config.json": {"max_seq_length": 4},
        POOLING: SIZE | {"pooling_mode_max_tokens": True},
    },
    "other paths": {
        MODULES: modules("encoder/first", "pool"),
        "encoder/first/sentence_albert_config.json": {"max_seq_length": 6},
        "pool/config.json": SIZE | {"pooling_mode_weightedmean_tokens": True},
    },
    "normalized, then truncated": {
        MODULES: modules("", "1_Pooling", NORMALIZE),
        POOLING: SIZE,
        OUTPUT: {"truncate_dim": 4},
    },
    "a prompt": {
        POOLING: SIZE | {"pooling_mode_mean_sqrt_len_tokens": True},
        OUTPUT: {"prompts": {"passage": "B ? "}, "default_prompt_name": "passage"},
    },
    "a prompt without text": {
        POOLING: SIZE | {"pooling_mode_cls_token": False},
        OUTPUT: {"default_prompt_name": "query"},
    },
    "two poolings": {
        "sentence_xlm-roberta_config.json": {"max_seq_length": 5, "do_lower_case": None},
        POOLING: SIZE | MEAN | {"pooling_mode_lasttoken": True, "pooling_mode_max_tokens": True},
    },
}


def write(folder, files):
    for name, content in files.items():
        path = Path(folder, name)
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(json.dumps(content))


@pytest.fixture
def write_layout(tmp_path):
    """Writes a layout with a model, and returns its folder."""

    def write_layout(name):
        files, folder = {MODULES: modules(), **LAYOUTS[name]}, tmp_path / "hf"
        model = folder / files[MODULES][0]["path"]
        model.parent.mkdir(exist_ok=True, parents=True)
        write_folder(model, make_tensors(ENCODER), VOCAB)
        write(model, {"tokenizer_config.json": {"do_lower_case": False}})
        write(folder, files)
        return str(folder)

    return write_layout


def test_the_tokenizer_s_length_also_counts_without_modules(tmp_path):
    folder = tmp_path / "model"
    write_folder(folder, make_tensors(ENCODER), VOCAB)
    for number, (key, length, expected) in enumerate(
        [
            *(("model_max_length", 5, 5), ("max_len", 4, 4)),
            *(("model_max_length", 7, None), ("model_max_length", 1e30, None)),
        ]
    ):
        write(folder, {"tokenizer_config.json": {"do_lower_case": False, key: length}})
        converted = str(tmp_path / f"{number}")
        convert_checkpoint.convert(str(folder), converted, "checkpoint")
        for path in (str(folder), converted):
            assert read_folder(path).max_seq_length == (expected or 7)
            assert ModelFiles(path).model_input.max_seq_length == expected
    assert bert_tf.load(folder, max_seq_length=6).max_seq_length == 6
    # A length beside modules.json comes first, also a longer one.
    write(folder, {"tokenizer_config.json": {"do_lower_case": False, "max_len": 4}})
    write(folder, {MODULES: modules(), INPUT: {"max_seq_length": 6}, POOLING: MEAN})
    assert read_folder(str(folder)).max_seq_length == 6


def test_text_features_prepare_texts_like_encode_but_not_for_a_classifier(write_layout):
    folder = write_layout("lower-cased")
    write(folder, {OUTPUT: {"prompts": {"q": "c "}, "default_prompt_name": "q"}})
    assert bert_tf.TextFeatures(folder)(["A b"])["input_ids"].tolist() == [[2, 7, 5, 6, 3]]
    classifier = {name: HEADS[name] for name in ("classifier.weight", "classifier.bias")}
    tensors = make_tensors({**ENCODER, **POOLER, **classifier}, "bert.")
    safetensors.numpy.save_file(tensors, f"{folder}/model.safetensors")
    assert bert_tf.TextFeatures(folder)(["A b"])["input_ids"].tolist() == [[2, 9, 6, 3]]


def test_arguments_come_before_the_settings_of_the_folder(write_layout):
    model = bert_tf.load(write_layout("normalized, then truncated"))
    plain = model.encode("A b", normalize=False)
    assert plain.shape == (4,)
    assert_near(model.encode("A b", normalize=True), plain / np.linalg.norm(plain), 1e-6)
    assert model.encode([], pooling="max").shape == (0, 4)


@pytest.mark.parametrize("name", LAYOUTS)
def test_vectors_are_those_of_the_library_also_after_converting(name, write_layout, tmp_path):
    """What sentence-transformers 6.2 answers for TEXTS, some with arguments by encode's names."""
    figures = json.loads(Path(__file__).with_name("sentence_transformers.json").read_text())
    folder, converted = write_layout(name), str(tmp_path / "converted")
    convert_checkpoint.convert(folder, converted, "checkpoint")
    for path in (folder, converted):
        model = bert_tf.load(path)
        for arguments, values in figures[name]:
            num_texts = 1 if name.startswith("every") and not arguments else 2
            found = model.encode(TEXTS[:num_texts], **arguments)
            assert_near(found, np.reshape(values, [num_texts, -1]), 2e-6)


def test_arguments_that_are_refused(write_layout):
    model = bert_tf.load(write_layout("a prompt"))
    for arguments, message in (
        ({"truncate_dim": 0}, "truncate_dim must be from 1 to 6, the size of the vectors; receiv"),
        ({"truncate_dim": 7}, "truncate_dim must be from 1 to 6, .*received 7"),
        ({"truncate_dim": 2.0}, r"truncate_dim must be a whole number \(int\), or None, for the f"),
        ({"prompt": 3}, "prompt must be a string, or None, for the folder's default; received"),
        (
            {"prompt": "querry"},
            "prompt must be the name of one of the folder's prompts, 'query', 'document',"
            " 'default', 'passage', or a text that ends in space or punctuation, since it is put"
            " right before each text; received 'querry'",
        ),
    ):
        assert re.search(message, refusal(model.encode, TEXTS, **arguments))


def test_the_similarity_is_the_one_that_the_folder_names(write_layout):
    folder = write_layout("a prompt")
    a, b = bert_tf.load(folder).encode(TEXTS, prompt="")
    for name, value in (
        ("cosine", a @ b / np.sqrt((a @ a) * (b @ b))),
        ("dot", a @ b),
        ("euclidean", -np.sqrt(((a - b) ** 2).sum())),
        ("manhattan", -abs(a - b).sum()),
    ):
        write(folder, {OUTPUT: {"similarity_fn_name": name}})
        assert bert_tf.load(folder).similarity(*TEXTS) == pytest.approx(value, rel=1e-5)


def test_settings_that_are_written_are_read_again(tmp_path):
    for settings in (
        VectorSettings(("max", "cls"), True, 9, True, "a: ", False, 3, "dot"),
        VectorSettings(max_seq_length=17),
        VectorSettings(prompt="p ", prompts=(("query", "q: "), ("other", "o"))),
        VectorSettings(prompts=(("query", "q: "),)),
        VectorSettings(),  # removes what was written before
    ):
        write_vector_settings(str(tmp_path), settings, 6)
        assert read_vector_settings(str(tmp_path)) == settings
    assert not (tmp_path / "modules.json").exists()


ORDER = "must list Transformer, Pooling and, if vectors have length 1, Normalize, in this order"

REFUSED = [
    (MODULES, {"type": "x"}, "must hold a list; received a dictionary. Correct or delete it"),
    (MODULES, [None], "lists 'None'; only sentence_transformers' Transformer, Pooling, Norm"),
    (MODULES, modules("", "1_Pooling", ("Dense", "2_Dense")), f"lists '{OLD}Dense'; only"),
    (MODULES, modules("", "1_Pooling", names="my."), "lists 'my.Transformer', 'my.Pooling';"),
    (MODULES, modules()[:1], f"{ORDER}; it lists 'Transformer'. To load"),
    (MODULES, modules()[::-1], f"{ORDER}; it lists 'Pooling', 'Transformer'. To load"),
    (MODULES, modules("../other"), "path must be a folder within"),
    (MODULES, modules(3), "; it is 3. Correct it"),
    (MODULES, modules("\udcff"), "; it is '\\udcff'. Correct it"),
    (MODULES, [x | {"kwargs": ["task"]} for x in modules()], "kwargs must be [], not ['task']"),
    (POOLING, {"pooling_mode": ["mean", "sum"]}, "lasttoken; it is ['mean', 'sum']. Choose"),
    (POOLING, {"pooling_mode": [["cls"]]}, "lasttoken; it is [['cls']]. Choose"),
    (POOLING, {}, "must say how vectors are pooled, since modules.json names its folder; it"),
    (POOLING, {"include_prompt": "no"}, "include_prompt must be true or false; it is 'no'."),
    (POOLING, {"pooling_mode_cls_token": "false"}, "must be true or false; it is 'false'."),
    (POOLING, {"pooling_mode_max_tokens": 1}, "max_tokens must be true or false; it is 1."),
    (INPUT, [5], "must hold a dictionary; received a list. Correct or delete it"),
    (INPUT, {"max_seq_length": "5"}, "max_seq_length must be a positive number; it is '5'."),
    (INPUT, {"max_seq_length": -1}, "max_seq_length must be a positive number; it is -1."),
    (INPUT, {"do_lower_case": 1}, "do_lower_case must be true or false; it is 1. Correct it"),
    (INPUT, {"transformer_task": "fill-mask"}, "must be \"feature-extraction\", not 'fill-mask'"),
    (INPUT, {"tokenizer_args": {"model_max_length": 5}}, "tokenizer_args must be {}, not"),
    ("tokenizer_config.json", {"model_max_length": "5"}, "model_max_length must be a positive"),
    (OUTPUT, {"default_prompt_name": "x"}, "a text in prompts, 'query', 'document'; it is 'x'."),
    (OUTPUT, {"prompts": {"q": 3}}, "prompts must be texts; 'q' is 3. Correct it"),
    (OUTPUT, {"prompts": ["x"]}, "prompts must be a dictionary; it is ['x']. Correct it"),
    (OUTPUT, {"truncate_dim": 0}, "truncate_dim must be a positive number; it is 0. Correct"),
    (
        OUTPUT,
        {"similarity_fn_name": "maxsim"},
        "not 'maxsim': the known values are cosine, dot, euc",
    ),
    (OUTPUT, {"model_type": "SparseEncoder"}, 'must be "SentenceTransformer", not \'Sparse'),
    ("2_Normalize/config.json", {"module_input_name": "token_embeddings"}, "not 'token_emb"),
]


def test_vectors_that_are_made_in_another_way_are_refused(tmp_path):
    for number, (name, content, message) in enumerate(REFUSED):
        folder = tmp_path / f"{number}"
        write(folder, {MODULES: modules("", "1_Pooling", NORMALIZE), POOLING: MEAN, name: content})
        told = refusal(read_vector_settings, str(folder))
        assert message in told and str(folder / name) in told and "\n" not in told
    for pooling in ("1_Pooling", "pooling/of/words"):  # one that was not downloaded
        folder = tmp_path / pooling
        write(folder, {MODULES: modules("", pooling)})
        assert refusal(read_vector_settings, str(folder)) == (
            f"{folder}/{pooling}/config.json must say how vectors are pooled, since modules.json"
            " names its folder; it is missing or empty. Copy or download it again"
        )


def test_programs_that_make_means_refuse_other_vectors(tmp_path):
    for settings, message in (
        (VectorSettings(("cls",)), "vectors with poolings=('cls',); this program"),
        (VectorSettings(do_lower_case=True, prompt="a "), "with do_lower_case=True, prompt='a ';"),
        (VectorSettings(truncate_dim=3), "vectors with truncate_dim=3; this program"),
    ):
        write_vector_settings(str(tmp_path), settings, 6)
        assert message in refusal(check_mean_vectors, str(tmp_path))
    write_vector_settings(str(tmp_path), VectorSettings(normalize=True, max_seq_length=5), 6)
    check_mean_vectors(str(tmp_path))


@pytest.mark.parametrize("name", ["a prompt", "lower-cased"])
def test_an_export_cannot_change_the_texts(name, write_layout, tmp_path):
    settings = ExportSettings(input=write_layout(name), output=str(tmp_path / "export"))
    assert "a SavedModel or LiteRT model cannot put the prompt" in refusal(export, settings)
