"""Settings of tools/export.py. Each field is the flag of that name."""

import dataclasses

from bert_tf.errors import UserError
from bert_tf.pretrained.exported import FORMATS as FORMATS
from bert_tf.pretrained.exported import LITERT as LITERT
from bert_tf.pretrained.exported import ONNX as ONNX
from bert_tf.pretrained.exported import ONNX_FILE
from bert_tf.pretrained.exported import SAVED_MODEL as SAVED_MODEL
from bert_tf.runs.flags.setting_fields import Group, Settings
from bert_tf.tasks.registry import TASKS

ENCODER = "encoder"
# --head defaults to the first of HEADS that the model has, so fine-tuned heads come first.
TRAINED_LAST = tuple(head for task in TASKS.values() for head in task.heads)
HEADS = (*TRAINED_LAST, "masked_lm", ENCODER)

FILES = {ONNX: ONNX_FILE, LITERT: "model.tflite", SAVED_MODEL: "saved_model.pb"}
TEXT, IDS = INPUT_KINDS = ("text", "ids")
INT8 = "int8"
FLOAT32, BFLOAT16 = DTYPES = ("float32", "bfloat16")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportSettings(Settings):
    """Settings of an export."""

    input: str = Group.MODEL.setting(
        help="Folder with the model, any that bert_tf.load takes: a released model, an --output_dir"
        " or --export_dir, or a Hugging Face model. Or the prefix of a checkpoint.",
        not_empty=True,
    )
    output: str = Group.OUTPUT.setting(
        help="Folder to write to. An earlier export there is overwritten.", not_empty=True
    )
    format: str = Group.OUTPUT.setting(
        SAVED_MODEL,
        help="saved_model for TensorFlow Serving and Vertex AI, onnx for ONNX Runtime, litert for"
        " LiteRT (TensorFlow Lite).",
        choices=FORMATS,
    )
    input_kind: str | None = Group.OUTPUT.setting(
        None,
        help="What the exported model takes: text, or the ids of word pieces. Default: text with"
        " --format=saved_model, and ids with onnx and litert, which cannot take text.",
        choices=INPUT_KINDS,
    )
    quantize: str | None = Group.OUTPUT.setting(
        None,
        help="Store weight matrices as 8-bit integers, at a quarter of the size.",
        choices=(INT8,),
        needs=("format", ONNX, LITERT),
        because="TensorFlow has no 8-bit kernels for a saved_model",
    )
    dtype: str = Group.OUTPUT.setting(
        FLOAT32,
        help="Number type in which the exported model computes. bfloat16 halves the size of the"
        " weights, and is fast on CPUs that multiply bfloat16 (amx_bf16, or AMD's avx512_bf16)."
        " Outputs are float32.",
        choices=DTYPES,
        needs=("format", SAVED_MODEL),
        because="ONNX Runtime and LiteRT do not have fast bfloat16 on CPUs",
    )
    head: str | None = Group.MODEL.setting(
        None,
        help="Head to export: what the exported model computes. Default: the first of these that"
        " the model has.",
        choices=HEADS,
    )
    bert_config_file: str | None = Group.MODEL.setting(
        None,
        help="Configuration of the model. Default: the one in --input. Must not be given with a"
        " model.safetensors, whose configuration is config.json.",
    )
    vocab_file: str | None = Group.MODEL.setting(
        None, help="Vocabulary of the model. Default: the one in --input."
    )
    do_lower_case: bool | None = Group.MODEL.setting(
        None, help="Whether text is lower-cased. Default: detected."
    )
    max_seq_length: int | None = Group.MODEL.setting(
        None,
        help="Longest text in word pieces, [CLS] and [SEP] included; longer texts are truncated."
        " Default: the length that the model was fine-tuned with; if unknown, the longest that it"
        " can take.",
        at_least=4,
    )
    batch_size: int | None = Group.OUTPUT.setting(
        None,
        help="Fixed number of examples per call, for devices that need one. Only with ids."
        " Default: any number.",
        at_least=1,
    )
    seq_length: int | None = Group.OUTPUT.setting(
        None,
        help="Fixed length of each example in word pieces, for devices that need one. Only with"
        " ids. Default: any length.",
        at_least=4,
    )
    data_dir: str | None = Group.DATA.setting(
        None,
        help="Folder with dev.tsv or dev.csv, a table of texts and labels: the tool prints the"
        " model's accuracy on it before and after the export. For regression and sentence vectors"
        " it prints the correlations with the labels.",
        needs=[("format", ONNX), "text_a_column", "label_column"],
        excludes=["batch_size", "seq_length"],
        because="the tool gives the table's texts to bert_tf.load(EXPORT)",
    )
    text_a_column: str | None = Group.DATA.setting(
        None,
        help="Name of the column with the text, or with the first text of a pair.",
        needs="data_dir",
    )
    text_b_column: str | None = Group.DATA.setting(
        None, help="Name of the column with the second text.", needs="data_dir"
    )
    label_column: str | None = Group.DATA.setting(
        None, help="Name of the column with the label.", needs="data_dir"
    )

    def __post_init__(self):
        super().__post_init__()
        if self.input_kind == TEXT and self.format != SAVED_MODEL:
            raise UserError(
                f"--input_kind=text needs --format=saved_model: {self.format} has no operations for"
                " text, so it takes the ids of word pieces. Leave --input_kind out, and make the"
                " ids as described in the README.md of the exported folder"
            )
        fixed = [name for name in ("batch_size", "seq_length") if getattr(self, name) is not None]
        if fixed and self.takes_text:
            raise UserError(
                f"--{fixed[0]} fixes the shape of ids, but the exported model takes text; set"
                " --input_kind=ids or leave it out"
            )

    @property
    def takes_text(self) -> bool:
        """Whether the exported model takes text, by `input_kind` or its default."""
        return (self.input_kind or (TEXT if self.format == SAVED_MODEL else IDS)) == TEXT
