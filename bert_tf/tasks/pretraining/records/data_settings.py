"""Settings of create_pretraining_data. Each field is the flag of that name."""

import dataclasses

from bert_tf.datasets.text_files import TEXT_FIELD
from bert_tf.errors import UserError, as_given, quoted
from bert_tf.runs.flags.setting_fields import REQUIRED, Group, Settings, inherit
from bert_tf.runs.flags.settings import MAX_LENGTH, TextSettings
from bert_tf.tasks.pretraining.schema import ELECTRA, MLM, MLM_NSP, MLM_SOP, OBJECTIVES

_OF_NGRAMS = "only this objective masks n-grams, and only when the records are made"


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingDataSettings(TextSettings):
    init_checkpoint: str | None = Group.DATA.setting(
        None,
        help="Model that the records are for: its folder, also Hugging Face's, or the prefix of its"
        " checkpoint. Only its vocabulary and casing are read.",
    )
    input_file: str | None = Group.DATA.setting(
        None,
        help="Text to read: files or globs, separated by commas. A sentence on each line and an"
        " empty line between documents; or JSON lines (.jsonl) or Parquet (.parquet) with a"
        " document in each row. Text and JSON lines may be compressed (.gz, .zst).",
    )
    text_field: str = Group.DATA.setting(
        TEXT_FIELD,
        help="Field of JSON lines, or column of Parquet files, that holds a document's text, which"
        " is split into sentences.",
        not_empty=True,
        excludes="tfds",
        because="--tfds_text_feature names the text of a dataset",
    )
    split_sentences: bool = Group.DATA.setting(
        False,
        help="Split the lines of text files into sentences, for text with a paragraph or a whole"
        " document on each line. JSON lines, Parquet and --tfds are always split.",
    )
    output_file: str = Group.OUTPUT.setting(
        help="TFRecord file to write, or several separated by commas, filled in turn.",
        not_empty=True,
    )
    heldout_fraction: float = Group.DATA.setting(
        0.0,
        help="Share of the documents to hold out for evaluation: their records go to"
        " --heldout_output_file, in one pass. Only a document's text decides, so other flags do not"
        " change the choice, and all copies of a document are on the same side.",
        at_least=0.0,
        at_most=0.5,
        needs="heldout_output_file",
    )
    heldout_output_file: str | None = Group.OUTPUT.setting(
        None,
        help="TFRecord file to write the records of the held-out documents to.",
        needs="heldout_fraction",
    )
    objective: str = Group.DATA.setting(
        MLM_NSP,
        help="mlm_nsp: pairs of sentences, for masked LM and next sentence prediction (BERT). mlm:"
        " sequences of whole sentences, for masked LM only (RoBERTa). mlm_sop: two stretches of"
        " text, in order or swapped, and masked n-grams (ALBERT). electra: one or two"
        " segments, masked during training (ELECTRA).",
        choices=OBJECTIVES,
    )
    ngram: int = Group.DATA.setting(
        3,
        help="Maximum number of consecutive words to mask together.",
        at_least=1,
        at_most=100,
        needs=[("objective", MLM_SOP), "mask"],
        because=_OF_NGRAMS,
    )
    favor_shorter_ngram: bool = Group.DATA.setting(
        True,
        help="Mask n words together with a probability in proportion to 1 / n."
        " --nofavor_shorter_ngram reverses the probabilities.",
        needs=[("objective", MLM_SOP), "mask"],
        because=_OF_NGRAMS,
    )
    random_next_sentence: bool = Group.DATA.setting(
        False,
        help="Half of the time, take a random second part instead of swapping the two parts.",
        needs=("objective", MLM_SOP),
    )
    do_permutation: bool = Group.DATA.setting(
        False,
        help="Also permute as many tokens as are masked, and predict their originals. Doubles the"
        " predictions: train with twice --max_predictions_per_seq.",
        needs=[("objective", MLM_SOP), "mask"],
        because=_OF_NGRAMS,
    )
    across_documents: bool = Group.DATA.setting(
        True,
        help="With --objective=mlm, fill a sequence with sentences of the next document, after a"
        " [SEP] (FULL-SENTENCES). --noacross_documents ends it with the document (DOC-SENTENCES).",
        needs=("objective", MLM),
        because="pairs of sentences never cross documents",
    )
    blanks_separate_docs: bool = Group.DATA.setting(
        True,
        help="With --objective=electra, end a document at empty lines."
        " --noblanks_separate_docs ends it only with its file.",
        needs=("objective", ELECTRA),
        excludes="tfds",
        because="only ELECTRA's text files may hold a document with empty lines",
    )
    mask: bool = Group.DATA.setting(
        True,
        help="Mask tokens. --nomask leaves that to run_pretraining.py --dynamic_masking, so that"
        " one pass over the text is enough (--dupe_factor=1). Always off with --objective=electra.",
    )
    do_whole_word_mask: bool = Group.DATA.setting(
        False,
        help="Mask all word pieces of a word together instead of one by one.",
        needs="mask",
        because="masks drawn while training follow run_pretraining.py --do_whole_word_mask",
    )
    pack: bool = Group.DATA.setting(
        False,
        help="Pack the sequences: a record holds as many as fit into --max_seq_length. They do not"
        " attend to each other.",
        excludes=("objective", ELECTRA),
        because="its sequences are full except at the ends of documents",
    )
    max_sequences_per_pack: int = Group.DATA.setting(
        12,
        help="Maximum number of sequences in a record.",
        at_least=2,
        at_most=MAX_LENGTH,
        needs="pack",
    )
    # The minimum is [CLS], a token, [SEP], a token and [SEP].
    max_seq_length: int = Group.DATA.setting(
        128,
        help="Length of a sequence in word pieces, with [CLS] and two [SEP].",
        at_least=5,
        at_most=MAX_LENGTH,
    )
    max_predictions_per_seq: int = Group.DATA.setting(
        20,
        help="Maximum number of masked tokens in a sequence: about max_seq_length *"
        " masked_lm_prob.",
        at_least=1,
        at_most=MAX_LENGTH,
    )
    random_seed: int = Group.DATA.setting(12345, help="Seed of all random choices.")
    dupe_factor: int = Group.DATA.setting(
        10,
        help="Passes over the text, each with different masks. Always 1 with --objective=electra.",
        at_least=1,
    )
    masked_lm_prob: float = Group.DATA.setting(
        0.15,
        help="Share of the tokens of a sequence to predict.",
        at_least=0.0,
        at_most=1.0,
        needs="mask",
        because="masks drawn while training follow run_pretraining.py --masked_lm_prob",
    )
    short_seq_prob: float = Group.DATA.setting(
        0.1,
        help="Share of the documents that are cut into sequences shorter than --max_seq_length, in"
        " each pass.",
        at_least=0.0,
        at_most=1.0,
        needs=("objective", MLM_NSP, MLM_SOP),
        because="mlm fills sequences as far as possible, and electra shortens one in twenty",
    )
    tfds: str | None = Group.DATA.setting(
        None,
        help="Prepared dataset of TensorFlow Datasets to read instead of --input_file:"
        " NAME[:SPLIT], such as wiki40b/en:train. Each example is a document; its text is split"
        " into sentences.",
    )
    tfds_data_dir: str | None = Group.DATA.setting(
        None,
        help="Folder of the dataset. Default: the folder that TensorFlow Datasets uses.",
        needs="tfds",
    )
    tfds_text_feature: str = Group.DATA.setting(
        "text", help="Feature of the dataset that holds the text.", needs="tfds"
    )
    spill_dir: str | None = Group.OUTPUT.setting(
        None,
        help="Local folder for a temporary file about as large as the output. Default: the folder"
        " of the first output file, or the system's temporary folder (TMPDIR) if the output is not"
        " on a local disk.",
    )
    num_shards: int | None = Group.OUTPUT.setting(
        None,
        help="Write this many files, named like --output_file with -00003-of-00064, each with the"
        " records of some documents. The files do not depend on the number of workers. If the"
        " command is started again, it skips files that already exist.",
        at_least=1,
        at_most=99999,
    )
    num_workers: int = Group.OUTPUT.setting(
        1,
        help="Number of processes that make the shards: all on this machine or, with"
        " --worker_index, one for each command.",
        at_least=1,
        at_most=99999,
        needs="num_shards",
        because="workers share out the shards",
    )
    worker_index: int | None = Group.OUTPUT.setting(
        None,
        help="Which of the --num_workers this command is, from 0. Each worker makes its own shards"
        " and does not wait for the other workers.",
        at_least=0,
        needs="num_shards",
        because="workers share out the shards",
    )

    def __post_init__(self):
        if self.objective == ELECTRA:
            of_masks = {"dupe_factor": 1, "masked_lm_prob": None, "do_whole_word_mask": None}
            for name, neutral in of_masks.items():
                if getattr(self, name) not in (neutral, self.__dataclass_fields__[name].default):
                    raise UserError(
                        f"{self._written(name)} does not fit --objective={ELECTRA}: masks are drawn"
                        " while training, by run_pretraining.py --mask_prob. Leave it out"
                    )
            object.__setattr__(self, "dupe_factor", 1)
            object.__setattr__(self, "mask", False)
        super().__post_init__()
        if self.worker_index is not None and self.worker_index >= self.num_workers:
            raise UserError(
                f"--worker_index={self.worker_index} must be below --num_workers"
                f" ({self.num_workers}); workers are numbered from 0"
            )
        if self.num_shards is not None and "," in self.output_file:
            raise UserError(
                f"--output_file={as_given(self.output_file)} must be one name with"
                " --num_shards: each shard's number is added to it"
            )
        if bool(self.input_file) == bool(self.tfds):
            raise UserError(
                "Give exactly one of --input_file and --tfds; got --input_file="
                f"{quoted(self.input_file or '')} and --tfds={quoted(self.tfds or '')}"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PackingSettings(Settings):
    """Settings of tools/pack_records.py."""

    input_file: str = Group.DATA.setting(
        help="Records of create_pretraining_data.py, with a sequence in each: files or globs,"
        " separated by commas.",
        not_empty=True,
    )
    output_file: str | None = Group.OUTPUT.setting(
        None,
        help="TFRecord file to write, or several separated by commas, filled in turn. Default:"
        " none; the log says what packing would save.",
        not_empty=True,
    )
    max_sequences_per_pack: int = inherit(
        PretrainingDataSettings, "max_sequences_per_pack", needs=()
    )
    random_seed: int = inherit(
        PretrainingDataSettings, "random_seed", help="Seed of the order of the records."
    )
    spill_dir: str | None = inherit(
        PretrainingDataSettings,
        "spill_dir",
        help="Local folder for a temporary file as large as the input. Default: the folder of the"
        " first output file, or the system's temporary folder (TMPDIR) if the output is not on a"
        " local disk.",
        needs="output_file",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class BeamDataSettings(PretrainingDataSettings):
    """Settings of tools/create_pretraining_data_beam.py, where Beam distributes the work."""

    num_shards: int = inherit(PretrainingDataSettings, "num_shards", default=REQUIRED)
    num_workers: int = 1  # not a flag: Beam has an option of this name
    worker_index: int | None = None  # not a flag
