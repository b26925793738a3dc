"""Reads a `tokenizer.json`: the vocabulary of BERT's tokenizer, and whether it lower-cases."""

from bert_tf.errors import UserError, quoted
from bert_tf.files.whole_files import read_json

_RULE = "it must be the tokenizer of a BERT model"
_PARTS = ("model", "normalizer")


def read_tokenizer(path: str) -> tuple[dict[str, int], bool]:
    """Returns the vocabulary, token -> id in the order of ids, and `do_lower_case`.

    Raises:
        UserError: the file is damaged, or is the tokenizer of another kind of model.
    """
    content = read_json(path, path, _RULE)
    parts = [content.get(key) if isinstance(content, dict) else None for key in _PARTS]
    model, normalizer = (part if isinstance(part, dict) else {} for part in parts)
    prefix = model.get("continuing_subword_prefix", "##")
    kinds = (model.get("type", "WordPiece"), normalizer.get("type"), prefix)
    vocab = model.get("vocab")
    if kinds != ("WordPiece", "BertNormalizer", "##") or not isinstance(vocab, dict):
        raise UserError(
            f"{path}: {_RULE}: WordPiece with a vocabulary and ##, and BertNormalizer; received"
            f" {quoted(kinds)}"
        )
    ids = list(vocab.values())
    if not ids or any(type(i) is not int for i in ids) or sorted(ids) != list(range(len(ids))):
        raise UserError(
            f"{path}: the ids of the vocabulary must be the numbers from 0 to {len(ids) - 1}, each"
            " once"
        )
    lowercase, strip_accents = normalizer.get("lowercase"), normalizer.get("strip_accents")
    if not isinstance(lowercase, bool) or strip_accents not in (None, lowercase):
        raise UserError(
            f"{path}: lowercase of BertNormalizer must be true or false, and strip_accents null or"
            f" the same, as in google-research/bert; received {quoted(lowercase)} and"
            f" {quoted(strip_accents)}"
        )
    return dict(sorted(vocab.items(), key=lambda item: item[1])), lowercase
