"""Fuzzer of `bert_config.json`: values are the file's, `to_dict` gives them back, or it refuses."""

import json
import random as random_module
from pathlib import Path
from typing import Any

from bert_tf.model.configuration import BertConfig
from tests.fuzz.cases import attempt, damage

DEFAULTS = BertConfig(30522).to_dict()
GOOD = {
    **DEFAULTS,
    "hidden_size": 24,
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "directionality": "bidi",
    "pooler": {"layers": [3, {"fc": 768}]},
}
# Methods, what Python itself looks up, and what the class keeps for itself.
NAMES = ["to_dict", "check_seq_length", "from_dict", "_unknown", "_validate", "__class__", "self"]
NAMES += ["__dict__", "__deepcopy__", "__getattr__", "", "\ud800", "ключ", "a\nb", "k" * 2000]
NUMBERS = [0, 1, 3, -1, 24, 2**31 - 1, 2**31, 10**9, 10**12, 10**30, 10**400, 0.0, 0.1, 2.0, 1e308]
NUMBERS += [-0.0, 1e-320, 1.0 - 2**-53]
WORDS = ["gelu", "RELU", "", "swish", "12", "nan", "Infinity", "é" * 3000, "a\nb", "\x00"]


def fuzz_configuration(random: random_module.Random, folder: Path) -> None:
    """A file with wild keys and values, or with damaged bytes."""
    text = _text(random)
    path = folder / "bert_config.json"
    data = text.encode("utf-8", "surrogatepass")
    while random.random() < 0.3:
        data = damage(random, data)
    path.write_bytes(data)
    _, config = attempt(lambda: BertConfig.from_json_file(str(path)), naming=str(path))
    if config is not None:
        _check(config, data, path)


def _check(config: BertConfig, data: bytes, path: Path) -> None:
    """Checks an accepted configuration against Python's own reading of the file."""
    expected = json.loads(data.decode())
    values = config.to_dict()
    assert _same(values, {**DEFAULTS, **expected})
    for name in DEFAULTS:
        assert _same(getattr(config, name), values[name])
    for name in ("vocab_size", "hidden_size", "num_hidden_layers", "max_position_embeddings"):
        assert type(values[name]) is int and 0 < values[name] < 2**31
    assert values["hidden_size"] % values["num_attention_heads"] == 0
    assert 0.0 < values["initializer_range"] < float("inf")
    config.check_seq_length(1)  # no key has replaced it
    path.write_text(config.to_json_string())
    assert _same(BertConfig.from_json_file(str(path)).to_dict(), values)


def _same(one: Any, other: Any) -> bool:
    """Returns whether two values are equal and of equal types, so that 1, 1.0 and true differ."""
    return repr(_sorted(one)) == repr(_sorted(other))


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return sorted((key, _sorted(x)) for key, x in value.items())
    return [_sorted(x) for x in value] if isinstance(value, list) else value


def _text(random: random_module.Random) -> str:
    """Returns the JSON of a configuration with some changes."""
    values: Any = dict(GOOD)
    for _ in range(random.choice([0, 1, 1, 2, 5])):
        key = random.choice([*GOOD, *NAMES])
        if random.random() < 0.2:
            values.pop(key, None)
        else:
            values[key] = _value(random)
    if random.random() < 0.05:
        values = _value(random)
    text = json.dumps(values, ensure_ascii=random.random() < 0.5, indent=random.choice([None, 2]))
    if random.random() < 0.1:
        text = text.replace("24", random.choice(["1e999", "-1e999", "9" * 5000, "0x18", "2_4"]))
    if random.random() < 0.05:
        depth = random.choice([30, 60, 100_000])
        text = text[:-1] + ', "deep": ' + "[" * depth + "]" * depth + "}"
    return text


def _value(random: random_module.Random) -> Any:
    match random.randrange(8):
        case 0 | 1 | 2:
            return random.choice(NUMBERS)
        case 3:
            return random.choice([True, False, None, float("nan"), float("inf")])
        case 4:
            return random.choice(WORDS)
        case 5:
            return [_value(random) for _ in range(random.randrange(3))]
        case 6:
            return {random.choice(NAMES): _value(random)}
        case _:
            return random.uniform(-1, 2)
