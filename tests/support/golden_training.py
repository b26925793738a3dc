"""Training against the figures that the original gave for the same steps."""

from pathlib import Path

import numpy as np
import tensorflow as tf

from bert_tf import optimization
from bert_tf.engine import steps
from bert_tf.engine.loops import TrainingLoop
from bert_tf.files import checkpoints
from tests.support.small_pretraining import difference, weights_of

FEATURES = (
    *("input_ids", "input_mask", "segment_ids"),
    *("masked_lm_positions", "masked_lm_ids", "masked_lm_weights", "next_sentence_labels"),
)
SCHEDULE = ("init_lr", "num_train_steps", "num_warmup_steps", "poly_power", "start_warmup_step")


def compiled_step(step, strategy=None):
    """Returns a function of a batch that makes one step and returns its metrics.

    `step` takes the features of a batch. `strategy` is a `PjrtStrategy`, which runs the steps; None
    for TensorFlow's XLA.
    """
    if strategy is None:
        return tf.function(step, jit_compile=True, autograph=False)
    loop = TrainingLoop(strategy, lambda features, seed: step(features))

    def make(features):
        rows = loop.run(iter(tf.data.Dataset.from_tensors(features)), 1, lambda steps: None)
        strategy.fetch([held.variable() for held in strategy._held.values()])
        return tf.nest.map_structure(lambda row: row[0], rows)

    return make


def check_training(model, initial: Path, folder: Path, num_steps: int, strategy=None, parts=1):
    """Trains from the checkpoint `initial`; metrics, weights and slots are those in the folder.

    For `strategy` see `compiled_step`; `parts` are those of a batch.
    """
    arrays = dict(np.load(folder / "train.npz"))
    numbers = (arrays[name].item() for name in SCHEDULE if name in arrays)
    schedule = optimization.PolynomialSchedule(*numbers)
    options = optimization.AdamOptions(str(arrays.get("optimizer", "adamw")))
    optimizer = optimization.create_optimizer(model.trainable_variables, schedule, options)
    variables = {**weights_of(model), **optimizer.checkpoint_variables()}
    checkpoints.restore(variables, str(initial))

    def train(features):
        return steps.train_step(model, optimizer, features, tf.constant([0, 0]), parts)

    # XLA takes long for many parts.
    step = tf.function(train, autograph=False) if parts > 2 else compiled_step(train, strategy)
    for i in range(num_steps):
        metrics = step({name: tf.constant(arrays[name][i]) for name in FEATURES})
        np.testing.assert_allclose(metrics["learning_rate"], schedule(i), rtol=1e-6)
        np.testing.assert_allclose(metrics["loss"], arrays["losses"][i], rtol=1e-6)
        # The figures of BERT are its losses alone.
        for name in ("learning_rate", "gradient_norm") if "optimizer" in arrays else ():
            np.testing.assert_allclose(metrics[name], arrays[f"{name}s"][i], rtol=1e-6)

    reader = tf.train.load_checkpoint(str(folder / f"model.ckpt-{num_steps}"))
    assert set(variables) == set(reader.get_variable_to_shape_map())
    assert optimizer.global_step.numpy() == reader.get_tensor("global_step") == num_steps
    for name, variable in variables.items():
        if "key/bias" not in name:  # its gradient is rounding noise, of which Adam makes a step
            assert difference(variable.numpy(), reader.get_tensor(name)) < 2e-5, name
