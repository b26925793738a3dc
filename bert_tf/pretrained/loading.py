"""`load`: a trained model from a folder, in Keras or, if it was exported, in ONNX Runtime."""

import importlib.util
import os
from typing import TYPE_CHECKING, Any

from bert_tf.errors import UserError, install_command, listed
from bert_tf.files import storage
from bert_tf.files.whole_folders import read_again
from bert_tf.pretrained import exported
from bert_tf.pretrained.folder import read_folder
from bert_tf.pretrained.methods.base import check_process
from bert_tf.start import quiet_start
from bert_tf.tasks.arguments import PATH, check_type, received

if TYPE_CHECKING:
    from bert_tf.pretrained.model import Pretrained

FolderPath = str | os.PathLike[str]


def load(
    folder: FolderPath,
    *,
    bert_config_file: FolderPath | None = None,
    vocab_file: FolderPath | None = None,
    do_lower_case: bool | None = None,
    max_seq_length: int | None = None,
    dtype: Any = None,
    num_threads: int | None = None,
) -> "Pretrained":
    """Loads a trained model.

    A folder that `tools.export --format=onnx` wrote needs neither TensorFlow nor Keras. ONNX
    Runtime then gives the same answers as the original model; `fit`, `evaluate`, `predict`, `save`
    and `attention` need the original.

    Args:
        folder: the folder of a released model (`bert_config.json`, `vocab.txt`,
            `bert_model.ckpt.*`), of a Hugging Face model (`config.json`, `model.safetensors`,
            `vocab.txt` or `tokenizer.json`) or of an exported model; an --output_dir or
            --export_dir of the programs; or the prefix of a checkpoint.
        bert_config_file: overrides the folder's configuration, but not with a model.safetensors or
            an exported model.
        vocab_file: overrides the folder's vocabulary, but not with an exported model.
        do_lower_case: whether text is lower-cased; None detects it.
        max_seq_length: longest input in word pieces, [CLS] and [SEP] included; longer texts are
            truncated, and longer contexts of `answer` are split into windows. None for the length
            that the model was fine-tuned with or, in a folder of sentence-transformers, the length
            in its files; if neither is known, for the model's limit.
        dtype: "float32"; "bfloat16", which halves the memory of the weights, and is slower on some
            processors; "mixed_bfloat16", which keeps the weights in float32; or "auto": bfloat16 on
            devices where it is faster, else float32. Also a Keras policy, or a TensorFlow or NumPy
            dtype. None for Keras's global policy: float32 if it was not set. Answers are always
            float32, and training ignores `dtype`. Not for exported models.
        num_threads: threads of ONNX Runtime for one batch of an exported model; None for one per
            core.

    Raises:
        UserError: the folder has no model or several, or its files do not fit together.
    """
    check_type("folder", folder, PATH)
    path = os.fspath(folder)
    if exported.is_exported(path):
        given = {"bert_config_file": bert_config_file, "vocab_file": vocab_file, "dtype": dtype}
        if wrong := [name for name, value in given.items() if value is not None]:
            raise UserError(
                f"{path} is an exported model, which has its own {wrong[0]}; leave out"
                f" {listed(wrong)}, or load the folder that it was exported from"
            )
        options = do_lower_case, max_seq_length, num_threads
        model: Any = read_again(lambda: exported.load_exported(path, *options))
        return model
    _check_for_keras(path, num_threads)
    check_process()
    quiet_start.import_tensorflow()
    from bert_tf.pretrained.model import Pretrained

    files = (bert_config_file, vocab_file, do_lower_case, max_seq_length)
    return read_again(lambda: Pretrained(read_folder(folder, *files), dtype))


def _check_for_keras(path: str, num_threads: Any) -> None:
    """Raises UserError if `num_threads` is given or TensorFlow is not installed."""
    if num_threads is not None:
        raise UserError(
            f"num_threads is for exported models; {path} is not one. TensorFlow's threads are set"
            " for the whole process: tf.config.threading.set_intra_op_parallelism_threads;"
            f" {received(num_threads)}"
        )
    if importlib.util.find_spec("tensorflow") is not None:
        return
    if "://" in path:
        raise UserError(
            f"{path} is read by TensorFlow, which is not installed. Copy the folder of an exported"
            " model to a local disk, or install TensorFlow"
        )
    if not os.path.exists(path):
        raise UserError(f"{path}: there is no such folder{storage.nearest(path)}")
    raise UserError(
        f"{path} is not an exported model ({exported.DESCRIPTION_FILE} is missing), so it needs"
        " TensorFlow, which is not installed. Export it with tools.export --format=onnx where"
        " TensorFlow is, or install the build for this machine:"
        f" {install_command('cpu')}"
    )
