"""The programs' flags: the original's with its defaults, made from settings, listed by --help."""

import ast
import functools
import json
import re
import sys

import pytest

from bert_tf.runs.flags.setting_fields import Group
from bert_tf.tasks import registry
from tests.support import forked_programs

TEXT = "vocab_file=None do_lower_case=True max_seq_length=128"
MODEL = "bert_config_file=None init_checkpoint=None"
TPU = "use_tpu=False master=None"
TPU_BY_NAME = f"{TPU} tpu_name=None tpu_zone=None gcp_project=None"
TRAINING = """output_dir=None do_train=False train_batch_size=32 learning_rate=5e-5
    save_checkpoints_steps=1000 iterations_per_loop=1000"""
EPOCHS = "num_train_epochs=3.0 warmup_proportion=0.1"
PREDICTION = "do_predict=False predict_batch_size=8"
# The defaults of the original, without num_tpu_cores, whose 8 there is however many cores there are
# here, and use_one_hot_embeddings, whose default is what suits the device.
DEFAULTS = {
    "create_pretraining_data": f"""{TEXT} input_file=None output_file=None do_whole_word_mask=False
        max_predictions_per_seq=20 random_seed=12345 dupe_factor=10 masked_lm_prob=0.15
        short_seq_prob=0.1""",
    "run_pretraining": f"""{MODEL} {TRAINING} {TPU_BY_NAME} input_file=None max_seq_length=128
        max_predictions_per_seq=20 do_eval=False eval_batch_size=8 num_train_steps=100000
        num_warmup_steps=10000 max_eval_steps=100""",
    "run_classifier": f"""{TEXT} {MODEL} {TRAINING} {EPOCHS} {PREDICTION} {TPU_BY_NAME}
        data_dir=None task_name=None do_eval=False eval_batch_size=8""",
    "run_squad": f"""{TEXT} {MODEL} {TRAINING} {EPOCHS} {PREDICTION} {TPU_BY_NAME}
        train_file=None predict_file=None max_seq_length=384 doc_stride=128 max_query_length=64
        n_best_size=20 max_answer_length=30 verbose_logging=False version_2_with_negative=False
        null_score_diff_threshold=0.0""",
    "extract_features": f"""{TEXT} {MODEL} {TPU} input_file=None output_file=None
        layers='-1,-2,-3,-4' batch_size=32""",
}
FINE_TUNING = [task.program for task in registry.TASKS.values()]
OF_EVERY_TASK = "output_dir"  # --init_checkpoint names the other files, too
REQUIRED = {
    **dict.fromkeys(FINE_TUNING, OF_EVERY_TASK),
    "create_pretraining_data": "output_file",
    "run_pretraining": "input_file output_dir",
    "run_distillation": "input_file output_dir teacher_checkpoint",
    "run_classifier": f"{OF_EVERY_TASK} task_name",
    "run_multiple_choice": f"{OF_EVERY_TASK} data_dir",
    "run_sentence_similarity": f"{OF_EVERY_TASK} data_dir text_a_column",
    "extract_features": "input_file output_file init_checkpoint",
}
PROGRAMS = sorted({*DEFAULTS, "run_distillation", *FINE_TUNING})
READ_FLAGS = """
import contextlib, importlib, io, json, sys
from absl import flags
from bert_tf.errors import UserError
from bert_tf.runs.flags import command_flags
from bert_tf.runs.flags.setting_fields import REQUIRED, flags_of, help_text
from bert_tf.runs.flags.settings import DeviceSettings
from bert_tf.runs.flags.settings import ModelSettings
from bert_tf.tasks import registry
_, name, *lines = sys.argv
sys.argv = [name, "--help"]
sys.modules["__main__"] = program = importlib.import_module(name)
with contextlib.redirect_stdout(io.StringIO()) as page:
    try:
        command_flags.run_program(program.main)
    except SystemExit as end:
        status = end.code
defined = {name: flags.FLAGS[name] for name in flags.FLAGS}
for task in registry.TASKS.values():
    if task.program == program.__name__:
        program.SETTINGS = (*task.settings_classes(), ModelSettings, DeviceSettings)
messages = []
for line in lines:
    for flag in flags.FLAGS:
        flags.FLAGS[flag].unparse()
    message, sys.argv = "", [f"{name}.py", *line.split()]
    try:
        command_flags._parse(sys.argv)
        for settings in program.SETTINGS:
            command_flags.settings_from_flags(settings)
    except UserError as error:
        message = str(error)
    messages.append(message)
texts = [(f, help_text(settings, f)) for settings in program.SETTINGS for f in flags_of(settings)]
print(json.dumps({
    "flags": {name: [flag.default, flag.help] for name, flag in defined.items()},
    "own": [flag.name for flag in flags.FLAGS.get_key_flags_for_module(program.__name__)],
    "fields": {f.name: [None if f.default is REQUIRED else f.default, text] for f, text in texts},
    "required": [f.name for f, _ in texts if f.default is REQUIRED],
    "docstring": program.__doc__,
    "help": page.getvalue(),
    "status": status,
    "messages": messages,
}))
"""


@functools.cache
def read(program):
    """Returns a program's flags, fields of its settings, and messages for its published lines."""
    words = [sys.executable, "-c", READ_FLAGS, program, *published(program)]
    status, printed = forked_programs.run(words)
    assert status == 0, printed
    return json.loads(printed.splitlines()[-1])


@pytest.mark.parametrize("program", DEFAULTS)
def test_every_flag_of_the_original(program):
    found = {name: default for name, (default, _) in read(program)["flags"].items()}
    pairs = [pair.split("=") for pair in DEFAULTS[program].split()]
    expected = {name: ast.literal_eval(default) for name, default in pairs}
    assert {name: found.get(name, "missing") for name in expected} == expected
    assert "num_tpu_cores" in found or program == "create_pretraining_data"
    assert "use_one_hot_embeddings" in found or program != "extract_features"


@pytest.mark.parametrize("program", PROGRAMS)
def test_flags_have_the_defaults_and_help_texts_of_the_settings(program):
    found = read(program)
    assert sorted(found["own"]) == sorted(found["fields"])
    for name, (default, text) in found["fields"].items():
        flag_default, flag_text = found["flags"][name]
        assert (flag_default, flag_text.split(">: ")[-1]) == (default, text), name
    assert set(read(program)["required"]) == set(REQUIRED[program].split())


@pytest.mark.parametrize("program", PROGRAMS)
def test_help(program):
    found = read(program)
    assert found["status"] == 0
    docstring, page = found["docstring"].strip(), found["help"]
    assert page.startswith(docstring + "\n\n")
    # Lines of commands stay as they are. Since Python 3.13 a docstring without any other lines
    # after its first has lost their indentation.
    assert re.search(rf"^ *python {program}\.py --", docstring, re.MULTILINE)
    flags = page.removeprefix(docstring)
    headings = re.findall(r"^([A-Z].*):\n\n  --", flags, re.MULTILINE)
    assert headings == [str(group) for group in Group if str(group) in headings]
    lines = dict(re.findall(r"^  --(?:\[no\])?(\w+)(.*)\n      \S", flags, re.MULTILINE))
    assert sorted(lines) == sorted(found["fields"])
    for name, (default, _) in found["fields"].items():
        line = lines[name]
        assert line.endswith("(required)") == (name in REQUIRED[program].split())
        if isinstance(default, bool):
            assert line == f" (default: {str(default).lower()})" and f"  --[no]{name}" in flags
        elif default not in (None, "", []):
            assert line.endswith(f" (default: {default})"), name
    assert max(map(len, flags.splitlines())) <= 100


BASE = """--vocab_file=$B/vocab.txt --bert_config_file=$B/bert_config.json
    --init_checkpoint=$B/bert_model.ckpt"""
SQUAD = f"""{BASE} --do_train=True --train_file=$S/train.json --do_predict=True
    --predict_file=$S/dev.json --train_batch_size=24 --learning_rate=3e-5 --num_train_epochs=2.0
    --max_seq_length=384 --doc_stride=128"""
NO_TPU = "--use_tpu=False --tpu_name= --master= --num_tpu_cores=8"
# Command lines of the original's README, and of scripts that give every default of the original.
PUBLISHED = {
    "train MRPC": f"""run_classifier {BASE} --task_name=MRPC --do_train=true --do_eval=true
        --data_dir=$G/MRPC --max_seq_length=128 --train_batch_size=32 --learning_rate=2e-5
        --num_train_epochs=3.0 --output_dir=o""",
    "predict MRPC": f"""run_classifier {BASE} --task_name=MRPC --do_predict=true --data_dir=$G/MRPC
        --max_seq_length=128 --output_dir=o""",
    "SQuAD 1.1": f"run_squad {SQUAD} --output_dir=o",
    "SQuAD 2.0 on a TPU": f"""run_squad {SQUAD} --output_dir=gs://b/o --use_tpu=True
        --tpu_name=$TPU_NAME --version_2_with_negative=True""",
    "SQuAD 2.0 with a threshold": f"""run_squad {SQUAD} --do_train=False --output_dir=gs://b/o
        --use_tpu=True --tpu_name=$TPU_NAME --version_2_with_negative=True
        --null_score_diff_threshold=-1.97""",
    "records": """create_pretraining_data --input_file=./sample_text.txt --output_file=o.tfrecord
        --vocab_file=$B/vocab.txt --do_lower_case=True --max_seq_length=128
        --max_predictions_per_seq=20 --masked_lm_prob=0.15 --random_seed=12345 --dupe_factor=5""",
    "pre-training": """run_pretraining --input_file=o.tfrecord --output_dir=o --do_train=True
        --do_eval=True --bert_config_file=$B/bert_config.json --init_checkpoint=$B/bert_model.ckpt
        --train_batch_size=32 --max_seq_length=128 --max_predictions_per_seq=20
        --num_train_steps=20 --num_warmup_steps=10 --learning_rate=2e-5""",
    "features": f"""extract_features {BASE} --input_file=i --output_file=o --layers=-1,-2,-3,-4
        --max_seq_length=128 --batch_size=8""",
    "defaults of SQuAD": f"""run_squad {SQUAD} --output_dir=o {NO_TPU}
        --version_2_with_negative=False --null_score_diff_threshold=0.0 --verbose_logging=False
        --warmup_proportion=0.1 --save_checkpoints_steps=1000 --iterations_per_loop=1000""",
    "defaults of pre-training": f"""run_pretraining --input_file=i --output_dir=o
        --bert_config_file=c --do_eval=False --eval_batch_size=8 --max_eval_steps=100
        --init_checkpoint= {NO_TPU}""",
}

# What the original ignores: flags beside a command line, and part of the message.
IGNORED = {
    "--null_score_diff_threshold=1": ("SQuAD 1.1", "needs --version_2_with_negative"),
    "--tpu_name=t": ("train MRPC", "--tpu_name=t needs --use_tpu"),
    "--master=grpc://a:8470": ("pre-training", "needs --use_tpu"),
}


def published(program):
    """Returns the command lines for a program, without its name, and what the messages have."""
    lines = {line: None for line in PUBLISHED.values()}
    lines |= {f"{PUBLISHED[name]} {more}": part for more, (name, part) in IGNORED.items()}
    return {x.split(maxsplit=1)[1]: y for x, y in lines.items() if x.split()[0] == program}


@pytest.mark.parametrize("program", DEFAULTS)
def test_command_lines_for_the_original_are_accepted(program):
    lines = published(program)
    assert lines
    for (line, part), message in zip(lines.items(), read(program)["messages"], strict=True):
        assert part in message if part else message == "", line
