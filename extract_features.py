#!/usr/bin/env python
r"""Writes what a pre-trained BERT makes of each line of a text: vectors of its tokens, and more.

The original's command:

    python extract_features.py --input_file=/tmp/input.txt --output_file=/tmp/output.jsonl \
        --vocab_file=vocab.txt --bert_config_file=bert_config.json \
        --init_checkpoint=bert_model.ckpt --layers=-1,-2,-3,-4 --max_seq_length=128 --batch_size=8

A line is a text, or two texts with ` ||| ` between them. One vector for each line, as a NumPy
archive:

    python extract_features.py ... --layers=-2 --outputs=mean_vector --output_format=npz
"""

from absl import flags

from bert_tf.model.configuration import BertConfig
from bert_tf.runs import command_flags
from bert_tf.tasks.extraction import run, schema

FLAGS = flags.FLAGS

command_flags.define_text_flags()
command_flags.define_computation_flags()
command_flags.define_device_flags()
flags.DEFINE_string(
    "input_file",
    None,
    "UTF-8 text; each line is a text, or a pair of texts separated by ' ||| '.",
    required=True,
)
flags.DEFINE_string(
    "output_file", None, "Where the results are written; replaced when complete.", required=True
)
flags.DEFINE_string(
    "layers",
    "-1,-2,-3,-4",
    "The encoder layers whose vectors and attention are wanted; 0 is the first, -1 the last.",
)
flags.DEFINE_string(
    "outputs",
    "token_vectors",
    "What is wanted, separated by commas: token_vectors (the original); mean_vector, the mean of a"
    " line's token vectors; pooled_vector, the pooler's; attention_probs. All but the pooler's are"
    " of each of --layers.",
)
flags.DEFINE_enum(
    "output_format",
    "json",
    run.FORMATS,
    "JSON lines (the original), a NumPy archive, or tf.Examples. JSON has six decimals.",
)
flags.DEFINE_string(
    "bert_config_file", None, "The model's configuration: a bert_config.json.", required=True
)
flags.DEFINE_string(
    "init_checkpoint",
    None,
    "Checkpoint with the weights: the prefix of its files, or a directory with a file"
    " `checkpoint`.",
    required=True,
)
flags.DEFINE_integer(
    "max_seq_length",
    128,
    "Longest sequence in word pieces, [CLS] and [SEP] among them; longer ones are cut.",
    lower_bound=3,
)
flags.DEFINE_string(
    "length_buckets",
    "auto",
    "Lengths that batches are padded to in place of --max_seq_length, such as 32,64,128: auto for"
    " up to eight evenly spaced ones, none for --max_seq_length alone. Lines are sorted by length"
    " for it; results and their order stay the same.",
)
flags.DEFINE_integer(
    "batch_size", 32, "Lines computed at a time, over all replicas.", lower_bound=1
)


def main() -> None:
    """Reads the flags and extracts."""
    config = BertConfig.from_json_file(FLAGS.bert_config_file)
    schema.parse_layers(FLAGS.layers, config.num_hidden_layers)  # before a TPU is waited for
    strategy, on_tpu = command_flags.get_strategy([])  # the hosts of a TPU get no paths
    run.extract_features(
        config,
        strategy,
        command_flags.settings_from_flags(run.ExtractionSettings),
        **command_flags.computation_options(on_tpu),
    )


if __name__ == "__main__":
    command_flags.run_program(main)
