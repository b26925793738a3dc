"""Settings of run_tagging. Each field is the flag of that name."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from bert_tf.runs.flags.setting_fields import Group, inherit
from bert_tf.runs.flags.settings import EvaluationOptions, FineTuningFiles
from bert_tf.start import lazy_tensorflow as tf
from bert_tf.tasks.class_weights import ClassWeightSettings
from bert_tf.tasks.long_text import check_stride


class Features(NamedTuple):
    """How the features of a token are computed from BERT's layers."""

    of: Callable[[Any], Any]  # a `BertOutput` -> float [B, S, F]
    layers: int = 1  # minimum number of encoder layers
    width: int = 1  # F / H


# The rows of the paper's table 7. The paper calls the sums weighted but does not give the weights;
# this implementation uses 1 for all.
FEATURE_LAYERS = {
    "embeddings": Features(lambda bert: bert.embedding_output),
    "last": Features(lambda bert: bert.all_encoder_layers[-1]),
    "second_to_last": Features(lambda bert: bert.all_encoder_layers[-2], layers=2),
    "sum_last_four": Features(lambda bert: tf.add_n(bert.all_encoder_layers[-4:]), layers=4),
    "concat_last_four": Features(
        lambda bert: tf.concat(bert.all_encoder_layers[-4:], axis=-1), layers=4, width=4
    ),
    "sum_all": Features(lambda bert: tf.add_n(bert.all_encoder_layers)),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggingOptions(ClassWeightSettings, EvaluationOptions):
    """How a tagger is trained and evaluated, and how it tags."""

    # The minimum is [CLS], a word, a neighbouring word and [SEP].
    max_seq_length: int = inherit(EvaluationOptions, "max_seq_length", at_least=4)
    document_context: bool = Group.DATA.setting(
        True,
        help="Fill each sequence with the sentences around the one to tag. -DOCSTART- lines"
        " separate documents; in a file without them every sentence is a document.",
    )
    window_stride: int | None = Group.DATA.setting(
        None,
        help="Sentences longer than --max_seq_length are tagged in windows that start this many"
        " word pieces apart. Each window tags that many, in its middle. Default: half a window.",
        at_least=1,
    )
    class_weights: Sequence[str] | None = inherit(
        ClassWeightSettings,
        "class_weights",
        help="Weights of the tags in training: `balanced` (words / (tags * words with the tag), so"
        " that all tags count the same), a number for each tag in the order of the labels, or"
        " TAG:NUMBER for some of them; the others have weight 1.",
    )
    feature_based: bool = Group.MODEL.setting(
        False, help="Freeze BERT and train a two-layer BiLSTM on the vectors of --feature_layers."
    )
    feature_layers: str = Group.MODEL.setting(
        "concat_last_four",
        help="Layers of BERT whose vectors the BiLSTM of --feature_based reads.",
        choices=tuple(FEATURE_LAYERS),
        needs="feature_based",
    )
    lstm_size: int = Group.MODEL.setting(
        768,
        help="Units in each direction of the BiLSTM of --feature_based.",
        at_least=1,
        at_most=2**16,  # as hidden_size
        needs="feature_based",
    )

    def __post_init__(self):
        super().__post_init__()
        check_stride(self.window_stride, self.max_seq_length)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggingSettings(FineTuningFiles, TaggingOptions):
    """Settings of run_tagging: the options, and its files."""

    # The paper's choice for this task (5.3): capitals mark names.
    do_lower_case: bool = inherit(FineTuningFiles, "do_lower_case", default=False)
    data_dir: str | None = Group.DATA.setting(
        None,
        help="Folder with train.txt, valid.txt and test.txt: CoNLL files with the word in the first"
        " column and its tag in the last.",
    )
    train_file: str | None = Group.DATA.setting(
        None, help="CoNLL file to train on. Default: train.txt in --data_dir."
    )
    eval_file: str | None = Group.DATA.setting(
        None, help="CoNLL file to evaluate on. Default: valid.txt in --data_dir."
    )
    predict_file: str | None = Group.DATA.setting(
        None, help="CoNLL file to tag, with or without tags. Default: test.txt in --data_dir."
    )
    labels: Sequence[str] = Group.DATA.setting(
        (),
        help="All tags, such as O,B-PER,I-PER. Default: the tags of the model in --output_dir or"
        " --init_checkpoint, or else of the training file.",
    )
    tag_scheme: str = Group.DATA.setting(
        "iob",
        help="iob: tags as in the files. bioes: train and predict B-, I-, O, E- (end) and S- (an"
        " entity of one word), made from the tags of the files, as ELECTRA does for chunking.",
        choices=("iob", "bioes"),
    )
