"""Settings of run_sentence_similarity. Each field is the flag of that name."""

import dataclasses
import itertools

from bert_tf.datasets.tables import check_delimiter
from bert_tf.errors import UserError, quoted
from bert_tf.runs.flags.setting_fields import Group, inherit
from bert_tf.runs.flags.settings import EvaluationOptions, FineTuningFiles, TeacherCheckpoint

COSINE, IN_BATCH_NEGATIVES, TRIPLET = LOSSES = ("cosine", "in_batch_negatives", "triplet")
TEACHER = "teacher"  # the loss of a student, which needs a teacher


@dataclasses.dataclass(frozen=True, kw_only=True)
class SentenceOptions(EvaluationOptions, TeacherCheckpoint):
    """How sentence vectors are trained and evaluated."""

    loss_reduction: str = "mean"  # not a flag: in-batch losses have only a mean

    dev_fraction: float = inherit(
        EvaluationOptions,
        "dev_fraction",
        needs=("loss", COSINE),
        because="an evaluation needs the scores of all pairs",
    )
    # The minimum is [CLS], a token and [SEP].
    max_seq_length: int = inherit(
        EvaluationOptions,
        "max_seq_length",
        at_least=3,
        help="Maximum length of each text in word pieces, with [CLS] and [SEP]. Longer texts are"
        " truncated, shorter ones padded.",
    )
    loss: str = Group.TRAINING.setting(
        COSINE,
        help="cosine: the squared difference between a pair's cosine and its score / --score_scale."
        " in_batch_negatives: the two texts of a pair mean the same, the texts of different pairs"
        " do not. triplet: the first text is nearer to the second than to the text in"
        " --negative_column. teacher: the squared difference between the vectors and the vectors"
        " of --teacher_checkpoint's model, for single texts, or for both texts of pairs.",
        choices=(*LOSSES, TEACHER),
    )
    score_scale: float = Group.TRAINING.setting(
        1.0,
        help="The score of two texts with the same meaning, such as 5 for STS-B. Scores are divided"
        " by this to get the cosines to learn.",
        above=0.0,
        at_most=1e6,
        needs=("loss", COSINE),
    )
    min_positive_score: float | None = Group.TRAINING.setting(
        None,
        help="Train only on pairs with at least this score. Required if the scores in"
        " --label_column differ. Default: on all pairs.",
        at_least=-1e6,
        at_most=1e6,
        needs=("loss", IN_BATCH_NEGATIVES, TRIPLET),
    )
    # The paper has no scale: its vectors may have any length. 20 is sentence-transformers' default.
    similarity_scale: float = Group.TRAINING.setting(
        20.0,
        help="Factor of the cosines before the softmax.",
        above=0.0,
        at_most=1e6,
        needs=("loss", IN_BATCH_NEGATIVES),
    )

    triplet_margin: float = Group.TRAINING.setting(
        0.5,
        help="By how much the cosine of a triplet's first and second text must exceed the cosine of"
        " the first and third.",
        above=0.0,
        at_most=2.0,
        needs=("loss", TRIPLET),
    )
    matryoshka_dims: str | None = Group.TRAINING.setting(
        None,
        help="Sizes of vectors to train, in descending order, such as 768,256,64: the loss is the"
        " sum of the losses of the first 768, 256 and 64 elements. An evaluation has results of"
        " each size. Default: whole vectors.",
        excludes=("loss", TEACHER),
        because="a teacher's vectors are learned whole",
    )
    teacher_checkpoint: str | None = inherit(
        TeacherCheckpoint, "teacher_checkpoint", needs=("loss", TEACHER)
    )

    def __post_init__(self):
        super().__post_init__()
        for loss, flag, what in (
            (TRIPLET, "negative_column", "the third text of a triplet"),
            (TEACHER, "teacher_checkpoint", "the model whose vectors are learned"),
        ):
            # Examples in memory have no columns, so their settings lack --negative_column.
            if self.do_train and self.loss == loss and not getattr(self, flag, True):
                raise UserError(f"--loss={loss} needs --{flag}, {what}. Add --{flag}")
        self.sizes  # noqa: B018  # checks them

    @property
    def sizes(self) -> tuple[int, ...]:
        """The numbers of --matryoshka_dims; () if it is not given."""
        if self.matryoshka_dims is None:
            return ()
        parts = self.matryoshka_dims.split(",")
        sizes = [int(x) if x.isdecimal() and x.isascii() and len(x) < 10 else 0 for x in parts]
        if min(sizes) < 1 or any(a <= b for a, b in itertools.pairwise(sizes)):
            raise UserError(
                "--matryoshka_dims must be whole numbers above 0 in descending order, separated by"
                f" commas, such as 768,256,64; got {quoted(self.matryoshka_dims)}"
            )
        return tuple(sizes)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SentenceSettings(FineTuningFiles, SentenceOptions):
    """Settings of run_sentence_similarity: the options, and its files."""

    data_dir: str = Group.DATA.setting(help="Folder with train, dev and test, each .tsv or .csv.")
    text_a_column: str = Group.DATA.setting(
        help="Name of the column with the text, or with the first text of a pair.", not_empty=True
    )
    text_b_column: str | None = Group.DATA.setting(
        None,
        help="Name of the column with the second text. Needed for evaluation and, except for"
        " --loss=teacher, for training.",
    )
    negative_column: str | None = Group.DATA.setting(
        None,
        help="Name of the training file's column with a third text, which is like the first but"
        " means something else: a hard negative. Needed for --loss=triplet.",
        needs=("loss", IN_BATCH_NEGATIVES, TRIPLET),
    )
    label_column: str | None = Group.DATA.setting(
        None,
        help="Name of the column with the score of a pair: the higher, the more similar in meaning."
        " Needed for --loss=cosine and for evaluation; the test file may lack it.",
    )
    retrieval_dir: str | None = Group.EVALUATION.setting(
        None,
        help="Folder with a retrieval set to evaluate on: queries.jsonl, corpus.jsonl and"
        " qrels.tsv, in the form of the BEIR benchmark. The dev file is then evaluated only with"
        " --label_column.",
        needs_one_of=["do_eval", "evaluate_every_steps"],
        excludes="dev_fraction",
        because="the retrieval set is the set to evaluate on",
    )
    has_header: bool = Group.DATA.setting(
        True,
        help="The first line of each file names the columns. If false, columns are named by their"
        " numbers, from 0.",
    )
    delimiter: str | None = Group.DATA.setting(
        None,
        help="Character between columns. Default: a tab for .tsv, a comma for .csv. Columns may be"
        " quoted, except between tabs.",
    )

    def __post_init__(self):
        super().__post_init__()
        check_delimiter(self.delimiter)
