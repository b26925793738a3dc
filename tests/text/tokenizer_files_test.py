"""Hugging Face's files of a tokenizer give the ids that the package `tokenizers` gives."""

import json
import random

import numpy as np
import pytest
import tensorflow as tf
import tokenizers

from bert_tf.export.text_inputs import TextToIds
from bert_tf.text.fast_tokenization import FastTokenizer
from bert_tf.text.tokenizer_settings import AddedToken, TokenizerSettings
from bert_tf.text.tokenizers import load_tokenizer, read_vocabulary
from tests.support.encoded import copy_tokenizer
from tests.support.refusals import refusal, refuses
from tests.support.tokenizer_json import word_piece_json

LETTERS = "abcdeimnorstuvxyABCDEIMNORSTUVXY0129äöéü中国οδσςΟΔΣ\U0002b820"
WORDS = "the The cat sat möchte mochte schön MAX is café cafe 中国 news".split()
MARKS = ".,!?'[]_<>:-"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TOKENS = [*SPECIAL, *WORDS, *LETTERS, *(f"##{letter}" for letter in LETTERS), *MARKS]
VOCAB = {token: i for i, token in enumerate(dict.fromkeys(TOKENS))}
ADDED = ["[E1]", "[SPK]", "_E2_", "<x>", "covid19x", "möchte schön", "[e1]x", "中国"]
NEXT, THE_CAFE, BEGIN = len(VOCAB), [VOCAB["the"], VOCAB["cafe"]], {"begin": "[E1]"}
TEXTS = [
    "the cat sat.",
    "The MAX möchte schön café, e\u0301a\u0308!",
    "中国is 中国it\u3000日本",
    "[E1]the cat[E1]  sat [e1]x covid19x mat_E2_ <x> sat<x>on[SPK]",
    " [SPK]  the\tcat \u200b\0sat\u00adon \ufffd news möchte  schön MÖCHTE SCHÖN ",
    f"{'ab' * 75} the {'ba' * 45} cat {'ab' * 11}",
    "[SEP] the [MASK] cat [PAD] [unk]",
    "",
    # What the original does otherwise: a final sigma, private use, an ideograph.
    *("ΟΔΟΣ σοςΣ Σ ΣΟ-ΔΟΣ. οδος", "ca\ue000t \uf0b7 news\U000f0001 the\U0010fffd"),
    *("the\U0002b820cat \U0002b820", "a\x1cb\x1f c\x0bd\x85e\u2028x"),
]


def write(folder, files):
    """Writes a vocab.txt, and files by name as JSON; returns the path of the former."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("".join(f"{x}\n" for x in VOCAB), encoding="utf-8")
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    return str(folder / "vocab.txt")


CONFIG, MAP, ADDED_FILE = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"


def vocabulary(folder, **config):
    """Writes a vocab.txt and a tokenizer_config.json; returns the path of the former."""
    return write(folder, {CONFIG: config})


def draw(seed, path):
    """Returns a tokenizer of the package, with switches and added tokens at random.

    It is saved to a path; also returns whether it lower-cases texts.
    """
    rng = random.Random(seed)
    longest = rng.choice([100, 200, 30])
    model = tokenizers.models.WordPiece(VOCAB, unk_token="[UNK]", max_input_chars_per_word=longest)
    made = tokenizers.Tokenizer(model)
    made.normalizer = tokenizers.normalizers.BertNormalizer(
        clean_text=rng.random() < 0.8,
        handle_chinese_chars=rng.random() < 0.7,
        strip_accents=rng.choice([None, True, False]),
        lowercase=rng.random() < 0.5,
    )
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    made.add_special_tokens(SPECIAL)
    for content in rng.sample(ADDED, rng.randrange(5)):
        flags = {flag: rng.random() < 0.3 for flag in ("lstrip", "rstrip", "single_word")}
        normalized = rng.random() < 0.5
        made.add_tokens([tokenizers.AddedToken(content, normalized=normalized, **flags)])
    made.save(path)
    with open(path, encoding="utf-8") as reader:
        return made, json.load(reader)["normalizer"]["lowercase"]


@pytest.mark.parametrize("seed", range(60))
def test_a_tokenizer_json_drawn_at_random(tmp_path, seed):
    path = str(tmp_path / "tokenizer.json")
    expected, lower = draw(seed, path)
    tokenizer = load_tokenizer(path, lower)
    # What is written of a folder is read as the same tokenizer.
    copy_tokenizer(path, tmp_path / "again")
    copy = load_tokenizer(f"{tmp_path}/again/vocab.txt", lower)
    every = []
    for text in TEXTS:
        ids = expected.encode(text, add_special_tokens=False).ids
        assert tokenizer.encode([text])[0].tolist() == ids, text
        assert copy.encode([text])[0].tolist() == ids, text
        assert [piece.token_id for piece in tokenizer.pieces(text)] == ids, text
        every += ids
    assert tokenizer.encode(TEXTS)[0].tolist() == every


CLASS = {"tokenizer_class": "BertTokenizer"}


@pytest.mark.parametrize(
    ("lower", "switches", "added"),
    [
        (True, {"strip_accents": False, "tokenize_chinese_chars": False}, {}),
        (
            *(False, {"strip_accents": True, "clean_text": False}),
            {"[E1]": {}, "<x>": {"lstrip": True}, "_E2_": {"rstrip": True, "lstrip": True}},
        ),
        pytest.param(True, {"drop_category_c": True}, {"[E1]": {}}, marks=pytest.mark.slow),
        (True, CLASS, {}),
        (False, {"tokenizer_class": "BertTokenizerFast", "strip_accents": True}, {"[E1]": {}}),
    ],
    ids=["accents", "cased", "electra", "hugging_face", "hugging_face_cased"],
)
def test_the_graph_gives_the_same_ids(tmp_path, lower, switches, added):
    tokens = {str(len(VOCAB) + i): {"content": x} | y for i, (x, y) in enumerate(added.items())}
    config = {"max_input_chars_per_word": 21, "added_tokens_decoder": tokens} | switches
    tokenizer = load_tokenizer(vocabulary(tmp_path, **config), lower)
    texts = [text for text in TEXTS if "\0" not in text]
    found = TextToIds(tokenizer)(tf.constant(texts)).to_list()
    assert found == [tokenizer.encode([text])[0].tolist() for text in texts]


def test_a_token_that_no_graph_finds(tmp_path):
    for flag in ("normalized", "single_word"):
        tokens = {str(len(VOCAB)): {"content": "[E1]", flag: True}}
        tokenizer = load_tokenizer(vocabulary(tmp_path, added_tokens_decoder=tokens), True)
        refuses(r"added token '\[E1\]' cannot .* --input_kind=ids", TextToIds, tokenizer)


def test_files_beside_a_vocabulary(tmp_path):
    """The ids of "[E1] the Café" that the files ask for."""
    more = "additional_special_tokens"
    for number, (files, ids) in enumerate(
        (
            ({}, THE_CAFE),
            ({CONFIG: {"strip_accents": False}}, [VOCAB["the"], VOCAB["café"]]),
            ({ADDED_FILE: {"[E1]": NEXT}}, [NEXT, *THE_CAFE]),
            ({MAP: {more: ["[SPK]", "[E1]"]}}, [NEXT + 1, *THE_CAFE]),
            ({CONFIG: {more: ["[SPK]"], "extra_special_tokens": BEGIN}}, [NEXT, *THE_CAFE]),
            ({CONFIG: {"extra_special_tokens": {"begin": "[E1] the"}}}, [NEXT, VOCAB["cafe"]]),
            (
                {CONFIG: {more: ["[E1]"]}, ADDED_FILE: {"[E2]": NEXT, "[E1]": NEXT + 1}},
                [NEXT + 1, *THE_CAFE],
            ),
        )
    ):
        path = write(tmp_path / str(number), files)
        found = load_tokenizer(path, True).encode(["[E1] the Café"])[0].tolist()
        assert found[-len(ids) :] == ids
        assert (len(found) == len(ids)) == ("[E1]" in json.dumps(files))


NO_CONTENT = "an added token must have a content, .*; received 7"
WRONG = [
    ({"tokenizer_class": "BertJapaneseTokenizer"}, 'tokenizer_class must be "BertTokenizer", not'),
    ({"tokenizer_class": "RobertaTokenizerFast"}, 'tokenizer_class must be "BertTokenizer", not'),
    ({"do_basic_tokenize": False}, "do_basic_tokenize must be true, not False: nothing else is"),
    ({"truncation_side": "left"}, "truncation_side must be .right., not 'left': texts are cut at"),
    ({"never_split": ["MAX"]}, "never_split must be null, not .'MAX'.: make them added tokens"),
    ({"word_tokenizer_type": "mecab"}, "word_tokenizer_type is not known, .*; it is 'mecab'"),
    ({"strip_accents": "no"}, "strip_accents must be true or false; received 'no'"),
    ({"max_input_chars_per_word": 0}, "max_input_chars_per_word must be a whole number above 0"),
    ({"mask_token": "<mask>"}, r"mask_token must be \[MASK\]; received '<mask>'"),
    ({"eos_token": "</s>"}, r"eos_token must be \[SEP\]; received '</s>'"),
    ({"added_tokens_decoder": {"7": {"content": "[E1]"}}}, r"'\[E1\]' has id 7. Are the files fr"),
    ({"added_tokens_decoder": {"x": {"content": "[E1]"}}}, "an added token must have a content"),
    ({"added_tokens_decoder": {"7": {"content": "[E1]", "normalised": False}}}, "and nothing else"),
    ({"added_tokens_decoder": ["[E1]"]}, "an added token must have a content"),
    (
        {"additional_special_tokens": [{"content": "[E1]", "lstripp": True}]},
        "and nothing else; rec",
    ),
    ({"extra_special_tokens": 7}, NO_CONTENT),
    ({"additional_special_tokens": [7]}, NO_CONTENT),
]


@pytest.mark.parametrize(("config", "message"), WRONG, ids=[next(iter(x)) for x, _ in WRONG])
def test_what_is_refused(tmp_path, config, message):
    path = write(tmp_path, {"tokenizer_config.json": config})
    refuses(message, load_tokenizer, path, True)


def test_files_that_contradict_each_other(tmp_path):
    for config, vocab, message in (
        ({"strip_accents": False}, VOCAB, "strip_accents is true in the former and false in the"),
        ({"do_lower_case": False}, VOCAB, "do_lower_case is true in the former and false in the"),
        ({}, {**VOCAB, "the": VOCAB["cat"], "cat": VOCAB["the"]}, "the same vocabulary; token"),
    ):
        files = {"tokenizer.json": word_piece_json(vocab), "tokenizer_config.json": config}
        assert message in refusal(load_tokenizer, write(tmp_path, files), True)


def test_a_byte_order_mark_is_no_part_of_the_first_token(tmp_path):
    text = "".join(f"{x}\n" for x in VOCAB)
    (tmp_path / "vocab.txt").write_text(text, encoding="utf-8-sig")
    tokenizer = load_tokenizer(str(tmp_path / "vocab.txt"), True)
    assert dict(tokenizer.vocab) == VOCAB
    assert read_vocabulary(str(tmp_path / "vocab.txt")) == {"vocab.txt": text.encode()}


@pytest.mark.parametrize("normalized", [True, False])
def test_texts_with_and_without_added_tokens_in_one_call(normalized):
    """Each text has the same ids as alone, whichever texts are encoded with it."""
    added = (AddedToken("[E1]", 900, normalized=normalized), AddedToken("covid", 901, lstrip=True))
    tokenizer = FastTokenizer(VOCAB, settings=TokenizerSettings(added_tokens=added))
    texts = ["the cat", "[E1]", "", "[E1] covid the[E1]cat", "cat [", " covid", "sat"]
    for chosen in (texts, texts[::-1], texts[:1], [], ["", ""], texts[3:4] * 2):
        ids, splits = tokenizer.encode(chosen)
        rows = [ids[i:j].tolist() for i, j in zip(splits, splits[1:], strict=False)]
        assert rows == [tokenizer.encode([text])[0].tolist() for text in chosen]
        assert ids.dtype == np.int32 and splits[-1] == len(ids)
    assert rows == [[900, 901, VOCAB["the"], 900, VOCAB["cat"]]] * 2


@pytest.mark.parametrize(
    ("text", "original", "hugging_face"),
    [
        ("ΔΟΣ", "δ ##ο ##ς", "δ ##ο ##σ"),
        ("Σ ΣΟΣ-ΟΣ", "σ σ ##ο ##ς - ο ##ς", "σ σ ##ο ##σ - ο ##σ"),
        ("ca\ue000t the\uf8ff", "[UNK] [UNK]", "cat the"),
        ("a\U0002b820b", "a \U0002b820 b", "a ##\U0002b820 ##b"),
    ],
)
def test_where_the_original_and_the_package_differ(tmp_path, text, original, hugging_face):
    paths = vocabulary(tmp_path / "a"), vocabulary(tmp_path / "b", tokenizer_class="BertTokenizer")
    for path, tokens in zip(paths, (original.split(), hugging_face.split()), strict=True):
        tokenizer = load_tokenizer(path, True)
        ids = [VOCAB[token] for token in tokens]
        assert tokenizer.encode([text])[0].tolist() == ids
        assert [piece.token_id for piece in tokenizer.pieces(text)] == ids
        assert tokenizer.reference.tokenize(text) == tokens
        written = read_vocabulary(path).get("tokenizer_config.json", b"")
        assert (b'"tokenizer_class": "BertTokenizer"' in written) == (path == paths[1])


def test_a_class_that_ignores_tokenizer_json(tmp_path):
    same = "the class of its tokenizer must say the same; do_lower_"
    differ = "is false in the former and true"
    for config, normalizer, message in (
        ({}, {"lowercase": False}, same),
        ({"do_lower_case": None}, {"lowercase": False}, f"do_lower_case {differ} in the"),
        ({"strip_accents": None}, {"strip_accents": False}, f"strip_accents {differ}"),
        ({}, {"handle_chinese_chars": False}, "tokenize_chinese_chars is false in the former"),
        ({}, {"clean_text": False}, f"clean_text {differ} in"),
    ):
        path = vocabulary(tmp_path, tokenizer_class="BertTokenizerFast", **config)
        processor = {"type": "BertProcessing", "cls": ["[CLS]", 2], "sep": ["[SEP]", 3]}
        content = word_piece_json(VOCAB, post_processor=processor)
        content["normalizer"] |= normalizer
        (tmp_path / "tokenizer.json").write_text(json.dumps(content))
        told = refusal(load_tokenizer, path, True)
        assert message in told
        assert 'write "tokenizer_class": "PreTrainedTokenizerFast" to tokenizer_config.json' in told
        vocabulary(tmp_path, tokenizer_class="PreTrainedTokenizerFast", **config)
        load_tokenizer(path, True)


def test_a_switch_that_the_class_ignores(tmp_path):
    switches = {"clean_text": False, "max_input_chars_per_word": 9, "drop_category_c": True}
    for name, value in switches.items():
        path = vocabulary(tmp_path, **{name: value})
        load_tokenizer(path, True)  # this library's folder
        told = refusal(load_tokenizer, path, True, hugging_face=True)
        assert f"tokenizer_config.json: {name} must be " in told
        assert f"not {json.dumps(value)}, which transformers ignores. Delete the key" in told


def test_tokenizer_json_is_parsed_once(tmp_path, monkeypatch):
    from bert_tf.text import casing, tokenizer_json

    content = word_piece_json(VOCAB, lowercase=False)
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    read, read_json = [], tokenizer_json.read_json
    monkeypatch.setattr(tokenizer_json, "read_json", lambda *x: read.append(x) or read_json(*x))
    path = str(tmp_path / "tokenizer.json")
    tokenizer = load_tokenizer(path, True)
    assert casing.find_casing(str(tmp_path), path, VOCAB, tokenizer.settings) is False
    assert len(read) == 1


@pytest.mark.parametrize("seed", range(12))
def test_lower_casing_before_the_tokenizer(tmp_path, seed):
    # As sentence-transformers 6 does it for do_lower_case of its sentence_bert_config.json.
    path = str(tmp_path / "tokenizer.json")
    expected, lower = draw(1000 + seed, path)
    tokenizer = load_tokenizer(path, lower).after_lowering()
    steps = [tokenizers.normalizers.Lowercase(), expected.normalizer]
    expected.normalizer = tokenizers.normalizers.Sequence(steps)
    for text in TEXTS:
        ids = expected.encode(text, add_special_tokens=False).ids
        assert tokenizer.encode([text])[0].tolist() == ids, text


def test_whether_an_added_token_is_found_in_other_case(tmp_path):
    # The values are those of transformers 5.24 for such folders.
    more, extra = {"additional_special_tokens": ["[E1]"]}, {"extra_special_tokens": ["[E1]"]}
    for number, (files, found) in enumerate(
        (({}, True), ({MAP: more}, True), ({CONFIG: more}, False), ({MAP: extra}, False))
    ):
        files = {ADDED_FILE: {"[E1]": NEXT}, **files}
        tokenizer = load_tokenizer(write(tmp_path / str(number), files), True)
        assert (NEXT in tokenizer.encode(["the [e1] cat"])[0]) == found
        assert NEXT in tokenizer.encode(["the [E1] cat"])[0]


EXTRA_E2, MORE_E1 = {"extra_special_tokens": ["[E2]"]}, {"additional_special_tokens": ["[E1]"]}
MORE_E2 = {"additional_special_tokens": ["[E2]"]}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {CONFIG: EXTRA_E2, MAP: MORE_E1},
            "ignores the token '[E1]': it does not read additional_special_tokens beside extra_",
        ),
        (
            {CONFIG: EXTRA_E2 | {"additional_special_tokens": ["[E2]", "[SPK]"]}},
            "transformers ignores the token '[SPK]': it does not read additional_special_tokens",
        ),
        (
            {CONFIG: MORE_E2, MAP: {"additional_special_tokens": ["[E2]", "[E1]"]}},
            "ignores the token '[E1]'",
        ),
        (
            {ADDED_FILE: {"[E1]": NEXT + 1}},
            f"ids of added tokens must be the numbers from {NEXT} on",
        ),
        (
            {ADDED_FILE: {"[E1]": NEXT, "[E2]": NEXT + 5}},
            f"they are '{NEXT}', '{NEXT + 5}'. Add tokens for the missing ids",
        ),
    ],
    ids=["map", "config", "both", "hole", "late"],
)
def test_added_tokens_that_transformers_has_otherwise(tmp_path, files, message):
    assert message in refusal(load_tokenizer, write(tmp_path, files), True)
