"""Tests of tools.compile_for_tpu, tools.tpu.compiler and tools.tpu.report.

Tests marked tpu_compiler need the extra `compile`; .ci/run gives them their own environment, where
a missing package is a failure.
"""

import dataclasses
import functools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bert_tf.errors import UserError
from bert_tf.model.family import config_from_dict
from bert_tf.optimization import AdamOptions
from bert_tf.tasks.pretraining.training.phases import RecordBatches
from tests.support.pretraining_runs import run
from tools import compile_for_tpu
from tools.tpu import compiler, lowering, report, stablehlo
from tools.tpu.matrix_products import training_flops

ROOT = Path(__file__).parents[2]

ONE_LAYER = {
    "vocab_size": 1000,
    "hidden_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 192,
    "max_position_embeddings": 40,
    "type_vocab_size": 3,
}
PHASE = RecordBatches(32, 1, 8, 5)


def make_run(
    replicas=1,
    accumulation_steps=1,
    reduction="local_clip_sum",
    sizes=None,
    objective="mlm_nsp",
    optimizer="adamw",
    **options,
):
    """Returns a run of a 1-layer model with a TPU's defaults."""
    defaults = {"use_one_hot_embeddings": True, "recompute_activations": False}
    options = {**defaults, "dtype": "bfloat16", **options}
    config = config_from_dict({**ONE_LAYER, **(sizes or {})})
    corrected = optimizer == "lamb"  # compiles all of LAMB
    adam = AdamOptions(optimizer, lamb_bias_correction=corrected)
    return report.Run(config, options, replicas, accumulation_steps, reduction, objective, adam)


def products_of(run):
    """Returns the matrix products of a run's step; its replicas share a device, as nothing runs."""
    jax = pytest.importorskip("jax")
    if jax.config.jax_num_cpu_devices != 1:  # as other tests of this process set it
        jax.config.update("jax_num_cpu_devices", 1)
    step = lowering.lower(run, PHASE, jax.devices("cpu")[:1] * run.replicas)
    return stablehlo.read_program(step.program.module).products


@functools.cache
def lowered(replicas=1, accumulation_steps=1, reduction="local_clip_sum", **options):
    """Returns the products of `make_run` with these arguments. Lowering takes seconds."""
    return products_of(make_run(replicas, accumulation_steps, reduction, **options))


def lookup_flops(run, phase):
    """Returns the operations of looking up embeddings by products, and of their gradients."""
    rows = run.config.type_vocab_size  # always one-hot
    if run.options["use_one_hot_embeddings"]:
        rows += run.config.vocab_size
    return 2 * 2 * phase.batch_size * phase.max_seq_length * rows * run.config.embedding_width


@pytest.mark.parametrize(
    ("one_hot", "accumulation_steps"),
    [
        *((True, 1), (False, 4)),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in ((True, 4), (False, 1))),
    ],
)
def test_the_products_of_the_step_are_those_on_paper(one_hot, accumulation_steps):
    run = make_run(2, accumulation_steps, use_one_hot_embeddings=one_hot)
    products = lowered(2, accumulation_steps, use_one_hot_embeddings=one_hot)
    expected = training_flops(run.config, PHASE) + lookup_flops(run, PHASE)
    assert report.program_flops(products, accumulation_steps) == expected


@pytest.mark.slow
def test_albert_computes_each_layer_though_their_weights_are_shared():
    sizes = {"embedding_size": 24, "num_hidden_groups": 1, "num_hidden_layers": 3}
    run = make_run(sizes=sizes, objective="mlm_sop", optimizer="lamb")
    products = products_of(run)
    on_paper = training_flops(run.config, PHASE)
    assert report.program_flops(products, 1) == on_paper + lookup_flops(run, PHASE)


def test_masked_lm_alone_trains_neither_pooler_nor_next_sentences():
    products = lowered(objective="mlm", optimizer="lamb")
    run = make_run(objective="mlm")
    on_paper = training_flops(run.config, PHASE, objective="mlm")
    # Their forward products are in the program, but unused: the compiler drops them.
    unused = (training_flops(run.config, PHASE) - on_paper) / 3
    lookups = lookup_flops(run, PHASE)
    assert report.program_flops(products, 1) == on_paper + lookups + unused > on_paper + lookups


@pytest.mark.slow
@pytest.mark.parametrize("share, accumulation_steps", [(0.5, 1), (1.0, 2)])
def test_electra_s_step_has_the_products_of_both_models(share, accumulation_steps):
    sizes = {"model_type": "electra", "embedding_size": 24}
    run = make_run(2, accumulation_steps, sizes=sizes, objective="electra")
    run = dataclasses.replace(run, electra={"generator_hidden_size": share})
    products = products_of(run)
    found = report.program_flops(products, accumulation_steps) - 2 * lookup_flops(run, PHASE)
    assert found == report.model_flops(run, PHASE)


@pytest.mark.slow
@pytest.mark.parametrize("restrict", [False, True])
def test_a_teacher_adds_its_forward_pass(restrict):
    sizes = {**ONE_LAYER, "num_hidden_layers": 3, "intermediate_size": 200}
    teacher = config_from_dict(sizes)
    run = make_run(2, objective="mlm")
    run = dataclasses.replace(run, teacher=teacher, restrict_ce_to_mask=restrict)
    products = products_of(run)
    of_teacher = lookup_flops(dataclasses.replace(run, config=teacher), PHASE) / 2
    # Nothing uses the poolers: the compiler drops them.
    poolers = 2 * PHASE.batch_size * sum(c.hidden_size**2 for c in (run.config, teacher))
    found = report.program_flops(products, 1) - lookup_flops(run, PHASE) - of_teacher - poolers
    assert found == report.model_flops(run, PHASE)
    on_paper = training_flops(run.config, PHASE, objective="mlm")
    assert found > on_paper if restrict else found > 2 * on_paper


@pytest.mark.parametrize(
    "sizes,message",
    [
        (
            {"vocab_size": 999},
            "vocab_size of --bert_config_file is 1000, and of the teacher (--teacher_config_file)"
            " 999. Choose another teacher",
        ),
        ({"type_vocab_size": 2}, "The teacher must know the segments of the student's records"),
        ({"max_position_embeddings": 31}, "Sequences must not be longer than the teacher can read"),
        ({"hidden_size": 32}, "The cosine loss needs vectors of one size"),
    ],
    ids=str,
)
def test_a_teacher_that_does_not_fit(sizes, message):
    teacher = config_from_dict({**ONE_LAYER, **sizes})
    run = dataclasses.replace(make_run(objective="mlm"), teacher=teacher)
    with pytest.raises(UserError) as error:
        lowering.lower(run, PHASE, [None])
    assert message in str(error.value)


@pytest.mark.slow
def test_a_packed_step_has_few_more_products():
    """For more masked positions, a pooled vector for each place, and looking up positions."""
    places, more_predictions = 5, 2
    run = dataclasses.replace(make_run(2), max_sequences_per_pack=places)
    packed, plain = products_of(run), lowered(2)
    more = report.program_flops(packed, 1) - report.program_flops(plain, 1)
    hidden, vocab = run.config.hidden_size, run.config.vocab_size
    rows, length = PHASE.batch_size, PHASE.max_seq_length
    assert more == 3 * 2 * rows * more_predictions * hidden * (hidden + vocab) + (
        3 * 2 * rows * (places - 1) * hidden * (hidden + 2)
        + 2 * 2 * rows * length * length * hidden
    )


@pytest.mark.slow
def test_recomputed_layers_count_as_operations_but_not_as_the_models():
    two_layers = {"num_hidden_layers": 2}
    plain = make_run(sizes=two_layers)
    recomputed = make_run(sizes=two_layers, recompute_activations=True)
    layers_forward = training_flops(plain.config, PHASE) - training_flops(make_run().config, PHASE)
    layer_forward = layers_forward // 3
    steps = [products_of(run) for run in (recomputed, plain)]
    more = report.program_flops(steps[0], 1) - report.program_flops(steps[1], 1)
    # The last product of a layer is not needed for the layer's own gradient.
    assert 1.5 * layer_forward < more <= 2 * layer_forward


def test_bfloat16_leaves_no_float32_product_and_float32_leaves_nothing_else():
    products = lowered(2, 1, use_one_hot_embeddings=True)
    assert report.float32_products(products) == []
    products = lowered(dtype="float32")
    names = report.float32_products(products)
    assert len(names) == len(products) > 30
    assert any("layer_0" in name and "query" in name for name in names)


EXECUTABLE = compiler.Executable(
    arguments=2 * 2**30,
    outputs=2**30,
    aliased=2**30,
    temporaries=3 * 2**30,
    code=2**29,
    flops=5e12,
)


def test_report_and_bound():
    run = make_run(4, 2)
    products = [
        stablehlo.MatrixProduct("a", ("bf16", "bf16"), 10**12, in_loop=False),
        stablehlo.MatrixProduct("b", ("bf16", "f32"), 2 * 10**12, in_loop=True),
    ]
    work = stablehlo.Work(products, reduced=4_800_000)
    device = compiler.Chip(flops=100e12, bandwidth=1e12, links=1e9, memory=8.0)
    lines = report.report(run, PHASE, work, EXECUTABLE, device)
    on_paper = training_flops(run.config, PHASE)
    assert lines == [
        "fits: 5.50 of 8.00 GiB a replica (arguments 2.000, temporaries 3.000, code 0.500)",
        f"TFLOP a replica: 5 in matrix products, of which the model's {on_paper / 1e12:.4g}; 5 of"
        " every kind, counting loops once",
        "float32 matrix products: 1 (b)",
        "all-reduces: 4.8 MB; 0 MB in loops",
        # Of 4 replicas each sends 3/4 of the 4.8 MB, twice.
        "a step takes at least 50 ms: 50 for matrix products, 3.22 to read arguments and write"
        " outputs, 7.2 for all-reduces",
        f"at most 640 sequences/s, {on_paper / 5e12:.1%} MFU",
    ]
    slow_memory = dataclasses.replace(device, bandwidth=10e9)
    lines = report.report(run, PHASE, work, EXECUTABLE, slow_memory)
    assert lines[4].startswith("a step takes at least 322 ms: 50 for matrix products, 322 to read")
    slow_links = dataclasses.replace(device, links=0.1e9)
    lines = report.report(run, PHASE, work, EXECUTABLE, slow_links)
    assert lines[4].startswith("a step takes at least 72 ms: 50 for matrix products, 3.22 to read")
    assert lines[5] == f"at most 444 sequences/s, {on_paper / 7.2e12:.1%} MFU"


@pytest.mark.parametrize("limit", [0, 7, 8, 100, 101, 640, 5000])
@pytest.mark.parametrize("start", [1, 64, 100])
def test_largest_batch(limit, start):
    asked = []

    def fits(batch_size):
        asked.append(batch_size)
        return batch_size <= limit

    largest = compile_for_tpu.largest_batch(fits, start, 8)
    assert limit - max(8, limit / 16) < largest <= limit
    assert largest == max([size for size in asked if size <= limit], default=0)
    assert len(set(asked)) == len(asked) < 16 and all(size and size % 8 == 0 for size in asked)


def test_the_search_counts_replicas_and_parts(monkeypatch, capsys):
    monkeypatch.setattr(compile_for_tpu, "try_phase", lambda run, phase, _: phase.batch_size <= 100)
    assert compile_for_tpu.search_phase(make_run(4, 2), PHASE, None)
    assert capsys.readouterr().out == "largest batch of length 32: 384, 96 a replica\n\n"
    monkeypatch.setattr(compile_for_tpu, "try_phase", lambda *_: False)
    assert not compile_for_tpu.search_phase(make_run(4, 2), PHASE, None)


def test_a_batch_that_cannot_be_divided_is_refused():
    phase = RecordBatches(32, 1, 48, 5)
    assert compile_for_tpu.divide(phase, 8, 2) == dataclasses.replace(phase, batch_size=6)
    rule = r"\(48\) must be a multiple of the number of replicas \(8, see --num_tpu_cores\) times"
    with pytest.raises(UserError, match=rule + r" --gradient_accumulation_steps \(4\)"):
        compile_for_tpu.divide(phase, 8, 4)


def test_without_the_compiler_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "libtpu", None)
    with pytest.raises(UserError, match=r'libtpu is not installed.*pip install -e "\.\[compile\]"'):
        compiler.open_topology("v5e:1x1")


@pytest.mark.parametrize(
    "name", ["v5e:0x0", "v4:2x0x1", "v5e:-2x-2", "v6e:1024x1024", "v3:2xx2", "v5e"]
)
def test_shapes_that_no_slice_has(name, monkeypatch):
    monkeypatch.setattr(compiler.importlib, "import_module", lambda name: None)
    monkeypatch.setattr(compiler, "describe_no_tpu", lambda: None)
    with pytest.raises(UserError, match=f"^--topology must be GENER.*; received '{name}' "):
        compiler.open_topology(name)


# The tests below use the TPU compiler.


def compiled(name="v5e:2x2", replicas=4, **options):
    """Returns the work of the step of `make_run` on a slice's first devices, and it compiled."""
    devices = compiler.open_topology(name).devices[:replicas]
    step = lowering.lower(make_run(replicas, **options), PHASE, devices)
    return stablehlo.read_program(step.program.module), compiler.compile_step(step.lower())


@pytest.mark.tpu_compiler
@pytest.mark.parametrize(
    "name, devices, memory",
    [
        *(("v2:2x2", 8, 7.48), ("v3:2x2", 8, 15.48), ("v4:2x2x1", 4, 30.5)),
        *(("v5e:2x2", 4, 15.75), ("v5p:2x2x1", 4, 95.73), ("v6e:2x2", 4, 31.24)),
    ],
)
def test_every_generation(name, devices, memory):
    topology = compiler.open_topology(name)
    assert len(topology.devices) == devices and topology.device.memory == memory
    for replicas in (1, devices):
        work, executable = compiled(name, replicas)
        # The float32 gradients, and a few numbers.
        assert work.reduced == 0 if replicas == 1 else 0 <= work.reduced - 4 * 118_000 < 4096
        assert work.reduced_in_loops == 0
        # Weights and both slots in float32, and a batch of 8, the only part that stays.
        assert 3 * 4 * 118_000 < executable.arguments < 2**22
        assert executable.aliased > 0.98 * executable.outputs
        assert executable.arguments < executable.hbm < memory * 2**30
        # The rest are element-wise operations, many in such a small model.
        flops = report.program_flops(work.products, 1)
        assert flops < executable.flops < 1.5 * flops


@pytest.mark.tpu_compiler
@pytest.mark.parametrize(
    ("name", "devices", "hosts"),
    [("v5e:2x4", 8, 1), ("v6e:4x8", 32, 8), ("v4:2x2x4", 16, 4), ("tpu7x:2x2x2", 16, 2)],
)
def test_hosts_of_a_slice(name, devices, hosts):
    found = compiler.open_topology(name).devices
    assert (len(found), len({device.process_index for device in found})) == (devices, hosts)


@pytest.mark.tpu_compiler
def test_accumulation_reduces_after_its_loop():
    work, executable = compiled(accumulation_steps=4)
    assert any(product.in_loop for product in work.products)
    assert work.reduced > 4 * 118_000 and work.reduced_in_loops == 0
    assert executable.hbm > 0


@pytest.mark.tpu_compiler
def test_the_other_reduction_of_gradients():
    local, mean = (compiled(reduction=name) for name in ("local_clip_sum", "global_mean_clip"))
    assert local[0].reduced > 4 * 118_000 and mean[0].reduced > 4 * 118_000
    assert local[1].code != mean[1].code


@pytest.mark.tpu_compiler
def test_lamb_takes_no_more_memory_and_no_more_reductions():
    (adamw_work, adamw), (lamb_work, lamb) = (compiled(optimizer=x) for x in ("adamw", "lamb"))
    assert lamb.arguments == adamw.arguments and lamb.aliased == adamw.aliased
    assert lamb_work.reduced == adamw_work.reduced


@pytest.mark.tpu_compiler
def test_recomputing_activations_takes_less_memory():
    """With a batch far too large the compiler soon says how much memory it would take."""
    topology = compiler.open_topology("v5e:1x1")
    phase = RecordBatches(32, 1, 2**18, 1)
    needed = []
    for recompute in (False, True):
        options = {"recompute_activations": recompute, "use_one_hot_embeddings": False}
        run = make_run(sizes={"num_hidden_layers": 4}, **options)
        with pytest.raises(compiler.DoesNotFit) as error:
            compiler.compile_step(lowering.lower(run, phase, topology.devices).lower())
        needed.append(float(re.search(r"\(([\d.]+)G\) exceeds", str(error.value)).group(1)))
    assert needed[1] < 0.7 * needed[0]  # a half or a third, depending on the compiler's version


def test_an_objective_without_its_head_is_refused_before_the_compiler_is_needed(config_file):
    config_file.write_text(json.dumps({**ONE_LAYER, "model_type": "roberta"}))
    flags = ("--topology=v5e:2x4", f"--bert_config_file={config_file}")
    printed = run(*flags, program="tools.compile_for_tpu", status=1)
    assert "--objective=mlm_nsp needs a model with a head for pairs of sentences" in printed
    assert "Traceback" not in printed


@pytest.fixture
def config_file(tmp_path):
    path = tmp_path / "bert_config.json"
    path.write_text(json.dumps(ONE_LAYER))
    return path


def run_tool(*arguments):
    """Returns the status, the output and the messages of the program."""
    words = [sys.executable, "-m", "tools.compile_for_tpu", *arguments]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.tpu_compiler
def test_each_phase_is_compiled_and_one_that_does_not_fit_is_said(config_file):
    status, output, messages = run_tool(
        *("--topology=v5e:2x4", f"--bert_config_file={config_file}", "--num_tpu_cores=2"),
        *("--phases=32:900:64:5,16:100:1048576:16", "--gradient_reduction=global_mean_clip"),
    )
    assert status == compile_for_tpu.STATUS_DOES_NOT_FIT, messages
    assert "v5e:2x4: 2 replicas on 8 devices of at most 197 TFLOP/s and 819 GB/s" in output
    first, second = output.split("length ")[1:]
    assert first.startswith("32, 5 predictions, batch 64: 32 a replica\n  fits: 0.")
    assert "float32 matrix products: 0\n" in first
    assert second.startswith("16, 16 predictions, batch 1048576: 524288 a replica\n")
    assert re.search(r"\n  does not fit: Ran out of memory .*\(15\.75G\)\n", second)


@pytest.mark.tpu_compiler
def test_what_there_is_not_is_refused(config_file):
    for arguments, message in (
        (["--topology=v5e"], "--topology must be GENERATION:SHAPE with the shape in chips, such"),
        (["--topology=v9:2x2"], "v6e:2x4 or tpu7x:2x2x1; received 'v9:2x2'"),
        (
            ["--topology=v5e:1x1", "--num_tpu_cores=4"],
            "--num_tpu_cores (4) must be at most the number of devices in --topology=v5e:1x1 (1)",
        ),
    ):
        status, output, messages = run_tool(f"--bert_config_file={config_file}", *arguments)
        assert status == 1 and output == ""
        assert message in messages and "Traceback" not in messages
