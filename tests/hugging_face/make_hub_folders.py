r"""Makes folders as the Hub has them, with the answers of transformers.

    python -m tests.hugging_face.make_hub_folders FOLDER --count=20 --seed=1
    python -m tests.hugging_face.make_hub_folders FOLDER --families=xlm-roberta,camembert \
        --count=6 --seed=21 --odd_texts=100

Each folder's `expected.json` has the ids and the outputs for TEXTS, and the ids of odd texts drawn
at random. Needs transformers 5 with torch, sentencepiece and tiktoken. The folder `hub` beside this
file has what these two commands write;
`BERT_TF_HUB_FOLDERS=FOLDER pytest tests/hugging_face/hub_folders_test.py` tests other folders.
"""

import argparse
import functools
import io
import json
import random
import shutil
from pathlib import Path

import numpy as np
import sentencepiece
import torch
import transformers
from tokenizers import AddedToken, pre_tokenizers

TEXTS = [
    "The MAX möchte schön ångström naïve café!",
    "中国 is中国it 日本",
    "[E1]the cat[E1] sat [e1] [E2] covid19x mat_E2_ <x> sat<x>on",
    "walk  [SPK]  the\tcat \u200b\u0000 sat\u00adon \ufffd news",
    f"you {'ab' * 75} idiot {'ba' * 45} cat",
    "[SEP] the [MASK] cat [PAD] <mask> x",
    " What IS it, You Idiot? 10 news's e\u0301a\u0308 ",
]
WORDS = (
    "the cat sat on mat walk möchte mochte schön schon what is it you idiot café cafe ångström"
    " 中 国 中国 MAX The What IS 10 covid19 naïve naive news"
).split()
LETTERS = "abcdefghiklmnopqrstuvwxyzABCEIMSTWY012äöéïå中国日"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = [*SPECIAL, *WORDS, *LETTERS, *(f"##{x}" for x in LETTERS), *".,!?'[]_<>"]
MERGES = "t h,th e,Ġ the,Ġ c,Ġc a,Ġca t,a t,s at,Ġ sat".split(",")
ADDED = ["[E1]", "[SPK]", "[E2]", "_E2_", "<x>", "covid19x", "möchte schön"]
TAGS = {
    "bio": ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"],
    "io": ["O", "I-PER", "I-LOC"],
    "bilou": ["O", "B-PER", "I-PER", "L-PER", "U-PER"],
    "iobes": ["O", "B-LOC", "I-LOC", "E-LOC", "S-LOC"],
}
CLASSES = {"bert": "Bert", "distilbert": "DistilBert", "roberta": "Roberta", "albert": "Albert"}
CLASSES |= {"xlm-roberta": "XLMRoberta", "camembert": "Camembert"}
FAIRSEQ = ("xlm-roberta", "camembert")
SENTENCES = """The cat sat on the mat, didn't it? It cost $1,234.50 (or 99%)!
Où est le café? L'été dernier, nous étions à la plage; c'était très agréable.
Die Straße ist schön, und der Fluß fließt. Größe: 10 Äpfel.
Кошка сидела на коврике и смотрела в окно. Сколько это стоит?
القطة جلست على السجادة ونظرت من النافذة. كم الثمن؟
बिल्ली चटाई पर बैठी थी और खिड़की से देख रही थी।
แมวนั่งอยู่บนเสื่อและมองออกไปนอกหน้าต่าง
猫はマットの上に座って、窓の外を見ていた。ﾃｽﾄです。
那只猫坐在垫子上，看着窗外。这要多少钱？
고양이가 매트 위에 앉아 창밖을 보고 있었다.
Η γάτα κάθισε στο χαλί και κοίταξε έξω.
החתול ישב על השטיח והביט מהחלון.
Con mèo ngồi trên tấm thảm và nhìn ra ngoài cửa sổ.""".split("\n")
RULES = [
    ("FF21", "41"),
    ("FB01", "66 69"),
    ("9", "20"),
    ("3000", "20"),
    ("65 301", "E9"),
    ("AD", ""),
]
# What odd texts are made of, beside the sentences' words and letters.
ODD = [
    *("", " ", "  ", "\t", "\n", "\r\n", "\x01", "\x1f", "\x7f", "\x85", "\xa0", "\xad", "\u200b"),
    *("\u200d", "\u2028", "\u3000", "\ufeff", "\ufffd", "\ue000", "\u0301", "e\u0301", "\u0308"),
    *("ﬁ", "Ａｂ１", "①", "㍿", "½", "ß", "İ", "▁", "▁▁", "한", "각", "𝔘", "…", "😀", "🇫🇷", "👍🏽"),
    "👩\u200d👩\u200d👧",
    *("<mask>", " <mask>", "<mask> ", " <mask> ", "<s>", "</s>", "<pad>", "<unk>", "<unk", "<s"),
    *("[MASK]", "``", "''", "1,000", "10", "%", ".", "。", "?!", "-", "[E1]", "<x>", "_E2_"),
]
TASKS = [
    *("Model", "ForMaskedLM", "ForQuestionAnswering", "classification", "multi_label"),
    *("regression", *TAGS),
]


def flags(rng: random.Random) -> dict[str, bool]:
    """Returns the flags of an added token, mostly false."""
    return {name: rng.random() < 0.2 for name in ("lstrip", "rstrip", "single_word")}


def write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def word_pieces(rng: random.Random, folder: Path) -> int:
    """Writes a tokenizer in the layout of transformers 5, 4 or 3; returns the number of rows."""
    vocab = {token: i for i, token in enumerate(dict.fromkeys(PIECES))}
    options = {"do_lower_case": rng.random() < 0.5}
    if rng.random() < 0.4:
        options["strip_accents"] = rng.random() < 0.5
    if rng.random() < 0.3:
        options["tokenize_chinese_chars"] = False
    tokenizer = transformers.BertTokenizer(vocab=dict(vocab), **options)
    for content in rng.sample(ADDED, rng.choice([0, 0, 1, 2, 4])):
        special = rng.random() < 0.4
        token = AddedToken(content, normalized=not special, special=special, **flags(rng))
        tokenizer.add_tokens([token], special_tokens=special)
    tokenizer.save_pretrained(folder)
    layout = rng.choice([5, 5, 4, 3])
    if layout == 5:
        return len(vocab) + 8
    (folder / "vocab.txt").write_text("".join(f"{x}\n" for x in vocab), encoding="utf-8")
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    added = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["added_tokens"]
    config = {k: x for k, x in config.items() if k not in ("backend", "extra_special_tokens")}
    if layout == 4:
        config["added_tokens_decoder"] = {x.pop("id"): x for x in added}
        config["clean_up_tokenization_spaces"] = True
        if rng.random() < 0.5:
            (folder / "tokenizer.json").unlink()
    else:
        (folder / "tokenizer.json").unlink()
        new = [x for x in added if x["id"] >= len(vocab)]
        write_json(folder / "added_tokens.json", {x["content"]: x["id"] for x in new})
        names = {f"{x[1:-1].lower()}_token": x for x in SPECIAL}
        names["additional_special_tokens"] = [x["content"] for x in new if x["special"]]
        write_json(folder / "special_tokens_map.json", names)
    write_json(folder / "tokenizer_config.json", config)
    return len(vocab) + 8


def byte_pairs(rng: random.Random, folder: Path) -> int:
    pieces = ["<s>", "<pad>", "</s>", "<unk>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    pieces += [merge.replace(" ", "") for merge in MERGES] + ["<mask>"]
    vocab = {piece: i for i, piece in enumerate(pieces)}
    mask = AddedToken("<mask>", lstrip=rng.random() < 0.6, special=True, normalized=False)
    tokenizer = transformers.RobertaTokenizer(
        vocab=vocab,
        merges=[tuple(merge.split()) for merge in MERGES],
        add_prefix_space=rng.random() < 0.2,
        mask_token=mask,
    )
    for content in rng.sample(ADDED, rng.choice([0, 0, 1, 3])):
        token = AddedToken(content, normalized=False, **flags(rng))
        tokenizer.add_tokens([token], special_tokens=rng.random() < 0.4)
    tokenizer.save_pretrained(folder)
    if rng.random() < 0.5:
        write_json(folder / "vocab.json", vocab)
        lines = "".join(f"{merge}\n" for merge in MERGES)
        (folder / "merges.txt").write_text(f"#version: 0.2\n{lines}", encoding="utf-8")
    return len(vocab) + 8


def sentence_pieces(rng: random.Random, folder: Path) -> int:
    model = io.BytesIO()
    words = [*WORDS, *LETTERS, *"<>_[].,!?'"]
    sentences = [" ".join(random.Random(i).sample(words, 12)) for i in range(300)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_writer=model,
        vocab_size=180,
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
        pad_piece="<pad>",
        unk_piece="<unk>",
        control_symbols="[CLS],[SEP],[MASK]",
        hard_vocab_limit=False,
        minloglevel=2,
    )
    (folder / "spiece.model").write_bytes(model.getvalue())
    config = {"tokenizer_class": "AlbertTokenizer", "do_lower_case": rng.random() < 0.5}
    if rng.random() < 0.5:
        config["keep_accents"] = rng.random() < 0.5
    write_json(folder / "tokenizer_config.json", config)
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue()).vocab_size()


def fairseq_pieces(rng: random.Random, folder: Path, family: str) -> int:
    """Writes a tokenizer in the layout of transformers 5 or 4, the latter with the model's file."""
    layout, model, rules = rng.choice(["model", "json", "both"]), io.BytesIO(), folder / "rules"
    rules.write_text("".join(f"{old}\t{new}\n" for old, new in RULES), encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*SENTENCES * 3, *(" ".join(WORDS),) * 3]),
        model_writer=model,
        vocab_size=rng.choice([420, 470]),
        character_coverage=0.98,
        hard_vocab_limit=False,
        user_defined_symbols=rng.choice(["", "", "Straße,<x>"]),
        # The rules of XLM-RoBERTa take 240 kB.
        **{"normalization_rule_tsv": str(rules)} if layout != "model" else {},
        minloglevel=2,
    )
    rules.unlink()
    name = "sentencepiece.bpe.model"
    (folder / name).write_bytes(model.getvalue())
    tokenizer = getattr(transformers, f"{CLASSES[family]}Tokenizer").from_pretrained(folder)
    for content in rng.sample(ADDED, rng.choice([0, 1, 3])):
        special = rng.random() < 0.4
        token = AddedToken(content, normalized=rng.random() < 0.3, special=special, **flags(rng))
        tokenizer.add_tokens([token], special_tokens=special)
    if layout != "model":
        tokenizer.save_pretrained(folder)
    else:
        kind = {"tokenizer_class": f"{CLASSES[family]}Tokenizer"}
        write_json(folder / "tokenizer_config.json", rng.choice([{}, kind]))
    if layout == "json":
        (folder / name).unlink()
    return len(tokenizer) + 8


def odd_text(rng: random.Random) -> str:
    """Returns words, letters and odd characters, at times with spaces between them."""
    sentence = rng.choice(SENTENCES)
    parts = [*sentence.split(), *sentence, *ODD, *ODD, chr(rng.randrange(1, 0xD800))]
    parts += [chr(rng.randrange(0x10000, 0x1FFFF)), *ADDED]
    between = rng.choice(["", "", " ", "  "])
    return between.join(rng.choices(parts, k=rng.randrange(12)))


TOKENIZERS = {
    "bert": word_pieces,
    "distilbert": word_pieces,
    "roberta": byte_pairs,
    "albert": sentence_pieces,
    **{family: functools.partial(fairseq_pieces, family=family) for family in FAIRSEQ},
}


def sizes(rng: random.Random, family: str) -> dict[str, object]:
    if family == "distilbert":
        return {"dim": 8, "n_layers": 2, "n_heads": 2, "hidden_dim": 12}
    values = {
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 12,
        "hidden_act": rng.choice(["gelu", "gelu_new", "relu"]),
        "layer_norm_eps": rng.choice([1e-12, 1e-5]),
    }
    if family == "albert":
        values["embedding_size"] = 4
    if family in ("roberta", *FAIRSEQ):
        values |= {"type_vocab_size": 1, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
    return values


def make_model(rng: random.Random, family: str, task: str, rows: int):
    labels, options, end = None, {}, task
    if task in TAGS:
        labels, end = TAGS[task], "ForTokenClassification"
    elif task in ("classification", "multi_label", "regression"):
        labels, end = ["bad", "good", "so so"], "ForSequenceClassification"
        kinds = {
            "classification": [None, "single_label_classification"],
            "multi_label": ["multi_label_classification"],
            "regression": [None, "regression"],
        }
        options["problem_type"] = rng.choice(kinds[task])
        labels = ["LABEL_0"] if task == "regression" else labels
    if labels:
        options["id2label"] = dict(enumerate(labels))
        options["label2id"] = {label: i for i, label in enumerate(labels)}
    config = getattr(transformers, f"{CLASSES[family]}Config")(
        vocab_size=rows,
        max_position_embeddings=130,
        initializer_range=0.5,
        **sizes(rng, family),
        **{name: value for name, value in options.items() if value},
    )
    torch.manual_seed(rng.randrange(10**6))
    return getattr(transformers, f"{CLASSES[family]}{end}")(config).eval()


def make(folder: Path, seed: int, families: list[str], num_odd: int) -> str:
    rng = random.Random(seed)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    family = families[seed % len(families)]
    task = TASKS[seed % len(TASKS)]
    model = make_model(rng, family, task, TOKENIZERS[family](rng, folder))
    model.save_pretrained(folder, max_shard_size="8KB" if rng.random() < 0.2 else "5GB")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    expected = []
    for text in TEXTS:
        inputs = tokenizer(text, return_tensors="pt", truncation=True, max_length=128)
        with torch.no_grad():
            out = model(**inputs)
        values = next(out[x] for x in ("logits", "start_logits", "last_hidden_state") if x in out)
        values = np.asarray(values).reshape(-1)[:40].astype(float).round(6).tolist()
        expected.append({"text": text, "ids": inputs["input_ids"][0].tolist(), "outputs": values})
    odd = [odd_text(rng) for _ in range(num_odd)]
    ids = tokenizer(odd, truncation=True, max_length=128)["input_ids"] if odd else []
    expected += [{"text": x, "ids": y} for x, y in zip(odd, ids, strict=True)]
    write_json(folder / "expected.json", expected)
    return f"{folder}: {family} {task}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--families", default="bert,bert,bert,distilbert,roberta,albert")
    parser.add_argument("--odd_texts", type=int, default=0)
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        folder, families = arguments.folder / f"{seed:03d}", arguments.families.split(",")
        print(make(folder, seed, families, arguments.odd_texts), flush=True)


if __name__ == "__main__":
    main()
