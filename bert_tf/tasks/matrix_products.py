"""The matrix products of a pre-training step, and their FLOPs.

The product of [m, k] and [k, n] takes 2mkn floating point operations. The backward pass has two
products of the same size, one for the gradient of each operand. As in model FLOPs utilization
(https://arxiv.org/abs/2204.02311, B), embedding lookups do not count; recomputed activations
count only with `recompute_activations`.
"""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from bert_tf.model.configuration import BertConfig
from bert_tf.model.family import ElectraConfig
from bert_tf.tasks.pretraining.schema import MLM, MLM_NSP
from bert_tf.tasks.pretraining.training.electra_settings import MODEL_ARGUMENTS, ElectraSettings
from bert_tf.tasks.pretraining.training.settings import RecordBatches


@dataclasses.dataclass(frozen=True)
class Product:
    """A matrix product of the forward pass: `count` products [batch, m, k] x [batch, k, n]."""

    name: str
    count: int
    batch: int
    m: int
    k: int
    n: int
    transpose_b: bool = False  # whether the second operand is stored as [batch, n, k]
    in_encoder: bool = True
    passes: int = 3  # products of this size in a step: one forward and two backward

    @property
    def flops(self) -> int:
        """Floating point operations of all `count` products in the forward pass."""
        return 2 * self.count * self.batch * self.m * self.k * self.n


def forward_products(
    config: BertConfig,
    phase: RecordBatches,
    objective: str = MLM_NSP,
    electra: Mapping[str, Any] = MappingProxyType({}),
) -> list[Product]:
    """Returns the matrix products in the forward pass of one training step.

    `electra` has arguments of `ElectraPretrainingModel`; with the objective `mlm`, an ELECTRA
    counts as a masked LM.
    """
    if isinstance(config, ElectraConfig) and objective != MLM:
        return _electra_products(config, phase, electra)
    hidden, length, layers = config.hidden_size, phase.max_seq_length, config.num_layer_outputs
    width = config.embedding_width
    heads = config.num_attention_heads
    tokens = phase.batch_size * length
    predictions = phase.batch_size * phase.max_predictions_per_seq
    inner, head_size = config.intermediate_size, hidden // heads
    pairs = phase.batch_size * heads
    products = [
        Product("query, key, value, output", 4 * layers, 1, tokens, hidden, hidden),
        Product("intermediate", layers, 1, tokens, hidden, inner),
        Product("layer output", layers, 1, tokens, inner, hidden),
        Product("attention scores", layers, pairs, length, head_size, length, transpose_b=True),
        Product("attention context", layers, pairs, length, length, head_size),
        Product("transform", 1, 1, predictions, hidden, width, in_encoder=False),
        Product("vocabulary", 1, 1, predictions, width, config.vocab_size, True, False),
    ]
    if width != hidden:
        products.append(Product("embeddings", 1, 1, tokens, width, hidden, in_encoder=False))
    if objective == MLM or not config.has_next_sentence:
        return products
    return [
        *products,
        Product("pooler", 1, 1, phase.batch_size, hidden, hidden, in_encoder=False),
        Product("next sentence", 1, 1, phase.batch_size, hidden, 2, True, False),
    ]


def _electra_products(
    config: ElectraConfig, phase: RecordBatches, electra: Mapping[str, Any]
) -> list[Product]:
    """Returns the products of the generator and the discriminator."""
    chosen = {name: getattr(ElectraSettings, name) for name in MODEL_ARGUMENTS} | {**electra}
    generator = config
    if chosen["electra_objective"] and chosen["untied_generator"]:
        sizes = chosen["generator_hidden_size"], chosen["generator_layers"]
        generator = config.generator(*sizes, chosen["untied_generator_embeddings"])
    products = [] if chosen["uniform_generator"] else forward_products(generator, phase, MLM)
    if chosen["electra_objective"]:
        tokens, hidden = phase.batch_size * phase.max_seq_length, config.hidden_size
        own = ("transform", "vocabulary")
        products += [x for x in forward_products(config, phase, MLM) if x.name not in own]
        products.append(
            Product("discriminator's head", 1, 1, tokens, hidden, hidden + 1, in_encoder=False)
        )
    return products


def training_products(
    config: BertConfig,
    phase: RecordBatches,
    recompute_activations: bool = False,
    objective: str = MLM_NSP,
    electra: Mapping[str, Any] = MappingProxyType({}),
) -> list[Product]:
    """Returns a training step's products; recomputation adds a forward pass."""
    return [
        dataclasses.replace(x, passes=4) if recompute_activations and x.in_encoder else x
        for x in forward_products(config, phase, objective, electra)
    ]


def distillation_products(
    student: BertConfig, phase: RecordBatches, teacher: BertConfig, restrict_ce_to_mask: bool
) -> list[Product]:
    """Returns the products of a step of run_distillation; the teacher has only a forward pass."""
    if not restrict_ce_to_mask:  # logits of all tokens
        phase = dataclasses.replace(phase, max_predictions_per_seq=phase.max_seq_length)
    of_teacher = (dataclasses.replace(x, passes=1) for x in forward_products(teacher, phase, MLM))
    return [*forward_products(student, phase, MLM), *of_teacher]


def training_flops(*arguments: Any, **named: Any) -> int:
    """Returns the FLOPs of the `training_products` of these arguments, forward and backward."""
    return sum(x.passes * x.flops for x in training_products(*arguments, **named))


def distillation_flops(*arguments: Any, **named: Any) -> int:
    """Returns the FLOPs of the `distillation_products` of these arguments."""
    return sum(x.passes * x.flops for x in distillation_products(*arguments, **named))
