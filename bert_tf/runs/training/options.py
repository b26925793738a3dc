"""Arguments of models and optimizers that depend on settings."""

from collections.abc import Mapping

import tensorflow as tf

from bert_tf import optimization
from bert_tf.engine import distribution
from bert_tf.runs.flags.settings import ComputationSettings, TrainingSettings


def adam_options(
    settings: TrainingSettings, learning_rate_factors: Mapping[str, float] | None = None
) -> optimization.AdamOptions:
    """Returns the optimizer's options; see `AdamWeightDecayOptimizer`."""
    return optimization.AdamOptions(
        settings.optimizer,
        settings.weight_decay_rate,
        settings.beta_1,
        settings.beta_2,
        settings.epsilon,
        lamb_bias_correction=settings.lamb_bias_correction,
        learning_rate_factors=tuple((learning_rate_factors or {}).items()),
    )


def model_options(
    settings: ComputationSettings, strategy: tf.distribute.Strategy
) -> dict[str, bool | str]:
    """Returns the arguments of `BertModel` for the settings and the strategy's devices."""
    return device_options(settings, distribution.on_tpu(strategy))


def device_options(settings: ComputationSettings, on_tpu: bool) -> dict[str, bool | str]:
    one_hot = settings.use_one_hot_embeddings
    options: dict[str, bool | str] = {
        "use_one_hot_embeddings": on_tpu if one_hot is None else one_hot,
        "dtype": settings.dtype or ("bfloat16" if on_tpu else "float32"),
    }
    if isinstance(settings, TrainingSettings):
        options["recompute_activations"] = settings.recompute_activations
    return options
