"""Settings of run_squad. Each field is the flag of that name."""

import dataclasses

from bert_tf.runs.flags.setting_fields import Group, Settings, inherit
from bert_tf.runs.flags.settings import EvaluationOptions, FineTuningFiles, FineTuningOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnswerSettings(Settings):
    """How a context is split into windows, and how answers are chosen."""

    doc_stride: int = Group.DATA.setting(
        128,
        help="A context that is too long for one sequence is split into windows that start this"
        " many tokens apart.",
        at_least=1,
    )
    max_query_length: int = Group.DATA.setting(
        64,
        help="Maximum length of a question in word pieces. Longer questions are truncated.",
        at_least=1,
    )
    version_2_with_negative: bool = Group.DATA.setting(
        False, help="Allow questions without an answer, as in SQuAD 2.0."
    )
    n_best_size: int = Group.EVALUATION.setting(
        20, help="Number of answers to each question in nbest_predictions.json.", at_least=1
    )
    max_answer_length: int = Group.EVALUATION.setting(
        30, help="Maximum length of an answer in word pieces.", at_least=1
    )
    joint_prediction: bool = Group.MODEL.setting(
        False,
        help="Predict the end of an answer for each likely start, with a beam, as ELECTRA does,"
        " instead of start and end on their own.",
    )
    beam_size: int = Group.EVALUATION.setting(
        20,
        help="Likely starts of an answer in a window, and likely ends for each start.",
        at_least=1,
        needs="joint_prediction",
    )
    answerable_classifier: bool = Group.MODEL.setting(
        False,
        help="Train a classifier that says whether a question has no answer, as ELECTRA does. Then"
        " only its logit decides whether there is an answer.",
    )
    answerable_uses_start_logits: bool = Group.MODEL.setting(
        True,
        help="Let --answerable_classifier also read the vectors of likely starts.",
        needs="answerable_classifier",
    )
    answerable_weight: float = Group.TRAINING.setting(
        0.5, help="Weight of the classifier's loss.", at_least=0.0, needs="answerable_classifier"
    )
    null_score_diff_threshold: float = Group.EVALUATION.setting(
        0.0,
        help="Predict no answer if the no-answer score exceeds the best answer's score by more"
        " than this. If --predict_file has answers, the run writes the best value to"
        " null_threshold.json.",
        needs="version_2_with_negative",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SquadOptions(AnswerSettings, FineTuningOptions):
    """How a question answering model is trained, and how it answers."""

    max_seq_length: int = inherit(FineTuningOptions, "max_seq_length", default=384)
    length_buckets: str = inherit(
        FineTuningOptions,
        "length_buckets",
        default="none",
        help="Lengths to pad batches to instead of --max_seq_length, such as 128,256,384. auto: up"
        " to eight evenly spaced lengths. none: --max_seq_length only, the default, because the"
        " original's loss and n-best lists count the padding, so other lengths change them a"
        " little.",
    )
    predict_batch_size: int = inherit(EvaluationOptions, "predict_batch_size")
    verbose_logging: bool = Group.EVALUATION.setting(
        False,
        help="Log each answer whose word pieces cannot be mapped back to the text. A few are"
        " normal.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SquadSettings(FineTuningFiles, SquadOptions):
    """Settings of run_squad: the options, and its files."""

    train_file: str | None = Group.DATA.setting(
        None, help="SQuAD JSON file to train on, such as train-v1.1.json."
    )
    predict_file: str | None = Group.DATA.setting(
        None,
        help="SQuAD JSON file with the questions to answer, such as dev-v1.1.json. If it has"
        " answers, the predictions are scored.",
    )
    do_train: bool = inherit(FineTuningOptions, "do_train", needs="train_file")
    do_predict: bool = inherit(EvaluationOptions, "do_predict", needs="predict_file")
    evaluate_every_steps: int = inherit(
        FineTuningOptions,
        "evaluate_every_steps",
        needs=["do_train", "predict_file"],
        because="it answers the questions of --predict_file while it trains",
    )
