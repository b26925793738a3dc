"""Settings of run_sentence_similarity. Each field is the flag of that name."""

import dataclasses

from bert_tf.datasets.tables import check_delimiter
from bert_tf.runs.flags.setting_fields import Group, inherit, setting
from bert_tf.runs.flags.settings import EvaluationSettings, FineTuningSettings
from bert_tf.tasks.sentences.schema import COSINE, IN_BATCH_NEGATIVES, LOSSES


@dataclasses.dataclass(frozen=True, kw_only=True)
class SentenceSettings(EvaluationSettings):
    """Settings of run_sentence_similarity."""

    data_dir: str = setting(
        help="Folder with train, dev and test, each .tsv or .csv.", group=Group.DATA
    )
    text_a_column: str = setting(
        help="Name of the column with the text, or with the first text of a pair.",
        group=Group.DATA,
        not_empty=True,
    )
    text_b_column: str | None = setting(
        None,
        help="Name of the column with the second text. Needed for training and evaluation.",
        group=Group.DATA,
    )
    label_column: str | None = setting(
        None,
        help="Name of the column with the score of a pair: the higher, the more similar in meaning."
        " Needed for --loss=cosine and for evaluation; the test file may lack it.",
        group=Group.DATA,
    )
    has_header: bool = setting(
        True,
        help="The first line of each file names the columns. If false, columns are named by their"
        " numbers, from 0.",
        group=Group.DATA,
    )
    delimiter: str | None = setting(
        None,
        help="Character between columns. Default: a tab for .tsv, a comma for .csv. Columns may be"
        " quoted, except between tabs.",
        group=Group.DATA,
    )
    dev_fraction: float = inherit(
        EvaluationSettings,
        "dev_fraction",
        needs=("loss", COSINE),
        because="an evaluation needs the scores of all pairs",
    )
    # [CLS], a token and [SEP].
    max_seq_length: int = inherit(
        FineTuningSettings,
        "max_seq_length",
        at_least=3,
        help="Maximum length of each text in word pieces, with [CLS] and [SEP]. Longer texts are"
        " truncated, shorter ones padded.",
    )
    loss: str = setting(
        COSINE,
        help="cosine: the squared difference between a pair's cosine and its score / --score_scale."
        " in_batch_negatives: the two texts of a pair mean the same, the texts of different pairs"
        " do not.",
        group=Group.TRAINING,
        choices=LOSSES,
    )
    score_scale: float = setting(
        1.0,
        help="The score of two texts with the same meaning, such as 5 for STS-B. Scores are divided"
        " by this to get the cosines to learn.",
        group=Group.TRAINING,
        above=0.0,
        at_most=1e6,
        needs=("loss", COSINE),
    )
    min_positive_score: float | None = setting(
        None,
        help="Train only on pairs with at least this score. Default: on all pairs, without reading"
        " their scores.",
        group=Group.TRAINING,
        at_least=-1e6,
        at_most=1e6,
        needs=("loss", IN_BATCH_NEGATIVES),
    )
    # The paper has no scale: its vectors may have any length. 20 is sentence-transformers' default.
    similarity_scale: float = setting(
        20.0,
        help="Factor of the cosines before the softmax.",
        group=Group.TRAINING,
        above=0.0,
        at_most=1e6,
        needs=("loss", IN_BATCH_NEGATIVES),
    )

    def __post_init__(self):
        super().__post_init__()
        check_delimiter(self.delimiter)
