r"""Converts models of BERT's family between Hugging Face's format and google-research's.

    python -m tools.convert_checkpoint --input=FOLDER --output_dir=FOLDER
    python -m tools.convert_checkpoint --input=bert_model.ckpt --output_dir=FOLDER \
        --output_format=safetensors

--input is one of

    a folder of Hugging Face's, with model.safetensors and config.json
    a checkpoint: the prefix of its files, or its folder, such as that of --export_dir
    the --output_dir of a run: its newest checkpoint

--output_format says what is written to --output_dir:

    checkpoint    bert_model.ckpt.index and .data-..., bert_config.json, vocab.txt, labels.txt,
                  tokenizer_config.json
    safetensors   model.safetensors, config.json, vocab.txt, tokenizer_config.json
    distilbert    the same, of a BERT model as a DistilBERT

BERT, ALBERT, RoBERTa and DistilBERT are converted; `model_type` of config.json or bert_config.json,
or the keys of the latter, say which it is. ALBERT has spm.model, in Hugging Face's format
spiece.model, in place of vocab.txt; RoBERTa has vocab.json and merges.txt, or Hugging Face's
tokenizer.json alone.

DistilBERT has no token types. A checkpoint of one has zeros for them; in the other direction, the
type of a first text is added to the position embeddings, and a second text is read like a first.
DistilBERT has no pooler either, but a dense layer with ReLU in its classifier, which is the pooler
in a checkpoint whose bert_config.json says "model_type": "distilbert". So a classifier of BERT,
whose pooler has tanh, cannot be written as a DistilBERT; masked LM, tagging and SQuAD can, without
the pooler and the head of the next sentence.

Every weight keeps its bits; only its name changes, and kernels are transposed. The bias of the
multiple-choice head exists only in Hugging Face's format. It is added to the score of every choice
and changes no probability, so a checkpoint omits it, and model.safetensors has zero.

From a checkpoint to a checkpoint, the optimizer's slots and the step are omitted, two thirds of a
fine-tuned checkpoint. Its other variables may have any names.

The configuration and the vocabulary are read from the folder of --input, or from --bert_config_file
and --vocab_file: an --output_dir has neither. So are

*   the names of the classes: labels.txt of run_classifier and run_tagging, `id2label` of
    config.json. They also distinguish a tagger from a classifier, whose variables have the same
    names: a tagger has the class O, and its other classes begin with B- or I-. A tagger of Hugging
    Face's with other classes, such as NOUN and VERB, is converted without its pooler, on which no
    tag depends; a checkpoint without one has no classifier but a tagger's.
*   the casing: `do_lower_case` in tokenizer_config.json. If it is not recorded, the name
    of a released model gives it, or a cased vocabulary.

`gelu` is the tanh form in google-research/bert and the exact form in Hugging Face's models. So the
name changes: their `gelu` is `gelu_erf` in bert_config.json, and our `gelu` is `gelu_new` in
config.json. The epsilon of LayerNorm is RoBERTa's own, and always 1e-12 for the others.
"""

import json
import os

from absl import flags, logging

from bert_tf.errors import UserError
from bert_tf.files import checkpoints, storage
from bert_tf.files.overwriting import check_overwrites, real_path
from bert_tf.files.whole_files import write_whole
from bert_tf.hugging_face.config import module_of
from bert_tf.hugging_face.conversion import SAFETENSORS_NAME, to_safetensors
from bert_tf.model_folder.reader import ModelFiles
from bert_tf.model_folder.writer import CONFIG_FILE, write_model, write_vocabulary
from bert_tf.runs.flags import command_flags
from bert_tf.text.casing import find_casing, read_casing
from bert_tf.text.tokenizers import SENTENCE_PIECES, VOCABULARY_FILES, WORD_PIECES


def convert(
    source: str,
    output_dir: str,
    output_format: str,
    bert_config_file: str | None = None,
    vocab_file: str | None = None,
) -> None:
    """Writes a model in another format.

    Args:
        source: --input.
        output_dir, output_format, bert_config_file, vocab_file: the flags of these names.

    Raises:
        UserError: a file is missing or damaged, or does not hold a BERT model.
        OSError: writing failed in a way that may pass, such as a full disk.
    """
    _check_other_folder(source, output_dir)
    files = ModelFiles(source, "input", bert_config_file, vocab_file)
    files.check_model(allow_two=True)
    as_checkpoint = output_format == "checkpoint"
    if files.is_hugging_face and not as_checkpoint:
        raise UserError(
            f"--input={source} has a {SAFETENSORS_NAME}: it can be converted to"
            " --output_format=checkpoint only"
        )
    _check_other_folder(files.folder, output_dir)  # a file `checkpoint` may name another one
    config, labels, weights = files.config, files.labels, files.read_weights()
    vocabulary = files.vocabulary
    if SENTENCE_PIECES in vocabulary and not as_checkpoint:
        vocabulary = {module_of(config).VOCABULARY: vocabulary[SENTENCE_PIECES]}
    written = [os.path.join(output_dir, name) for name in (CONFIG_FILE, *vocabulary)]
    read = {"bert_config_file": bert_config_file, "vocab_file": vocab_file}
    check_overwrites(written, "output_dir", read)
    if not vocabulary:
        logging.warning(
            "There is no vocabulary (%s) beside --input and no --vocab_file: none is written",
            " or ".join(VOCABULARY_FILES),
        )
    tokens = vocabulary.get(WORD_PIECES, b"").decode("utf-8", "replace").split("\n")
    do_lower_case = find_casing(files.home, files.vocab_file, tokens)

    storage.make_output_dir(output_dir)
    read_casing(output_dir)  # refuses a damaged record before the weights are written
    if as_checkpoint:
        write_model(output_dir, weights, config, vocabulary, do_lower_case, labels)
    else:
        as_distilbert = output_format == "distilbert"
        tensors, config_json = to_safetensors(weights, config, source, labels, as_distilbert)
        write_whole(os.path.join(output_dir, SAFETENSORS_NAME), tensors)
        text = json.dumps(config_json, indent=2, sort_keys=True) + "\n"
        write_whole(os.path.join(output_dir, "config.json"), text)
        write_vocabulary(output_dir, vocabulary, do_lower_case)
    size = sum(value.size for value in weights.values())
    logging.info("%s: %d variables, %d parameters", output_dir, len(weights), size)


def _check_other_folder(source: str, output_dir: str) -> None:
    if real_path(checkpoints.folder_of(source)) == real_path(output_dir):
        raise UserError(
            f"--output_dir={output_dir} must not be the folder of --input, whose files it would"
            " replace"
        )


def _define_flags() -> None:
    flags.DEFINE_string(
        "input",
        None,
        "A folder with model.safetensors; a checkpoint, its folder or an --export_dir; or the"
        " --output_dir of a run.",
        required=True,
    )
    flags.DEFINE_string("output_dir", None, "Folder to write to.", required=True)
    flags.DEFINE_enum(
        "output_format", "checkpoint", ["checkpoint", "safetensors", "distilbert"], "Format."
    )
    flags.DEFINE_string(
        "bert_config_file",
        None,
        "Configuration of a checkpoint; by default bert_config.json or albert_config.json in its"
        " folder.",
    )
    flags.DEFINE_string("vocab_file", None, "Vocabulary; by default that in the folder of --input.")


def main() -> None:
    """Reads the flags and converts."""
    settings = flags.FLAGS
    for name in ("input", "output_dir"):
        storage.check_file_system(settings[name].value, name)
    convert(
        settings.input,
        settings.output_dir,
        settings.output_format,
        settings.bert_config_file,
        settings.vocab_file,
    )


if __name__ == "__main__":
    _define_flags()
    command_flags.run_program(main)
