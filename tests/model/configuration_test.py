"""Tests of bert_tf.model.configuration."""

import copy
import json
import pathlib
import pickle

import pytest

from bert_tf.errors import quoted
from bert_tf.model.configuration import BertConfig
from bert_tf.model.family import AlbertConfig, config_from_dict, read_config
from bert_tf.modeling import BertModel
from tests.support.refusals import refusal

ROOT = pathlib.Path(__file__).parents[2]
DEFAULTS = {
    "vocab_size": 97,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 512,
    "type_vocab_size": 16,
    "initializer_range": 0.02,
}


def test_every_key_is_read_and_the_defaults_are_the_originals(warnings):
    assert BertConfig(97).to_dict() == DEFAULTS
    assert BertConfig.from_dict({"vocab_size": 97}).to_dict() == DEFAULTS
    numbers = (53, 24, 5, 3, 20, "relu", 0.25, 0, 11, 4, 0.5)
    values = dict(zip(DEFAULTS, numbers, strict=True))
    config = BertConfig.from_dict(values)
    assert {key: getattr(config, key) for key in values} == values
    assert BertConfig(**values).to_dict() == config.to_dict() == values
    assert not warnings


def test_json_round_trip(tmp_path, warnings):
    config = BertConfig(53, hidden_size=24, num_attention_heads=3, hidden_dropout_prob=None)
    text = config.to_json_string()
    assert text.endswith("}\n") and '\n  "hidden_size": 24,\n' in text
    path = tmp_path / "bert_config.json"
    path.write_text(text)
    again = BertConfig.from_json_file(str(path))
    assert again.to_dict() == config.to_dict() == json.loads(text)
    assert again.to_json_string() == text
    assert BertConfig.from_json_file(path).to_dict() == again.to_dict()  # a pathlib.Path
    assert not warnings


def test_unknown_keys_are_named_and_kept(warnings):
    values = {"vocab_size": 5, "pooler_type": "first_token_transform", "extra": [1]}
    config = BertConfig.from_dict(values)
    assert warnings == [
        "The BERT configuration has unknown keys, which are ignored: ['extra', 'pooler_type']"
    ]
    assert config.pooler_type == "first_token_transform" and not hasattr(config, "pooler_typ")
    assert json.loads(config.to_json_string())["extra"] == [1]
    config.to_dict()["extra"].append(2)
    assert config.extra == [1]


@pytest.mark.parametrize(
    "key", ["check_seq_length", "to_dict", "from_dict", "__class__", "_validate", "__deepcopy__"]
)
def test_an_unknown_key_hides_no_method(key):
    values = {**DEFAULTS, key: "mine", "_unknown": [3]}
    config = copy.deepcopy(BertConfig.from_dict(values))
    assert config.to_dict() == values == json.loads(config.to_json_string())
    assert pickle.loads(pickle.dumps(config)).to_dict() == values
    config.check_seq_length(512)
    config.hidden_size = 36
    assert config.to_dict() == {**values, "hidden_size": 36}


GREATEST = {
    "vocab_size": 2147483647,
    "hidden_size": 65536,
    "num_hidden_layers": 1000,
    "num_attention_heads": 65536,
    "intermediate_size": 262144,
    "max_position_embeddings": 1048576,
    "type_vocab_size": 65536,
}
RULES = {key: f"a whole number between 1 and {greatest}" for key, greatest in GREATEST.items()}
RATES = ("hidden_dropout_prob", "attention_probs_dropout_prob")
RULES |= dict.fromkeys(RATES, "at least 0 and below 1")
RULES |= {"initializer_range": "above 0 and at most 10"}
NAN, INFINITE = float("nan"), float("inf")
IMPOSSIBLE = [
    *((key, x) for key in GREATEST for x in (0, -1, 1.5, 2.0, "8", None, True, 10**30)),
    *((key, greatest + 1) for key, greatest in GREATEST.items()),
    *((key, x) for key in RATES for x in (-0.1, 1.0, 10, "0.1", True, NAN)),
    *(("initializer_range", x) for x in (0, -0.02, None, "0.02", INFINITE, NAN, 1e30, 10**400)),
]


def test_impossible_numbers_are_refused():
    for key, value in IMPOSSIBLE:
        rule = f"{key} must be {RULES[key]}, not {quoted(value)}"
        told = refusal(BertConfig, **{**DEFAULTS, key: value})
        assert told == f"The BERT configuration is invalid: {rule}"
    for value in (1e-39, 1e-300):
        rule = "above 0 and at most 10, also in float32: 0, or from 1.2e-38 to 8.5e+37, not"
        told = refusal(BertConfig, **{**DEFAULTS, "initializer_range": value})
        assert f"initializer_range must be {rule} {value}" in told


def test_what_no_memory_holds_is_refused():
    config = BertConfig(97, hidden_size=1024, num_attention_heads=16)
    config.check_batch_size(2**16, 512, "train_batch_size")  # of the greatest published, LAMB's
    assert (
        "--eval_batch_size=1000000 sequences of length 512 and hidden_size 1024 take 1,953 G"
    ) in refusal(config.check_batch_size, 10**6, 512, "eval_batch_size")
    assert (
        "sizes make 1,649,353,370,880 parameters, but a model must have at most 100,000,000"
    ) in refusal(BertConfig, **{**DEFAULTS, "vocab_size": 2**31 - 1})
    BertConfig(**{**DEFAULTS, "vocab_size": 10**8})


def test_other_activations_are_refused():
    for value in ("swish", 5, ["gelu"]):
        assert (
            f"invalid: hidden_act: Unsupported activation {value!r}; it must be one of gelu,"
            " gelu_erf, relu, tanh, linear."
        ) in refusal(BertConfig, **{**DEFAULTS, "hidden_act": value})


@pytest.mark.parametrize("kind", [BertConfig, AlbertConfig])
def test_heads_that_do_not_divide_the_width_can_be_written_but_not_read_or_built(kind):
    config = kind(vocab_size=83, hidden_size=39, num_attention_heads=5)
    values = json.loads(config.to_json_string())
    assert values["hidden_size"] == 39 and values["num_attention_heads"] == 5
    message = "hidden_size (39) must be a multiple of num_attention_heads (5)"
    for told in (refusal(kind.from_dict, values), refusal(BertModel, config)):
        assert told == f"The BERT configuration is invalid: {message}"


def test_a_factor_without_effect_is_taken_as_by_the_original(warnings):
    config = AlbertConfig(83, hidden_size=24, num_attention_heads=4, down_scale_factor=2)
    assert AlbertConfig.from_dict(config.to_dict()).down_scale_factor == 2 and warnings == []


def test_all_that_is_impossible_is_listed_shortly():
    wrong = {"vocab_size": 0, "hidden_dropout_prob": 2, "initializer_range": -1}
    told = refusal(BertConfig, **wrong, hidden_act="swish")
    assert all(key in told for key in (*wrong, "hidden_act"))
    assert told.count("; ") == 4  # one of them in the activation's own message
    long = "x" * 10**6
    sizes = [key for key, value in DEFAULTS.items() if value != "gelu"]
    for values in ({"vocab_size": long}, dict.fromkeys(sizes, long), {long: long}, {long: 1}):
        told = refusal(BertConfig.from_dict, values)
        assert len(told) < 450
        assert not (len(values) > 2) or told.endswith("; and 9 more")


HAS_KEY = "A BERT configuration is a dictionary that has at least the key vocab_size"
NO_KEY = f"{{path}}: {HAS_KEY}; received"
NO_JSON = "The BERT configuration {path} is not JSON ("
WRONG_FILES = {
    "missing": (None, "The BERT configuration {path} cannot be read ("),
    "a folder": ("a folder", "The BERT configuration {path} cannot be read ("),
    "quotes": (b"{'vocab_size': 5}", f"{NO_JSON}Expecting property name"),
    "nothing": (b"", f"{NO_JSON}Expecting value"),
    "bytes": (b"\xff\xfe\x00", NO_JSON),
    "NaN": (b'{"vocab_size": 5, "x": NaN}', f"{NO_JSON}NaN is not a number in JSON"),
    "infinite": (b'{"x": 1e999}', f"{NO_JSON}'1e999' is beyond the range of a number"),
    "too deep": (b"[" * 100_000, f"{NO_JSON}maximum recursion depth exceeded"),
    "no key": (b"{}", f"{NO_KEY} {{}}"),
    "null": (b"null", f"{NO_KEY} None"),
    "a list": (b"[]", f"{NO_KEY} []"),
    "not the key": (b'{"hidden_size": 24}', f"{NO_KEY} {{'hidden_size': 24}}"),
    "words": (
        b'{"vocab_size": "many"}',
        "{path}: The BERT configuration is invalid: vocab_size must be a whole number between 1 and"
        " 2147483647, not 'many'",
    ),
}


@pytest.mark.parametrize("case", WRONG_FILES)
def test_a_wrong_file_is_named(tmp_path, case):
    content, message = WRONG_FILES[case]
    path = tmp_path / "bert_config.json"
    if content == "a folder":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    told = refusal(BertConfig.from_json_file, str(path))
    assert told.startswith(message.replace("{path}", str(path)))
    assert message.startswith("{path}") or told.endswith("; check --bert_config_file.")


def test_every_released_configuration_is_read():
    files = sorted((ROOT / "flags" / "models").glob("*/bert_config.json"))
    assert files
    for file in files:
        config = BertConfig.from_json_file(str(file))
        assert config.to_dict() == json.loads(file.read_text())


def test_the_keys_say_which_model_it_is(warnings):
    for kind, *several in (
        (BertConfig, {}, {"model_type": "bert"}),
        (AlbertConfig, {"num_hidden_groups": 1}, {"model_type": "albert"}),
    ):
        for keys in several:
            assert type(config_from_dict({"vocab_size": 97, **keys})) is kind
    assert not warnings
    config = config_from_dict({"vocab_size": 97, "model_type": "albert", "net_structure_type": 0})
    assert config.to_dict()["model_type"] == "albert"  # read, so it is kept and not called ignored
    BertConfig.from_dict({"vocab_size": 97, "model_type": "roberta"})
    ignored = [text.partition(": ")[2] for text in warnings]
    assert ignored == ["['net_structure_type']", "['model_type']"]
    for model_type in ("gpt2", None, ["bert"], "x" * 10_000):
        told = refusal(config_from_dict, {"vocab_size": 97, "model_type": model_type})
        assert told.startswith("model_type must be one of 'albert', 'bert'") and len(told) < 300


@pytest.mark.parametrize("read", [read_config, BertConfig.from_json_file])
@pytest.mark.parametrize("key", ["architectures", "transformers_version"])
def test_a_config_json_of_hugging_face_is_refused(tmp_path, key, read):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"vocab_size": 97, "hidden_act": "gelu", key: "4.8.2"}))
    assert refusal(read, str(path)) == (
        f"{path}: this is Hugging Face's config.json: it has '{key}'; its values mean something"
        " else in a bert_config.json (`gelu` is a different function). Convert it with"
        " `python -m tools.convert_checkpoint`; check --bert_config_file"
    )
