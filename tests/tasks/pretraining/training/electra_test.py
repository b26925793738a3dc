"""Tests of ELECTRA's pre-training: masks, samples, metrics by numpy, wrong input.

Parts of a batch and replicas: tests/engine/replicas_test.py; kills: runs/training/resume_test.py.
"""

import functools
import inspect

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import optimization
from bert_tf.engine import steps
from bert_tf.engine.evaluator import means
from bert_tf.errors import UserError
from bert_tf.files import checkpoints
from bert_tf.model.configuration import BertConfig
from bert_tf.model.family import ElectraConfig
from bert_tf.seeds import hash_numbers
from bert_tf.tasks.pretraining.training.dynamic_masking import ElectraMasking, write_at
from bert_tf.tasks.pretraining.training.electra import ElectraPretrainingModel
from bert_tf.tasks.pretraining.training.electra_settings import MODEL_ARGUMENTS, ElectraSettings
from bert_tf.tasks.pretraining.training.electra_settings import number_of_predictions as number
from bert_tf.tasks.pretraining.training.model import PretrainingModel
from bert_tf.tasks.pretraining.training.run import run_pretraining
from bert_tf.tasks.pretraining.training.settings import RecordBatches
from tests.engine.replicas_test import WithoutNoise
from tests.support.objectives import set_random_weights
from tests.support.pretraining_runs import CONFIG, make_records, variables
from tests.support.refusals import refuses
from tests.support.small_pretraining import SMALL, difference, tensors

CONFIGURATION = {**CONFIG, "embedding_size": 6, "num_hidden_layers": 2}
QUARTER = {"generator_hidden_size": 0.25}
OF_BERT = {**QUARTER, "vocab_file": None, "config": BertConfig.from_dict(CONFIG)}
MASKING = ElectraMasking(4, (4, 2, 3), 19, 0.15)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Records of length 16: ELECTRA's, masked pairs, and unmasked pairs."""
    folder = tmp_path_factory.mktemp("inputs")
    electra = {"objective": "electra"}
    make_records(folder, 16, 2, electra=electra, masked={}, unmasked={"mask": False})
    return folder


def pretrain(inputs, folder, records="electra", config=None, **changes):
    options = {
        "objective": "electra",
        "generator_hidden_size": 0.5,
        "vocab_file": f"{inputs}/vocab.txt",
        "do_train": True,
        "learning_rate": 1e-2,
        "num_warmup_steps": 2,
        "phases": [RecordBatches(16, 4, 8, 2)],
        "evaluation_batches": RecordBatches(16, 2, 8, 2),
    }
    settings = ElectraSettings(
        input_file=f"{inputs}/{records}.tfrecord", output_dir=str(folder), **{**options, **changes}
    )
    config = config or ElectraConfig.from_dict(CONFIGURATION)
    return run_pretraining(config, tf.distribute.get_strategy(), settings)


@pytest.mark.slow
def test_a_generator_that_a_checkpoint_lacks_starts_anew(inputs, tmp_path, caplog):
    results = pretrain(inputs, tmp_path / "whole", do_eval=True)
    names = {"disc_loss", "disc_auc", "disc_accuracy", "disc_precision", "disc_recall"}
    names |= {"masked_lm_loss", "masked_lm_accuracy", "sampled_masked_lm_accuracy", "loss"}
    assert results.keys() == {*names, "global_step"}
    found = variables(tmp_path / "whole")
    kept = {k: v for k, v in found.items() if not k.startswith("generator") and "adam" not in k}
    checkpoints.write(f"{tmp_path}/alone.ckpt", kept)
    start = {"init_checkpoint": f"{tmp_path}/alone.ckpt"}
    pretrain(inputs, tmp_path / "run", **start)
    assert "left at their initial values: \n  generator" in caplog.text
    message = "must have every weight that the outputs of"
    evaluation = {"do_train": False, "do_eval": True}
    refuses(message, pretrain, inputs, tmp_path / "evaluated", **start, **evaluation)


@pytest.mark.parametrize(
    "records, changes, message",
    [
        ("masked", {}, "are BERT's, and --objective=electra needs ELECTRA's, without masks"),
        ("unmasked", {}, "are BERT's, and --objective=electra needs ELECTRA's, without masks"),
        ("electra", {"vocab_file": None}, "--objective=electra needs --vocab_file or --init_ch"),
        ("electra", {"mask_prob": 0.05}, "leaves no prediction in sequences of 16 tokens"),
        ("electra", {"mask_prob": 0.4}, "here 6 of 16; --max_predictions_per_seq or --phases"),
        ("electra", {"generator_hidden_size": 1.5}, "makes a generator of hidden size 12; a gen"),
        ("electra", {"untied_generator": False}, "excludes --generator_hidden_size"),
        ("electra", {"uniform_generator": True}, "excludes --uniform_generator"),
        (
            *("electra", {"gen_weight": 0.0, "disc_weight": 0.0}),
            "--disc_weight or --gen_weight must be above 0: with 0 there is no loss to train with",
        ),
        (
            *("electra", {"uniform_generator": True, **QUARTER, "disc_weight": 0.0}),
            "--disc_weight must be above 0",
        ),
        (
            *("electra", {"electra_objective": False, **QUARTER, "gen_weight": 0.0}),
            "--gen_weight must be above 0",
        ),
        (
            *("electra", {"dynamic_masking": True, "masked_lm_prob": 0.3}),
            "--masked_lm_prob=0.3 excludes --objective=electra, since .* ELECTRA's follow --mask_p",
        ),
        (
            *("electra", {"dynamic_masking": True, "do_whole_word_mask": True}),
            "--do_whole_word_mask excludes --objective=electra, since .* single word pieces",
        ),
        ("electra", {"config": BertConfig.from_dict(CONFIG)}, "of kind BERT: --objective=electra"),
        ("electra", {"config": ElectraConfig(9)}, "vocab_size"),
        ("masked", {"objective": "mlm"}, "needs --objective=electra"),
        *(
            ("electra", {**OF_BERT, "objective": x}, "are ELECTRA's, without masks, and")
            for x in ("mlm", "mlm_nsp")
        ),
        (
            *("masked", {**OF_BERT, "objective": "mlm", "config": None}),
            "of kind ELECTRA: --objective=electra of run_pretraining",
        ),
    ],
)
def test_wrong_input_is_refused(inputs, tmp_path, records, changes, message):
    refuses(message.replace("(", r"\("), pretrain, inputs, tmp_path, records, **changes)


@pytest.mark.parametrize("flag", ["init_checkpoint", "output_dir"])
@pytest.mark.parametrize("objective, records", [("electra", "electra"), ("mlm", "unmasked")])
def test_another_vocabulary_than_the_checkpoint_s_is_refused(
    inputs, tmp_path, flag, objective, records
):
    words = (inputs / "vocab.txt").read_text().split()
    model = tmp_path / "model"
    model.mkdir()
    (model / "vocab.txt").write_text("\n".join([*words[:5], *words[:4:-1]]))
    checkpoints.write(f"{model}/model.ckpt-2", {"x": np.zeros(1, np.float32)})
    (model / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-2"\n')
    changes = {"objective": objective, "dynamic_masking": True}
    if objective != "electra":
        changes |= {**QUARTER, "config": OF_BERT["config"]}
    folders = {"init_checkpoint": (tmp_path / "new", {flag: str(model)}), "output_dir": (model, {})}
    folder, more = folders[flag]
    message = f"vocab.txt must have every token in the same line as the vocabulary of --{flag}: "
    refuses(message, pretrain, inputs, folder, records, **changes, **more)


@pytest.mark.parametrize("place", ["s3://bucket/model.ckpt-2", "hdfs://host/model"])
def test_a_file_system_that_nobody_knows_is_told_with_its_flag(inputs, tmp_path, place):
    changes = {"vocab_file": f"{inputs}/vocab.txt", "init_checkpoint": place}
    with pytest.raises(UserError, match=f"^--init_checkpoint={place}: this TensorFlow does not s"):
        pretrain(inputs, tmp_path, "electra", **changes)


def test_a_place_that_is_written_twice_gets_the_mean_and_the_first_none():
    ids = tf.constant([[9, 8, 7, 6], [5, 4, 3, 2]])
    values = tf.constant([[10, 13, 20], [1, 1, 30]])
    found, written = write_at(ids, values, tf.constant([[2, 2, 1], [0, 0, 3]]))
    np.testing.assert_array_equal(found, [[9, 20, 11, 6], [5, 4, 3, 30]])
    np.testing.assert_array_equal(written, [[0, 1, 1, 0], [0, 0, 0, 1]])


def test_masks_are_distributed_as_the_original_s():
    """The shares that 20,032 rows of the original's masks have."""
    rng = np.random.default_rng(1)
    rows, length = 4000, 128
    lengths = rng.integers(65, length + 1, rows)
    lengths[: rows // 2] = length
    mask = (np.arange(length) < lengths[:, None]).astype(np.int32)
    ids = rng.integers(5, 400, (rows, length)) * mask
    ids[:, 0], ids[np.arange(rows), lengths - 1] = 2, 3
    features = {"input_ids": tf.constant(ids, tf.int32), "input_mask": tf.constant(mask)}
    found = MASKING(features, hash_numbers(7, tf.range(rows)))
    weights, positions = (found[f"masked_lm_{x}"].numpy() for x in ("weights", "positions"))
    wanted = np.rint(np.float32(0.15) * lengths.astype(np.float32))
    np.testing.assert_array_equal(weights.sum(1), wanted.clip(1, 19))
    rows_of = np.repeat(np.arange(rows), 19).reshape(rows, 19)
    real = weights > 0
    assert np.all(ids[rows_of, positions][real] >= 5) and not positions[~real].any()
    places = len({*zip(rows_of[real], positions[real], strict=True)})
    assert abs(places / real.sum() - 0.9304) < 0.005
    assert abs((found["input_ids"].numpy() == 4).sum() / places - 0.8589) < 0.005
    share = np.bincount(positions[: rows // 2][real[: rows // 2]], minlength=length)[1:127]
    assert share.min() > 0.75 * share.mean() and share.max() < 1.25 * share.mean()
    # 30 tokens are 4.5 predictions: a half is rounded to even.
    few = {name: value[:1, :30] for name, value in features.items()}
    assert MASKING(few, hash_numbers(tf.range(1)))["masked_lm_weights"].numpy().sum() == 4
    # Without a place to predict, nothing is predicted.
    none = {"input_ids": tf.constant([[2, 3, 0]]), "input_mask": tf.constant([[1, 1, 0]])}
    found = MASKING(none, hash_numbers(tf.range(1)))
    np.testing.assert_array_equal(found["input_ids"], none["input_ids"])
    assert not found["masked_lm_weights"].numpy().any()
    for share, length, count in ((0.15, 128, 19), (0.15, 512, 79), (0.25, 512, 130), (0.5, 9, 4)):
        assert number(share, length) == count


def test_samples_are_the_generator_s_probabilities_and_may_exclude_the_right_token():
    config = ElectraConfig.from_dict(CONFIGURATION)
    logits = np.log([[0.5, 0.25, 0.125, 0.125]], dtype=np.float32)
    many = tf.tile(tf.constant(logits)[tf.newaxis], [1, 40000, 1])
    right = tf.zeros([1, 40000], tf.int32)
    seed = tf.constant([3, 4])
    for options, expected in (
        ({}, [0.5, 0.25, 0.125, 0.125]),
        ({"temperature": 0.5}, np.array([16, 4, 1, 1]) / 22),
        ({"disallow_correct": True}, [0, 0.5, 0.25, 0.25]),
    ):
        model = ElectraPretrainingModel(config, uniform_generator=True, **options)
        sampled = model._sample(many, right, seed)
        np.testing.assert_array_equal(sampled, model._sample(many, right, seed))
        shares = np.bincount(sampled.numpy().ravel(), minlength=4) / 40000
        np.testing.assert_allclose(shares, expected, atol=0.01)


@pytest.mark.parametrize(
    "options, others",
    [
        ({}, {"generator/embeddings_project"}),
        (
            {"untied_generator_embeddings": True, "generator_hidden_size": 1.5},
            {"generator/embeddings"},
        ),
        ({"untied_generator": False}, set()),
        ({"uniform_generator": True}, set()),
        ({"electra_objective": False}, set()),
    ],
)
def test_which_embeddings_there_are(options, others):
    config = ElectraConfig.from_dict({**CONFIGURATION, "num_hidden_layers": 1})
    names = [variable.path for variable in ElectraPretrainingModel(config, **options).variables]
    assert len(names) == len(set(names))
    found = {"/".join(name.split("/")[:2]) for name in names if "/embeddings" in name}
    assert found == {"electra/embeddings", "electra/embeddings_project", *others}
    assert any(x.startswith("generator_p") for x in names) == ("uniform_generator" not in options)
    for objective in (None, "mlm"):
        with pytest.raises(UserError, match="neither the student nor the teacher of run_distilla"):
            PretrainingModel(config, objective)


def test_layers_without_an_initializer_in_the_original_start_from_glorot():
    sizes = {"hidden_size": 384, "embedding_size": 96, "num_hidden_layers": 1}
    config = ElectraConfig.from_dict({**CONFIG, **sizes, "num_attention_heads": 6})
    model = ElectraPretrainingModel(config, generator_hidden_size=0.5)
    weights = {variable.path: variable.numpy() for variable in model.variables}
    expected = {
        "electra/embeddings_project/kernel": (6 / 480) ** 0.5,
        "generator/embeddings_project/kernel": (6 / 288) ** 0.5,
        "discriminator_predictions/dense_1/kernel": (6 / 385) ** 0.5,
        # Truncated at twice the standard deviation.
        "discriminator_predictions/dense/kernel": 0.04,
        "generator_predictions/dense/kernel": 0.04,
    }
    for name, limit in expected.items():
        assert 0.95 * limit < np.abs(weights[name]).max() < 1.15 * limit, name


LENGTH, ROWS, WORDS = 11, 6, range(5, 9)
SMALL_ELECTRA = ElectraConfig.from_dict({**SMALL, "embedding_size": 10})


@functools.cache
def small_electra(kind=WithoutNoise, **options):
    """Returns a model with random weights, of which each part is right here and there."""
    model = kind(SMALL_ELECTRA, generator_hidden_size=0.5, **options)
    set_random_weights(model, 3)
    head = model.discriminator_predictions.output_layer
    head.kernel.assign(6 * head.kernel)
    head.bias.assign([2.0])
    model.generator_predictions.output_bias.assign(5.0 * np.isin(np.arange(53), WORDS))
    return model


@functools.cache
def batch():
    """A masked batch, with padding."""
    rng = np.random.default_rng(5)
    mask = (np.arange(LENGTH) < rng.integers(5, LENGTH + 1, [ROWS, 1])).astype(np.int32)
    ids = rng.choice(WORDS, [ROWS, LENGTH]).astype(np.int32) * mask
    features = tensors({"input_ids": ids, "input_mask": mask, "segment_ids": np.zeros_like(ids)})
    masking = ElectraMasking(4, (2, 3, 4), 4, 0.3)
    return masking(features, hash_numbers(7, tf.range(ROWS)))


def step_metrics(model):
    """Returns the metrics of a step that changes no weight."""
    optimizer = optimization.create_optimizer(model.trainable_variables, lambda step: 0.0)
    return steps.train_step(model, optimizer, batch(), tf.constant([0, 0]))


@pytest.mark.slow
def test_bfloat16_is_near_and_its_losses_are_float32():
    half = small_electra(dtype="bfloat16")
    features = batch()
    found, expected = (model(features) for model in (half, small_electra()))
    same = found.fake_input_ids == expected.fake_input_ids
    assert 0.9 < np.mean(same) <= 1.0
    for name in ("masked_lm_logits", "logits"):
        value = getattr(found, name)
        assert value.dtype == tf.float32
        rows = tf.reduce_all(same, axis=1) if name == "logits" else slice(None)
        assert difference(value[rows], getattr(expected, name)[rows]) < 0.1, name
    metrics, of_float32 = step_metrics(half), step_metrics(small_electra())
    for name in ("loss", "gradient_norm"):
        assert metrics[name].dtype == tf.float32
        assert difference(metrics[name], of_float32[name]) < 0.1, name


def metrics_of_numpy(outputs, features):
    """Returns the original's metrics of a batch, and the loss, in float64."""
    weight = np.float64(features["example_weight"])[:, None]
    right_ids, sampled = (x.numpy() for x in (features["masked_lm_ids"], outputs.sampled_ids))
    logits = outputs.masked_lm_logits.numpy().astype(np.float64).reshape(*right_ids.shape, -1)
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    losses = -np.take_along_axis(log_probs, right_ids[..., None], -1)[..., 0]
    places = features["masked_lm_weights"].numpy() * weight
    found, labels = outputs.logits.numpy().astype(np.float64), outputs.labels.numpy()
    tokens = features["input_mask"].numpy() * weight
    by_token = np.log1p(np.exp(found)) - labels * found
    rows = (by_token * tokens).sum(1) / (tokens.sum(1) + 1e-6)
    replaced = found > 0

    def average(values, weights):
        return (values * weights).sum() / weights.sum()

    probs, labels = np.float32(1 / (1 + np.exp(-found))) * tokens, labels * tokens
    thresholds = np.float32([-1e-7, *(np.arange(1, 199) / 199), 1 + 1e-7])
    above = (probs[..., None] > thresholds) * weight[..., None]
    true = (above * labels[..., None]).sum((0, 1)) / labels.sum()
    negatives = (1 - labels) * weight  # padding, too
    false = (above * negatives[..., None]).sum((0, 1)) / negatives.sum()
    return {
        "masked_lm_loss": average(losses, places),
        "masked_lm_accuracy": average(logits.argmax(-1) == right_ids, places),
        "sampled_masked_lm_accuracy": average(sampled == right_ids, places),
        "disc_loss": average(rows, weight[:, 0]),
        "disc_accuracy": average(replaced == labels, tokens),
        "disc_precision": average(labels, tokens * replaced),
        "disc_recall": average(replaced, tokens * labels),
        "disc_auc": ((true[:-1] + true[1:]) / 2 * (false[:-1] - false[1:])).sum(),
        "loss": (losses * places).sum() / (places.sum() + 1e-6)
        + 50 * (by_token * tokens).sum() / (tokens.sum() + 1e-6),
    }


def test_settings_and_model_have_the_same_defaults():
    parameters = inspect.signature(ElectraPretrainingModel.__init__).parameters
    values = {"input_file": "i", "output_dir": "o", "vocab_file": "v", "objective": "electra"}
    values["phases"] = [RecordBatches(16, 4, 8, 2)]
    values["evaluation_batches"] = RecordBatches(16, 2, 8, 2)
    for name in MODEL_ARGUMENTS:
        assert parameters[name].default == getattr(ElectraSettings, name), name
    ablations = {"untied_generator": False, "uniform_generator": True, "electra_objective": False}
    for flag, value in {**ablations, "disc_weight": 0.0, "gen_weight": 0.0}.items():
        assert ElectraSettings(**values, **{flag: value}).model_arguments[flag] == value


@pytest.mark.parametrize("weights", [[1, 1, 1, 1, 1, 1], [1, 1, 0, 1, 0, 0]], ids=str)
def test_the_metrics_of_an_evaluation_are_those_of_numpy(weights):
    model = small_electra(ElectraPretrainingModel)
    features = {**batch(), "example_weight": tf.constant(weights, tf.float32)}
    sums = tf.nest.map_structure(
        lambda x: x.numpy()[np.newaxis], steps.evaluation_step(model, features)
    )
    found = model.finish(means(sums))
    expected = metrics_of_numpy(model(features), features)
    assert all(0 < value < 1 for name, value in expected.items() if "loss" not in name)
    assert found == pytest.approx(expected, rel=1e-5)


def test_a_row_has_its_samples_in_any_batch_of_an_evaluation():
    model = small_electra(ElectraPretrainingModel)
    features = batch()
    whole = model(features).fake_input_ids.numpy()
    for begin, end in ((0, 1), (2, 5)):
        part = model({n: x[begin:end] for n, x in features.items()})
        np.testing.assert_array_equal(part.fake_input_ids, whole[begin:end])
    # In training they follow from the seed.
    seeds = (tf.constant([1, seed]) for seed in (2, 2, 3))
    first, again, other = (model(features, training=True, dropout_seed=seed) for seed in seeds)
    np.testing.assert_array_equal(first.sampled_ids, again.sampled_ids)
    assert np.any(first.sampled_ids != other.sampled_ids)
