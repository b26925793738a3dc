r"""Converts models of BERT's family between Hugging Face's format and google-research's.

    python -m tools.convert_checkpoint --input=FOLDER --output_dir=FOLDER
    python -m tools.convert_checkpoint --input=bert_model.ckpt --output_dir=FOLDER \
        --output_format=safetensors

--input is one of

    a folder in Hugging Face's format, with config.json and model.safetensors or its shards
    a checkpoint: the prefix of its files, or its folder, such as an --export_dir
    the --output_dir of a run: its newest checkpoint
    a checkpoint of TensorFlow Model Garden, or the folder of a module of TF Hub

--output_format chooses the files in --output_dir:

    checkpoint    bert_model.ckpt.index and .data-..., bert_config.json, vocab.txt, labels.txt,
                  tokenizer_config.json
    model_garden  the same files, with the weights as the encoders, the classifier and the
                  pre-trainer of tf-models-official restore them (tf.train.Checkpoint)
    safetensors   model.safetensors, config.json, vocab.txt, tokenizer_config.json
    distilbert    the same files, with a BERT model written as a DistilBERT
    electra_generator
                  the same files, with the generator of an ELECTRA instead of its discriminator;
                  it is a masked LM with the discriminator's embeddings

--output_dir appears when all its files are written. It must be new or empty, or a folder that an
earlier conversion to the same format wrote, which is then replaced as a whole.

The tool converts BERT, ALBERT, RoBERTa, XLM-RoBERTa, CamemBERT, DistilBERT and ELECTRA, with their
tokenizer's files. Every weight keeps its bits; only its name changes, and kernels are transposed.
From a checkpoint to a checkpoint, the tool drops the optimizer's slots and the step, two thirds of
a fine-tuned checkpoint. The other variables may have any names.

The configuration, the vocabulary with its casing, the names of the classes and
sentence-transformers' settings for vectors are read from the folder of --input. --bert_config_file
and --vocab_file override the configuration and the vocabulary.

docs/checkpoints.md explains how Hugging Face's folders differ: names of activations and classes,
taggers, biases. docs/distillation.md does so for DistilBERT, which lacks token types and a pooler.
"""

if __name__ == "__main__" and not __package__:
    raise SystemExit("Run this from the folder above: python -m tools.convert_checkpoint")

import functools
import os

from absl import flags, logging

from bert_tf.errors import UserError
from bert_tf.files import checkpoints, object_graphs, storage
from bert_tf.files.model_notes import MODEL_INPUT_FILE, write_model_input
from bert_tf.files.paths import check_overwrites, real_path
from bert_tf.files.weight_files import SAFETENSORS
from bert_tf.files.whole_files import write_json, write_whole
from bert_tf.files.whole_folders import whole_folder
from bert_tf.model_folder.hugging_face.conversion import to_safetensors
from bert_tf.model_folder.hugging_face.vector_settings import (
    VECTOR_FILES,
    write_score_function,
    write_vector_settings,
)
from bert_tf.model_folder.reader import ModelFiles
from bert_tf.model_folder.writer import (
    CONFIG_FILE,
    MODEL_NAMES,
    VOCABULARIES,
    write_model,
    write_vocabulary,
)
from bert_tf.runs.flags import command_flags
from bert_tf.text.casing import find_casing
from bert_tf.text.sentence_piece_model import make_model, read_unigrams
from bert_tf.text.tokenizer_settings import TOKENIZER_CONFIG
from bert_tf.text.tokenizers import SENTENCE_PIECES, VOCABULARY_FILES, WORD_PIECES, VocabularySource

from . import with_flags

_CHECKPOINTS = "checkpoint", "model_garden"
# For each format: a file that every such folder has, and all files that it may have.
_NAMES = {
    "checkpoint": (CONFIG_FILE, {*MODEL_NAMES, *VECTOR_FILES}),
    "safetensors": (
        "config.json",
        {"config.json", SAFETENSORS, *VOCABULARIES, *VOCABULARY_FILES, TOKENIZER_CONFIG}
        | {*VECTOR_FILES, MODEL_INPUT_FILE},
    ),
}


def convert(
    input: str,
    output_dir: str,
    output_format: str,
    bert_config_file: str | None = None,
    vocab_file: str | None = None,
) -> None:
    """Writes a model in a different format; the arguments are the flags."""
    if not input:
        raise UserError("--input= must not be empty; name a folder or a checkpoint")
    storage.check_file_system(input, "input")
    storage.check_file_system(output_dir, "output_dir")
    _check_other_folder(input, output_dir)
    marker, names = _NAMES["checkpoint" if output_format in _CHECKPOINTS else "safetensors"]
    what = "one that an earlier conversion to this format wrote"
    with whole_folder(output_dir, "output_dir", marker, names, what) as place:
        files = ModelFiles(input, "input", bert_config_file, vocab_file)
        files.check_model(allow_two=True)
        _check_other_folder(files.folder, output_dir)  # `checkpoint` may name a different one
        read = {"bert_config_file": bert_config_file, "vocab_file": vocab_file}
        check_overwrites([os.path.join(output_dir, x) for x in sorted(names)], "output_dir", read)
        with files.unreplaced:
            _convert(files, input, place, output_format)
    logging.info("Wrote %s", output_dir)


def _convert(files: ModelFiles, source: str, folder: str, output_format: str) -> None:
    as_checkpoint = output_format in _CHECKPOINTS
    if files.is_hugging_face and not as_checkpoint:
        raise UserError(
            f"--input={source} has a {SAFETENSORS}, so it can only be converted to"
            " --output_format=checkpoint"
        )
    config, labels, weights = files.config, files.labels, files.read_weights()
    vocabulary = files.vocabulary
    vector_settings, score_function = files.vector_settings, files.score_function
    has_one_output = list(files.shapes.get("output_bias", ())) == [1]
    gives_number = has_one_output and not (config.is_multi_label or files.is_tagger)
    if SENTENCE_PIECES in vocabulary and not as_checkpoint:
        make_model(read_unigrams(files.vocab_file), files.vocab_file)  # refuses some models
        vocabulary["spiece.model"] = vocabulary.pop(SENTENCE_PIECES)
    if not vocabulary:
        logging.warning(
            "No vocabulary is written: there is no %s beside --input, and no --vocab_file",
            " or ".join(VOCABULARY_FILES),
        )
    tokens = vocabulary.get(WORD_PIECES, b"").decode("utf-8", "replace").split("\n")
    do_lower_case = find_casing(
        files.home, files.vocab_file, tokens, hugging_face=files.is_hugging_face
    )
    if as_checkpoint:
        tables = [name for name in weights if name.endswith("/embeddings/word_embeddings")]
        if tables and f"{config.scope}/embeddings/word_embeddings" not in tables:
            raise UserError(
                f"--input={source} must be the {config.NAME} that its configuration describes; it"
                f" has {tables[0]}. Check --bert_config_file"
            )
        write = checkpoints.write
        if output_format == "model_garden":
            write = functools.partial(object_graphs.write, num_heads=config.num_attention_heads)
        write_model(folder, weights, config, vocabulary, do_lower_case, labels, write)
        size = sum(value.size for value in weights.values())
        logging.info("%s: %d variables, %d parameters", source, len(weights), size)
        if gives_number:
            write_score_function(folder, score_function)
    else:
        kinds = [output_format == x for x in ("distilbert", "electra_generator")]
        tensors, config_json = to_safetensors(weights, config, source, labels, *kinds)
        write_whole(os.path.join(folder, SAFETENSORS), tensors)
        if gives_number:
            config_json["sentence_transformers"] = {"activation_fn": score_function}
        write_json(os.path.join(folder, "config.json"), config_json, sort_keys=True)
        write_vocabulary(folder, vocabulary, do_lower_case)
        _check_tokenizer(folder, output_format)
    write_vector_settings(folder, vector_settings, config.hidden_size)
    write_model_input(folder, files.model_input)


def _check_tokenizer(folder: str, output_format: str) -> None:
    """Checks that the tokenizer's files in Hugging Face's format, just written, can be read."""
    path = ModelFiles(folder).vocab_file
    if not path:
        return
    try:
        _ = VocabularySource(path, hugging_face=True).vocab
    except UserError as error:
        raise UserError(
            f"--output_format={output_format} cannot express the tokenizer of --input, so the"
            f" folder would be refused: {str(error).replace(os.path.join(folder, ''), '')}. Make"
            " this change beside --input, or use --output_format=checkpoint, which keeps all"
            " settings"
        ) from error


def _check_other_folder(source: str, output_dir: str) -> None:
    if real_path(checkpoints.folder_of(source)) == real_path(output_dir):
        raise UserError(
            f"--output_dir={output_dir} must not be the folder of --input: the tool would overwrite"
            " the model's files. Choose another folder"
        )


if __name__ == "__main__":
    flags.DEFINE_string(
        "input",
        None,
        "A folder with model.safetensors; a checkpoint, its folder or an --export_dir; or the"
        " --output_dir of a run.",
        required=True,
    )
    flags.DEFINE_string("output_dir", None, "Folder to write to.", required=True)
    flags.DEFINE_enum(
        "output_format",
        "checkpoint",
        [*_CHECKPOINTS, "safetensors", "distilbert", "electra_generator"],
        "See above.",
    )
    flags.DEFINE_string(
        "bert_config_file",
        None,
        "Configuration of a checkpoint. Default: bert_config.json or albert_config.json in its"
        " folder.",
    )
    flags.DEFINE_string("vocab_file", None, "Vocabulary. Default: the one in --input's folder.")
    command_flags.run_program(with_flags(convert))
