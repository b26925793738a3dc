r"""Adds words of your own text to a model's vocabulary, with initial embeddings.

    python -m tools.extend_vocabulary --input_file='text/*.txt' --num_words=1000 \
        --init_checkpoint=MODEL --output_dir=output/extended

It adds the --num_words words and pieces of words that save the most tokens of the text. A new
entry's embedding and output bias are the means over the pieces that it replaces. All other weights
stay; the optimizer's slots and the step are dropped. --output_dir gets

    bert_model.ckpt.index and .data-...         the weights
    bert_config.json, vocab.txt                 with the new vocabulary
    tokenizer_config.json, labels.txt           the casing, and the classes if there are any
    new_words.tsv                               each new entry: its id, its count in the text, the
                                                pieces that it replaces

for run_pretraining --init_checkpoint, bert_tf.load and every other program. If the new vocabulary
splits a text into old tokens only, its outputs stay the same, bit for bit.

The tool tokenizes the text again and prints the gain: tokens per word, split words, and words that
are [UNK].
"""

if __name__ == "__main__" and not __package__:
    raise SystemExit("Run this from the folder above: python -m tools.extend_vocabulary")

import dataclasses
import os
from collections.abc import Mapping, Sequence

import numpy as np
from absl import logging

from bert_tf import tokenization
from bert_tf.datasets import text_files
from bert_tf.errors import UserError, listed
from bert_tf.files import storage
from bert_tf.files.model_notes import write_model_input
from bert_tf.files.paths import check_overwrites
from bert_tf.files.whole_files import read_text, write_whole
from bert_tf.files.whole_folders import whole_folder
from bert_tf.model.configuration import BertConfig
from bert_tf.model.family import config_from_dict, read_config
from bert_tf.model_folder.hugging_face.vector_settings import (
    VECTOR_FILES,
    read_as_hugging_face,
    write_score_function,
    write_vector_settings,
)
from bert_tf.model_folder.reader import ModelFiles
from bert_tf.model_folder.writer import MODEL_NAMES, write_model
from bert_tf.runs.flags import command_flags
from bert_tf.runs.flags.setting_fields import Group, inherit
from bert_tf.runs.flags.settings import ModelSettings, TextSettings, TrainingSettings
from bert_tf.text.casing import check_casing
from bert_tf.text.model_vocabulary import UNUSED_TOKEN, check_model_vocabulary
from bert_tf.text.new_words import TokenCounts, choose_entries, count_tokens, count_words
from bert_tf.text.tokenizer_files import read_settings
from bert_tf.text.tokenizer_json import read_tokenizer_json
from bert_tf.text.tokenizer_settings import WORD_PIECES

NEW_WORDS_FILE = "new_words.tsv"
# The files that --output_dir may contain.
_NAMES = (*MODEL_NAMES, *VECTOR_FILES, NEW_WORDS_FILE)
_SHOWN = 20  # new entries in the report


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExtensionSettings(ModelSettings, TextSettings):
    """The flags of this tool."""

    input_file: str = Group.DATA.setting(
        help="Text of your domain, also as JSON lines (.jsonl) or Parquet (.parquet): files or"
        " globs, separated by commas. Text and JSON lines may be compressed (.gz, .zst).",
    )
    text_field: str = Group.DATA.setting(
        text_files.TEXT_FIELD,
        help="Field of JSON lines, or column of Parquet files, with the text.",
        not_empty=True,
    )
    init_checkpoint: str = inherit(
        TrainingSettings,
        "init_checkpoint",
        default=dataclasses.MISSING,
        help="Model: its folder, also Hugging Face's, or the prefix of its checkpoint.",
    )
    output_dir: str = Group.OUTPUT.setting(
        help="Folder to write to. Earlier output of this tool is overwritten; a folder with other"
        " files is refused.",
        not_empty=True,
    )
    num_words: int = Group.DATA.setting(
        1000, help="Number of words and pieces of words to add.", at_least=1
    )
    min_count: int = Group.DATA.setting(
        5, help="Ignore words that occur fewer times than this.", at_least=1
    )
    whole_words: bool = Group.DATA.setting(False, help="Add only whole words, no pieces of words.")
    use_unused: bool = Group.DATA.setting(
        False,
        help="Write the new entries into [unusedN] lines, so that the vocabulary keeps its size,"
        " instead of appending them.",
    )


def extend_vocabulary(settings: ExtensionSettings) -> None:
    """Writes a model with new entries in its vocabulary, and prints what they save."""
    files = storage.expand_files(settings.input_file, "input_file")
    vocab = tokenization.load_vocab(settings.vocab_file, [tokenization.UNKNOWN_TOKEN])
    folder = os.path.dirname(settings.vocab_file)
    model = ModelFiles.of_flag(settings.init_checkpoint)
    hugging_face = read_as_hugging_face(settings.vocab_file, settings.init_checkpoint)
    in_folder = read_settings(folder, WORD_PIECES, read_tokenizer_json(folder), hugging_face)
    own = model.is_hugging_face and settings.bert_config_file == model.config_file
    config = model.config if own else read_config(settings.bert_config_file)
    in_folder = in_folder.with_ids(vocab, settings.vocab_file).of_model(config.drop_category_c)
    known = {**vocab, **in_folder.added_vocabulary}
    check_model_vocabulary(
        known, settings.vocab_file, settings.init_checkpoint, hugging_face=hugging_face
    )
    check_casing(settings.do_lower_case, vocab, settings.vocab_file, settings.init_checkpoint)
    _check_sizes(settings, known, config, model.shapes)
    free = _free_lines(settings, vocab) if settings.use_unused else []
    written = [os.path.join(settings.output_dir, name) for name in _NAMES]
    read = {name: getattr(settings, name) for name in ("bert_config_file", "vocab_file")}
    check_overwrites(written, "output_dir", {"init_checkpoint": model.weight_paths, **read})

    what = "one that this tool wrote"
    with whole_folder(settings.output_dir, "output_dir", NEW_WORDS_FILE, _NAMES, what) as place:
        batches = text_files.read_files(files, "input_file", settings.text_field)
        words = count_words((x for _, x in batches), settings.do_lower_case, in_folder)
        chosen = _choose(settings, words, vocab)
        size = max(known.values()) + 1
        ids = dict(zip(chosen, free or range(size, size + len(chosen)), strict=False))
        rows = {ids[entry]: [vocab[piece] for piece in chosen[entry]] for entry in chosen}
        weights = dict(model.read_weights())
        for name in weights.keys() & _by_word(config):
            weights[name] = with_means(weights[name], rows)
        vocab_size = len(weights[_by_word(config)[0]])
        config = config_from_dict({**config.to_dict(), "vocab_size": vocab_size})
        lines = _extended(settings.vocab_file, in_folder.added_vocabulary | ids)
        files = {**in_folder.files(), WORD_PIECES: lines}
        write_model(place, weights, config, files, settings.do_lower_case, model.labels)
        before = count_tokens(words, vocab)
        after = count_tokens(words, tokenization.load_vocab(os.path.join(place, WORD_PIECES)))
        write_vector_settings(place, model.vector_settings, config.hidden_size)
        write_score_function(place, model.score_function)
        write_model_input(place, model.model_input)
        table = "".join(
            f"{entry}\t{ids[entry]}\t{after.uses[entry]}\t{' '.join(pieces)}\n"
            for entry, pieces in chosen.items()
        )
        write_whole(os.path.join(place, NEW_WORDS_FILE), f"entry\tid\tcount\tpieces\n{table}")
    print(report(before, after, chosen))
    logging.info("Wrote %s: %d tokens", settings.output_dir, vocab_size)


def _by_word(config: BertConfig) -> list[str]:
    """Returns the variables with a row for each word; every model has the first."""
    scopes = config.scope, "generator"  # ELECTRA's generator may have separate embeddings
    tables = [f"{scope}/embeddings/word_embeddings" for scope in scopes]
    return [*tables, f"{config.masked_lm_scope}/output_bias"]


def _check_sizes(
    settings: ExtensionSettings,
    vocab: Mapping[str, int],
    config: BertConfig,
    shapes: Mapping[str, Sequence[int]],
) -> None:
    """Checks that vocabulary, configuration and checkpoint have the same number of tokens."""
    table, *others = _by_word(config)
    if table not in shapes:
        raise UserError(
            f"--init_checkpoint={settings.init_checkpoint} must have {table}; it has"
            f" {listed(sorted(shapes))}"
        )
    sizes = {
        f"tokens of --vocab_file={settings.vocab_file}": max(vocab.values()) + 1,
        "vocab_size of --bert_config_file": config.vocab_size,
        f"{table} of --init_checkpoint": shapes[table][0],
    }
    sizes |= {f"{x} of --init_checkpoint": shapes[x][0] for x in others if x in shapes}
    if len({*sizes.values()}) > 1:
        found = ", ".join(f"{size} {what}" for what, size in sizes.items())
        raise UserError(
            "vocabulary, configuration and checkpoint must have the same number of tokens; there"
            f" are {found}. Give the files of one model. If only the vocabulary is shorter, add"
            " lines such as [unused1] to its end"
        )


def _free_lines(settings: ExtensionSettings, vocab: Mapping[str, int]) -> list[int]:
    """Returns the ids of the [unusedN] lines to write to."""
    free = sorted(number for token, number in vocab.items() if UNUSED_TOKEN.fullmatch(token))
    if len(free) < settings.num_words:
        raise UserError(
            f"--num_words={settings.num_words} must be at most {len(free)} with --use_unused, the"
            f" number of [unusedN] lines of --vocab_file={settings.vocab_file}; lower --num_words,"
            " or remove --use_unused"
        )
    return free


def _choose(
    settings: ExtensionSettings, words: Mapping[str, int], vocab: Mapping[str, int]
) -> dict[str, tuple[str, ...]]:
    limits = (settings.num_words, settings.min_count, settings.whole_words)
    chosen = choose_entries(words, vocab, *limits)
    if not chosen:
        raise UserError(
            "--input_file: no new entry would save a token: no word that occurs at least"
            f" --min_count={settings.min_count} times is split into pieces. Give more text, or"
            " lower --min_count"
        )
    if len(chosen) < settings.num_words:
        logging.warning(
            "Only %d words and pieces save tokens, fewer than --num_words=%d: adding all of them",
            *(len(chosen), settings.num_words),
        )
    return chosen


def with_means(table: np.ndarray, rows: Mapping[int, Sequence[int]]) -> np.ndarray:
    """Returns a copy of a table, float [V, ...], in which some rows are means of its rows.

    `rows` maps the row to set to the rows to average. Rows from V on extend the table.
    """
    extended = np.resize(table, [max(len(table), *(row + 1 for row in rows)), *table.shape[1:]])
    for row, sources in rows.items():
        extended[row] = table[sources].mean(axis=0, dtype=np.float64)
    return extended


def _extended(vocab_file: str, ids: Mapping[str, int]) -> str:
    """Returns the content of a vocabulary file with the new entries at their ids."""
    text = read_text(vocab_file, f"--vocab_file={vocab_file}", "it must have a token on each line")
    lines = text.replace("\r", "").removesuffix("\n").split("\n")
    lines += [""] * (max(ids.values()) + 1 - len(lines))
    for entry, number in ids.items():
        lines[number] = entry
    return "".join(f"{line}\n" for line in lines)


def report(before: TokenCounts, after: TokenCounts, chosen: Mapping[str, Sequence[str]]) -> str:
    """Returns a text that compares the token counts and lists the first new entries."""
    both = (before, after)
    rows = [
        ["", "before", "after"],
        ["tokens", *(f"{x.tokens:,}" for x in both)],
        ["tokens per word", *(f"{x.tokens / x.words:.4f}" for x in both)],
        ["split words", *(f"{x.split / x.words:.2%}" for x in both)],
        ["words that are [UNK]", *(f"{x.unknown:,}" for x in both)],
    ]
    lines = [f"{name:22}{a:>14}{b:>14}" for name, a, b in rows]
    saved = f"{1 - after.tokens / before.tokens:.2%}"
    lines.append(f"{len(chosen):,} new entries save {saved} of the tokens. The first:")
    for entry in list(chosen)[:_SHOWN]:
        lines.append(f"{after.uses[entry]:>9,}  {entry:20}  {' '.join(chosen[entry])}")
    return "\n".join(lines)


def main() -> None:
    command_flags.model_from_flags(ExtensionSettings)
    extend_vocabulary(command_flags.settings_from_flags(ExtensionSettings))


if __name__ == "__main__":
    command_flags.define_flags(ExtensionSettings)
    command_flags.run_program(main)
