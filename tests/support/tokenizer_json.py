"""The content of a `tokenizer.json` with word pieces, as the package `tokenizers` writes it."""

from typing import Any


def word_piece_json(vocab: dict[str, int], *, lowercase: bool = True, **parts: Any) -> dict:
    """Returns the content of the file; `parts` replace parts of it."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": lowercase,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": vocab,
        },
        **parts,
    }
