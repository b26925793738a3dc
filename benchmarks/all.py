r"""Runs the measurements of docs/measuring.md, and prints their figures in one table.

    python -m benchmarks.all --output_dir=output/benchmarks
    python -m benchmarks.all --output_dir=output/benchmarks --model=minilm --data_dir=glue \
        --torch_python=torch/bin/python --classifier=mrpc --full

Without further flags it measures what needs no files from elsewhere: making records, reading them,
and training steps. --model, a folder in Hugging Face's format, and --data_dir with MRPC and STS-B
add fine-tuning, answers and their operations. --classifier, a classifier of pairs trained on MRPC,
adds its exports. --torch_python also measures transformers. --full takes BERT-Base, and more steps
and texts, and adds the memory of training.

Each measurement is a benchmark in a process of its own, and what it prints goes to --output_dir.
Started again, it goes on with the measurements that are missing there.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from absl import flags, logging

from benchmarks import ROOT
from bert_tf.errors import UserError
from bert_tf.files import whole_files
from bert_tf.runs.flags import command_flags

FLAGS = flags.FLAGS
CPU_INFO = Path("/proc/cpuinfo")
EXTENSIONS = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_bf16", "amx_int8")


def processor() -> str:
    """Returns the name of the processor, and its extensions on which speed depends."""
    if not CPU_INFO.exists():
        return "unknown processor"
    text = CPU_INFO.read_text(errors="replace")
    name = re.search(r"^model name\s*: (.*)", text, re.MULTILINE)
    cores = len(re.findall(r"^processor\s*:", text, re.MULTILINE))
    words = text.split()
    extensions = ", ".join(x for x in EXTENSIONS if x in words)
    return f"{name[1] if name else 'unknown processor'}, {cores} cores ({extensions})"


def pretraining(measure: str, *words: str) -> list[str]:
    return ["benchmarks.pretraining", f"--measure={measure}", *words]


def measurements() -> Iterator[tuple[str, list[list[str]]]]:
    """Yields the name of each measurement, and the modules to run with their flags."""
    size = ["--bert_config_file=flags/quickstart/bert_config.json", "--max_seq_length=64"]
    size = [] if FLAGS.full else size
    steps = [f"--num_steps={20 if FLAGS.full else 5}", *size]
    yield "records", [pretraining("create_pretraining_data", "--dupe_factor=20")]
    yield "input pipeline", [pretraining("input_pipeline", "--train_batch_size=32")]
    yield "training step", [pretraining("training_step", *steps)]
    yield "float32 and bfloat16", [pretraining("dtypes", *steps)]
    peer = [f"--torch_python={FLAGS.torch_python}"] if FLAGS.torch_python else []
    if FLAGS.full:
        model = [f"--model={FLAGS.model}"] if FLAGS.model else []
        yield "memory", [["benchmarks.memory", *model, *peer]]
    if FLAGS.model:
        yield "fine-tuning", list(fine_tuning())
        yield "answers", list(answers(peer))
        text = f"--text_file={FLAGS.data_dir}/MRPC/dev.tsv"
        for dtype in ("float32", "bfloat16"):
            command = ["benchmarks.operations", f"--model={FLAGS.model}", text, f"--dtype={dtype}"]
            yield f"operations, {dtype}", [command]
    if FLAGS.classifier:
        yield "serving", [serving(peer)]


def fine_tuning() -> Iterator[list[str]]:
    folder = f"{FLAGS.output_dir}/model"
    yield ["tools.convert_checkpoint", f"--input={FLAGS.model}", f"--output_dir={folder}"]
    files = [f"--bert_config_file={folder}/bert_config.json", f"--vocab_file={folder}/vocab.txt"]
    task = ["--task_name=MRPC", f"--data_dir={FLAGS.data_dir}/MRPC"]
    steps = ["--num_steps=12" if FLAGS.full else "--num_steps=3"]
    yield ["benchmarks.fine_tuning", *task, *files, *steps]


def answers(peer: list[str]) -> Iterator[list[str]]:
    folder = f"{FLAGS.output_dir}/onnx"
    export = ["--head=encoder", "--format=onnx", f"--output={folder}"]
    yield ["tools.export", f"--input={FLAGS.model}", *export]
    words = [f"--model={FLAGS.model}", f"--data_dir={FLAGS.data_dir}", f"--onnx_export={folder}"]
    if FLAGS.classifier:
        words.append(f"--classifier={FLAGS.classifier}")
    words += [] if FLAGS.full else ["--num_texts=200", "--rounds=3"]
    yield ["benchmarks.answers", *words, *peer]


def serving(peer: list[str]) -> list[str]:
    words = [f"--classifier={FLAGS.classifier}", f"--data_dir={FLAGS.data_dir}/MRPC"]
    words += [f"--output_dir={FLAGS.output_dir}/exports", "" if FLAGS.full else "--rounds=3"]
    return ["benchmarks.serving", *filter(None, words), *peer]


def run(module: str, *words: str) -> str:
    """Runs a module in a process of its own; returns what it printed. The log stays visible."""
    logging.info("python -m %s %s", module, " ".join(words))
    command = [sys.executable, "-m", module, *words]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise UserError(f"python -m {module} {' '.join(words)} ended with an error, which is above")
    return done.stdout


def figures(text: str) -> Iterator[tuple[str, str]]:
    """Yields (what, figure) for each line `what: figure`, and for each row of a printed table."""
    header: list[str] = []
    heading = ""
    for line in text.splitlines():
        if line.startswith("|"):
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if not header:
                header = cells
            elif not line.startswith("|--"):
                pairs = zip(header[1:], cells[1:], strict=True)
                yield cells[0], "; ".join(f"{name} {cell}" for name, cell in pairs)
            continue
        header = []
        if line.endswith(":"):
            heading = line + " "
        elif ": " in line:
            what, _, figure = line.partition(": ")
            yield heading + what.strip(), figure


def main() -> None:
    # Benchmarks run in the checkout's folder.
    for name in ("output_dir", "model", "data_dir", "classifier", "torch_python"):
        if path := FLAGS[name].value:
            FLAGS[name].value = str(Path(path).absolute())
    if FLAGS.data_dir is None and (FLAGS.model or FLAGS.classifier):
        raise UserError("--model and --classifier need --data_dir, a folder with MRPC and STS-B")
    folder = Path(FLAGS.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for name, commands in measurements():
        path = folder / f"{name.replace(', ', '_').replace(' ', '_')}.txt"
        if not path.exists():
            printed = [run(*command) for command in commands]
            whole_files.write_whole(str(path), printed[-1])
        rows += [f"| {name} | {what} | {x} |" for what, x in figures(path.read_text())]
    print(processor())
    print("\n".join(["", "| Measurement | Of | Figure |", "|---|---|---|", *rows]))


if __name__ == "__main__":
    flags.DEFINE_string("output_dir", None, "Folder for what is printed.", required=True)
    flags.DEFINE_string("model", None, "A model in Hugging Face's format.")
    flags.DEFINE_string("data_dir", None, "Folder with GLUE's MRPC and STS-B.")
    flags.DEFINE_string("classifier", None, "Folder of a classifier trained on MRPC.")
    flags.DEFINE_string("torch_python", None, "Python with torch and transformers.")
    flags.DEFINE_bool("full", False, "BERT-Base, and more steps, texts and rounds.")
    command_flags.run_program(main)
