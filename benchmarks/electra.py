"""Pre-trains tiny models as ELECTRA and as masked LM with equal FLOPs, and fine-tunes both.

    python -m benchmarks.electra GLUE_DIR OUTPUT_DIR

The text and the model's size are the quickstart's; GLUE_DIR has the folders MRPC and STS-B. The
records, masks, batches, learning rate and schedule are the same. The masked LM has more steps, as
its step takes fewer FLOPs. Only matrix products count, forward and backward
(bert_tf/tasks/matrix_products.py). Each model is fine-tuned with the same settings, and so is one
that starts from random weights. Started again, the benchmark goes on with the missing runs.
"""

import argparse
import collections
import itertools
import statistics
from pathlib import Path

from benchmarks.new_words import run
from bert_tf.files.whole_files import write_whole
from bert_tf.model.family import ElectraConfig
from bert_tf.runs.folder.reporting import read_results
from bert_tf.tasks.matrix_products import training_flops
from bert_tf.tasks.pretraining.schema import ELECTRA
from bert_tf.tasks.pretraining.training.electra_settings import (
    ElectraSettings,
    number_of_predictions,
)
from bert_tf.tasks.pretraining.training.settings import RecordBatches

TEXT = "flags/quickstart"
LENGTH, BATCH = 64, 32
# Task -> figures on its dev set, by which the models are compared.
TASKS = {"MRPC": ("eval_accuracy", "eval_f1"), "STS-B": ("eval_pearson", "eval_spearman")}
WAYS = {"electra": True, "masked_lm": False}  # -> --electra_objective


def make_files(folder: Path) -> ElectraConfig:
    """Writes vocabulary, records and configuration; returns the configuration."""
    vocab = {"vocab_file": folder / "vocab.txt"}
    if not vocab["vocab_file"].exists():
        files = {"input_file": f"{TEXT}/corpus.txt", "output_file": vocab["vocab_file"]}
        run("tools.build_vocabulary", **files, vocab_size=1000)
    for name in ("corpus", "heldout"):
        files = {"input_file": f"{TEXT}/{name}.txt", "output_file": folder / f"{name}.tfrecord"}
        if not files["output_file"].exists():
            run(
                "create_pretraining_data.py",
                **files,
                **vocab,
                objective=ELECTRA,
                max_seq_length=LENGTH,
            )
    text = Path(f"{TEXT}/bert_config.json").read_text().replace("{", '{"model_type": "electra",')
    write_whole(str(folder / "bert_config.json"), text)
    return ElectraConfig.from_json_file(str(folder / "bert_config.json"))


def step_flops(config: ElectraConfig, electra_objective: bool) -> int:
    """Returns the FLOPs of a training step's matrix products, forward and backward."""
    predictions = number_of_predictions(ElectraSettings.mask_prob, LENGTH)
    phase = RecordBatches(LENGTH, 1, BATCH, predictions)
    changes = {"electra_objective": electra_objective}
    return training_flops(config, phase, objective=ELECTRA, electra=changes)


def results_of(output_dir: Path, program: str, **flags: object) -> dict[str, float]:
    """Runs a program, unless it ran already; returns the results of its evaluation."""
    file = output_dir / "eval_results.txt"
    if not file.exists():
        common = {"bert_config_file": output_dir.parent / "bert_config.json"}
        common |= {"vocab_file": output_dir.parent / "vocab.txt", "output_dir": output_dir}
        run(program, **common, do_train=True, do_eval=True, **flags)
    return read_results(str(file))


def main(arguments: argparse.Namespace) -> None:
    folder = arguments.output_dir.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    config = make_files(folder)
    flops = {way: step_flops(config, electra) for way, electra in WAYS.items()}
    steps = {way: round(arguments.steps * flops["electra"] / x) for way, x in flops.items()}
    for way in WAYS:
        print(f"{way}: {flops[way] / 1e9:.3f} GFLOP a step, {steps[way]} steps", flush=True)
    starts: dict[tuple[str, int], dict] = {("random weights", x): {} for x in arguments.seeds}
    for way, seed in itertools.product(WAYS, arguments.seeds):
        starts[way, seed] = {"init_checkpoint": folder / f"{way}_{seed}"}
        results = results_of(
            *(folder / f"{way}_{seed}", "run_pretraining.py"),
            **{"objective": ELECTRA, "electra_objective": WAYS[way], "max_seq_length": LENGTH},
            **{"input_file": folder / "corpus.tfrecord", "max_eval_steps": 0},
            **{"eval_input_file": folder / "heldout.tfrecord", "train_batch_size": BATCH},
            **{"num_train_steps": steps[way], "num_warmup_steps": steps[way] // 10},
            **{"learning_rate": arguments.learning_rate, "random_seed": seed},
        )
        print(f"{way}, seed {seed}, held out: {results}", flush=True)
    for task, names in TASKS.items():
        found: dict[tuple[str, str], list[float]] = collections.defaultdict(list)
        for (way, seed), start in starts.items():
            results = results_of(
                *(folder / f"{task}_{way.replace(' ', '_')}_{seed}", "run_classifier.py"),
                **{"task_name": task, "data_dir": arguments.glue_dir / task, "random_seed": seed},
                **{"max_seq_length": 128, "learning_rate": arguments.fine_tuning_rate, **start},
            )
            for name in names:
                found[way, name].append(results[name])
        for (way, name), values in found.items():
            each = ", ".join(f"{x:.4f}" for x in values)
            print(f"{task}, {name}, {way}: {each}; mean {statistics.mean(values):.4f}", flush=True)


if __name__ == "__main__":
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("glue_dir", type=Path)
    parser.add_argument("output_dir", type=Path)
    parser.add_argument("--steps", type=int, default=1143, help="of ELECTRA")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--learning_rate", type=float, default=1e-3)
    parser.add_argument("--fine_tuning_rate", type=float, default=5e-4)
    main(parser.parse_args())
