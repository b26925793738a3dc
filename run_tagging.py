#!/usr/bin/env python
r"""Tags the words of sentences: named entities of CoNLL-2003 (paper, section 5.3).

Fine-tune, evaluate on valid.txt and tag test.txt:

    python run_tagging.py --data_dir=/data/conll2003 --output_dir=/data/out \
        --vocab_file=vocab.txt --bert_config_file=bert_config.json \
        --init_checkpoint=bert_model.ckpt --do_train --do_eval --do_predict

With --feature_based BERT stays as it is, and a BiLSTM learns from its layers (table 7).
"""

from absl import flags

from bert_tf.model.configuration import BertConfig
from bert_tf.runs import command_flags
from bert_tf.tasks.tagging.head import FEATURE_LAYERS
from bert_tf.tasks.tagging.run import TaggingSettings, run_tagging

FLAGS = flags.FLAGS

command_flags.define_model_flags()
command_flags.define_training_flags()
command_flags.define_eval_flags()
command_flags.define_predict_flags()
command_flags.define_fine_tuning_flags()
command_flags.define_device_flags()
# The paper's choice for this task: capitals tell names.
FLAGS.set_default("do_lower_case", False)
flags.DEFINE_string(
    "data_dir",
    None,
    "Folder with train.txt, valid.txt and test.txt: CoNLL files of columns, the first being the"
    " word and the last its tag.",
)
flags.DEFINE_string("train_file", None, "CoNLL file to train on, if not train.txt of --data_dir.")
flags.DEFINE_string("eval_file", None, "CoNLL file to evaluate on, if not valid.txt of --data_dir.")
flags.DEFINE_string(
    "predict_file",
    None,
    "CoNLL file to tag, if not test.txt of --data_dir. It may hold words alone.",
)
flags.DEFINE_list(
    "labels",
    [],
    "All tags, such as O,B-PER,I-PER. By default those of the training file; a model in"
    " --output_dir keeps its own.",
)
flags.DEFINE_bool(
    "document_context",
    True,
    "Whether to show the model as much of the document around a sentence as there is room for."
    " -DOCSTART- lines begin documents; without any, sentences are alone.",
)
flags.DEFINE_bool(
    "feature_based",
    False,
    "Whether to leave BERT as it is and train a two-layer BiLSTM on --feature_layers.",
)
flags.DEFINE_enum(
    "feature_layers",
    "concat_last_four",
    list(FEATURE_LAYERS),
    "With --feature_based: the layers of BERT that the BiLSTM sees.",
)
flags.DEFINE_integer(
    "lstm_size",
    768,
    "With --feature_based: units of the BiLSTM in each direction.",
    lower_bound=1,
)


def main() -> None:
    """Reads the flags and tags."""
    config = BertConfig.from_json_file(FLAGS.bert_config_file)
    strategy, on_tpu = command_flags.get_strategy(["output_dir", "init_checkpoint"])
    settings = command_flags.settings_from_flags(TaggingSettings)
    run_tagging(config, strategy, settings, command_flags.model_options(on_tpu))


if __name__ == "__main__":
    command_flags.run_program(main)
