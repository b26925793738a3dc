"""The GLUE tasks, in the files of its download (the original has CoLA, MNLI and MRPC)."""

from bert_tf.tasks.classification.tsv import ColumnNumbers, TsvProcessor


class ColaProcessor(TsvProcessor):
    """Corpus of Linguistic Acceptability: is it grammatical? Only test.tsv has a header."""

    labels = ("0", "1")
    metrics = ("matthews_correlation", "accuracy")
    best_metric = "eval_matthews_correlation"
    submission_file = "CoLA.tsv"
    columns = ColumnNumbers(text_a=3, label=1, header=False)
    test_columns = ColumnNumbers(text_a=1)


class Sst2Processor(TsvProcessor):
    """Stanford Sentiment Treebank: is the review positive?"""

    labels = ("0", "1")
    submission_file = "SST-2.tsv"
    columns = ColumnNumbers(text_a=0, label=1)
    test_columns = ColumnNumbers(text_a=1)


class MrpcProcessor(TsvProcessor):
    """Microsoft Research Paraphrase Corpus: do both sentences mean the same?"""

    labels = ("0", "1")
    metrics = ("accuracy", "f1")
    best_metric = "eval_accuracy_and_f1"
    submission_file = "MRPC.tsv"
    columns = ColumnNumbers(text_a=3, text_b=4, label=0)
    test_columns = ColumnNumbers(text_a=3, text_b=4)


class StsbProcessor(TsvProcessor):
    """Semantic Textual Similarity Benchmark: how similar are the sentences, from 0 to 5?"""

    label_range = (0.0, 5.0)
    metrics = ("pearson", "spearman")
    best_metric = "eval_pearson_and_spearman"
    submission_file = "STS-B.tsv"
    columns = ColumnNumbers(text_a=7, text_b=8, label=9)
    test_columns = ColumnNumbers(text_a=7, text_b=8)


class QqpProcessor(TsvProcessor):
    """Quora Question Pairs: do both ask the same? A few rows of train.tsv lack columns."""

    labels = ("0", "1")
    metrics = ("accuracy", "f1")
    best_metric = "eval_accuracy_and_f1"
    submission_file = "QQP.tsv"
    columns = ColumnNumbers(text_a=3, text_b=4, label=5)
    test_columns = ColumnNumbers(text_a=1, text_b=2)
    skip_short_rows = True


class MnliMismatchedProcessor(TsvProcessor):
    """MultiNLI, evaluated on genres that the training set does not have."""

    labels = ("contradiction", "entailment", "neutral")
    submission_file = "MNLI-mm.tsv"
    files = {"train": "train.tsv", "dev": "dev_mismatched.tsv", "test": "test_mismatched.tsv"}
    guid_names = {"dev": "dev_mismatched"}
    tfds_splits = {
        "train": ("train",),
        "dev": ("validation_mismatched",),
        "test": ("test_mismatched",),
    }
    # The label is the last column: dev files have the labels of five annotators before it.
    columns = ColumnNumbers(text_a=8, text_b=9, label=-1, guid=0)
    test_columns = ColumnNumbers(text_a=8, text_b=9, guid=0)


class MnliProcessor(MnliMismatchedProcessor):
    """MultiNLI: does the second sentence follow from the first? Evaluated on the same genres."""

    submission_file = "MNLI-m.tsv"
    files = {"train": "train.tsv", "dev": "dev_matched.tsv", "test": "test_matched.tsv"}
    guid_names = {"dev": "dev_matched"}
    tfds_splits = {
        "train": ("train",),
        "dev": ("validation_matched", "validation"),
        "test": ("test_matched", "test"),
    }
    also = {"mismatched": MnliMismatchedProcessor()}


class AxProcessor(TsvProcessor):
    """GLUE's diagnostic set: predictions of a model that was trained on MNLI."""

    labels = MnliProcessor.labels
    submission_file = "AX.tsv"
    files = {"test": "diagnostic.tsv"}
    test_columns = ColumnNumbers(text_a=1, text_b=2)


class QnliProcessor(TsvProcessor):
    """Question NLI: does the sentence contain the answer to the question?"""

    labels = ("entailment", "not_entailment")
    submission_file = "QNLI.tsv"
    columns = ColumnNumbers(text_a=1, text_b=2, label=3)
    test_columns = ColumnNumbers(text_a=1, text_b=2)


class RteProcessor(QnliProcessor):
    """Recognizing Textual Entailment: does the second sentence follow from the first?"""

    submission_file = "RTE.tsv"


class WnliProcessor(QnliProcessor):
    """Winograd NLI: is the pronoun replaced correctly?"""

    labels = ("0", "1")
    submission_file = "WNLI.tsv"
