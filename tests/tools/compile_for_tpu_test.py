"""Tests of tools.compile_for_tpu and tools.tpu.compiler; tpu/report_test.py has the report.

Tests marked tpu_compiler need the extra `compile`; .ci/run gives them their own environment, where
a missing package is a failure.
"""

import dataclasses
import functools
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bert_tf.errors import UserError
from bert_tf.model.family import config_from_dict
from bert_tf.optimization import AdamOptions
from bert_tf.tasks.matrix_products import training_flops
from bert_tf.tasks.pretraining.training.settings import RecordBatches
from tests.support.pretraining_runs import run
from tests.support.refusals import refusal, refuses
from tests.tools.tpu.cycles_test import cycles_in, in_loop
from tools import compile_for_tpu
from tools.tpu import compiler, cycles, lowering, report

ROOT = Path(__file__).parents[2]

ONE_LAYER = {"vocab_size": 1000, "hidden_size": 64, "num_hidden_layers": 1}
ONE_LAYER |= {"num_attention_heads": 2, "intermediate_size": 192}
ONE_LAYER |= {"max_position_embeddings": 40, "type_vocab_size": 3}
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
    return report.read_program(step.program.module).products


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
    products = lowered(objective="mlm", optimizer="lamb", dtype="float32")
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


def test_a_teacher_that_does_not_fit():
    for sizes, message in (
        ({"vocab_size": 999}, "is 1000, and of the teacher (--teacher_config_file) 999. Choose an"),
        ({"hidden_size": 32}, "The loss compares vectors, which must have the same size"),
    ):
        teacher = config_from_dict({**ONE_LAYER, **sizes})
        run = dataclasses.replace(make_run(objective="mlm"), teacher=teacher)
        assert message in refusal(lowering.lower, run, PHASE, [None])


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
    products = lowered(objective="mlm", optimizer="lamb", dtype="float32")
    names = report.float32_products(products)
    assert len(names) == len(products) > 30
    assert any("layer_0" in name and "query" in name for name in names)


def test_largest_batch_counts_replicas_and_parts(monkeypatch, capsys):
    for limit, start in itertools.product([0, 7, 8, 100, 101, 640, 5000], [1, 64, 100]):
        asked = []

        def fits(batch_size, asked=asked, limit=limit):
            asked.append(batch_size)
            return batch_size <= limit

        largest = compile_for_tpu.largest_batch(fits, start, 8)
        assert limit - max(8, limit / 16) < largest <= limit
        assert largest == max([size for size in asked if size <= limit], default=0)
        assert len(set(asked)) == len(asked) < 16 and all(size and size % 8 == 0 for size in asked)
    monkeypatch.setattr(compile_for_tpu, "try_phase", lambda run, phase, _: phase.batch_size <= 100)
    assert compile_for_tpu.search_phase(make_run(4, 2), PHASE, None)
    assert capsys.readouterr().out == "largest batch of length 32: 384, 96 a replica\n\n"
    monkeypatch.setattr(compile_for_tpu, "try_phase", lambda *_: False)
    assert not compile_for_tpu.search_phase(make_run(4, 2), PHASE, None)


def test_without_the_compiler_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "libtpu", None)
    with pytest.raises(UserError, match=r'libtpu is not installed.*pip install -e "\.\[compile\]"'):
        compiler.open_topology("v5e:1x1")


def test_shapes_that_no_slice_has(monkeypatch):
    monkeypatch.setattr(compiler.importlib, "import_module", lambda name: None)
    monkeypatch.setattr(compiler, "describe_no_tpu", lambda: None)
    for name in ("v5e:0x0", "v4:2x0x1", "v5e:-2x-2", "v6e:1024x1024", "v3:2xx2", "v5e"):
        message = f"^--topology must be GENER.*; received '{name}' "
        refuses(message, compiler.open_topology, name)


# The tests below use the TPU compiler.


@functools.cache
def compiled(name="v5e:2x2", replicas=4, **options):
    """Returns the work of the step of `make_run` on a slice's first devices, and it compiled.

    Compiling takes up to a minute.
    """
    devices = compiler.open_topology(name).devices[:replicas]
    step = lowering.lower(make_run(replicas, **options), PHASE, devices)
    return report.read_program(step.program.module), compiler.compile_step(step.lower())


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
    # The compiler is one program: one generation shows what several devices do to its text.
    for replicas in (1, devices) if name == "v5e:2x2" else (1,):
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
        found = cycles.read_instructions(executable.text)
        kinds = cycles.sum_by("kind", found)
        assert set(kinds) == set(cycles.KINDS)
        assert sum(kinds.values()) == cycles_in(executable.text)
        assert sum(kinds.values()) / topology.device.clock > flops / topology.device.flops
        # If the compiler estimates all-reduces one day, the report counts them twice.
        assert not re.search(r" all-reduce.*estimated_cycles", executable.text)


@pytest.mark.tpu_compiler
@pytest.mark.parametrize(
    ("name", "devices", "hosts"),
    [("v5e:2x4", 8, 1), ("v6e:4x8", 32, 8), ("v4:2x2x4", 16, 4), ("tpu7x:2x2x2", 16, 2)],
)
def test_hosts_of_a_slice(name, devices, hosts):
    found = compiler.open_topology(name).devices
    assert (len(found), len({device.process_index for device in found})) == (devices, hosts)


@pytest.mark.tpu_compiler
@pytest.mark.parametrize(
    "name", ["v2:2x2", "v3:2x2", "v4:2x2x1", "v5e:1x1", "v5p:2x2x1", "v6e:1x1", "tpu7x:2x2x1"]
)
def test_a_large_product_takes_a_little_longer_than_at_the_peak(name):
    """So the clocks are right: 1.02 (v2) to 1.42 times (v6e) with libtpu 0.0.42.1."""
    topology = compiler.open_topology(name)
    jax = pytest.importorskip("jax")
    sharding = jax.sharding.SingleDeviceSharding(topology.devices[0])
    matrix = jax.ShapeDtypeStruct((8192, 8192), "bfloat16", sharding=sharding)
    product = compiler.compile_step(jax.jit(jax.numpy.dot).lower(matrix, matrix))
    seconds = cycles_in(product.text) / topology.device.clock
    assert 1 < seconds / (2 * 8192**3 / topology.device.flops) < 1.5


@pytest.mark.tpu_compiler
def test_how_gradients_are_reduced():
    work, executable = compiled(accumulation_steps=4)
    assert any(product.in_loop for product in work.products)
    assert work.reduced > 4 * 118_000 and work.reduced_in_loops == 0
    assert executable.hbm > 0
    found = sum(x.cycles for x in cycles.read_instructions(executable.text))
    assert found == cycles_in(executable.text) + 3 * in_loop(executable.text)
    assert in_loop(executable.text) > cycles_in(executable.text) / 3
    # The other reduction of gradients.
    local, mean = compiled(), compiled(reduction="global_mean_clip")
    assert local[0].reduced > 4 * 118_000 and mean[0].reduced > 4 * 118_000
    assert local[1].code != mean[1].code
    # LAMB takes no more memory and no more reductions.
    (adamw_work, adamw), (lamb_work, lamb) = compiled(), compiled(optimizer="lamb")
    assert lamb.arguments == adamw.arguments and lamb.aliased == adamw.aliased
    assert lamb_work.reduced == adamw_work.reduced


@pytest.mark.tpu_compiler
def test_recomputing_activations_takes_less_memory():
    """A small batch: for one far too large the compiler looks for memory for many minutes."""
    topology = compiler.open_topology("v5e:1x1")
    phase = RecordBatches(32, 1, 512, 1)
    needed = []
    for recompute in (False, True):
        options = {"recompute_activations": recompute, "use_one_hot_embeddings": False}
        run = make_run(sizes={"num_hidden_layers": 2}, **options)
        step = compiler.compile_step(lowering.lower(run, phase, topology.devices).lower())
        needed.append(step.temporaries)
    assert needed[1] < 0.7 * needed[0]


@pytest.mark.tpu_compiler
@pytest.mark.parametrize(
    ("name", "recompute"), [("v6e:1x1", True), ("tpu7x:2x2x1", False), ("tpu7x:2x2x1", True)]
)
def test_attention_compiles(name, recompute):
    """If it may fuse attention's products, libtpu 0.0.42.1 overflows its stack and crashes."""
    topology = compiler.open_topology(name)
    run = make_run(sizes={"max_position_embeddings": 128}, recompute_activations=recompute)
    step = lowering.lower(run, RecordBatches(128, 1, 8, 20), topology.devices)
    assert compiler.compile_step(step.lower()).hbm > 0


def test_an_objective_without_its_head_is_refused_before_the_compiler_is_needed(config_file):
    config_file.write_text(json.dumps({**ONE_LAYER, "model_type": "roberta"}))
    flags = ("--topology=v5e:2x4", f"--bert_config_file={config_file}")
    printed = run(*flags, program="tools.compile_for_tpu", status=1)
    assert "--objective=mlm_nsp needs a model with a head for pairs of sentences" in printed
    assert "Traceback" not in printed


# sum(range(...)) stands for the compiler: like it, it lets no handler of Python run.
COMPILING = """
import sys, types
from bert_tf.engine import interrupts
from tools import compile_for_tpu
interrupts.raise_on_sigterm()  # as run_program does
thing = lambda **values: types.SimpleNamespace(**values)
step = thing(program=thing(module=None), lower=lambda: None)
sys.modules["tools.tpu.lowering"] = thing(lower=lambda *_: step)
compile_for_tpu.read_program = lambda module: None
compile_for_tpu.compiler.compile_step = lambda step: sum(range(10**13))
phase = thing(max_seq_length=32, max_predictions_per_seq=5, batch_size=8)
compile_for_tpu.try_phase(thing(accumulation_steps=1, replicas=1), phase, thing(devices=[None]))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_tool_within_the_compiler(number):
    words = [sys.executable, "-c", COMPILING]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline().startswith("length 32")
            time.sleep(1)  # now it compiles
            process.send_signal(number)
            assert process.wait(10) == -number
        finally:
            process.kill()


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
    assert re.search(
        r"\n  by cycles a step takes .* ms: .* at 1\.5 GHz, .* for all-reduces at", first
    )
    assert second.startswith("16, 16 predictions, batch 1048576: 524288 a replica\n")
    assert re.search(r"\n  does not fit: Ran out of memory .*\(15\.75G\)\n", second)


@pytest.mark.tpu_compiler
def test_what_there_is_not_is_refused(config_file):
    message = "v6e:2x4 or tpu7x:2x2x1; received 'v9:2x2'"
    assert message in refusal(compiler.open_topology, "v9:2x2")
    flags = (f"--bert_config_file={config_file}", "--topology=v5e:1x1", "--num_tpu_cores=4")
    status, output, messages = run_tool(*flags)
    assert status == 1 and output == "" and "Traceback" not in messages
    message = "--num_tpu_cores (4) must be at most the number of devices in --topology=v5e:1x1 (1)"
    assert message in messages
