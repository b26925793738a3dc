"""The teacher of sentence vectors: a model whose vectors have the student's size."""

import functools

import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.hugging_face.vector_settings import check_mean_vectors
from bert_tf.model.configuration import BertConfig
from bert_tf.runs.training.options import model_options
from bert_tf.runs.training.teacher import checked_teacher_files, load_teacher
from bert_tf.tasks.sentences.model import SentenceModel
from bert_tf.tasks.sentences.settings import SentenceSettings
from bert_tf.text.tokenizers import Tokenizer


def read_teacher(
    settings: SentenceSettings,
    student: BertConfig,
    tokenizer: Tokenizer,
    strategy: tf.distribute.Strategy,
) -> SentenceModel:
    """Returns the model of --teacher_checkpoint.

    Raises:
        UserError: its vocabulary, casing or size of vectors differs, or it cannot be read.
    """
    files = checked_teacher_files(settings, student, tokenizer.vocab)
    config = files.config
    check_mean_vectors(files.home)
    if config.hidden_size != student.hidden_size:
        raise UserError(
            "The student's vectors must have the size of its teacher's: hidden_size of"
            f" --bert_config_file is {student.hidden_size}, and the teacher's is"
            f" {config.hidden_size}. Choose another teacher, or change --bert_config_file"
        )
    options = model_options(settings, strategy) | {"recompute_activations": False}
    build = functools.partial(SentenceModel, config, **options)
    return load_teacher(build, files, strategy, unneeded=["bert/pooler/"])[0]
