"""The pre-training model in float64 numpy, written from the paper and independent of `bert_tf`.

It reads its weights by their names in a checkpoint. `bert_tf/modeling.py` explains the dimensions.
"""

import math

import numpy as np


def gelu(x):
    """Returns x times the normal distribution function in the tanh form, which BERT uses."""
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def gelu_erf(x):
    """Returns x times the normal distribution function, exactly."""
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


ACTIVATIONS = {
    "gelu": gelu,
    "gelu_erf": gelu_erf,
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "linear": lambda x: x,
}


def layer_norm(x, gamma, beta, epsilon=1e-12):
    """Returns x normalised over its last axis, scaled and shifted."""
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred**2).mean(-1, keepdims=True)
    return centred / np.sqrt(variance + epsilon) * gamma + beta


def log_softmax(x):
    """Returns the logarithms of the softmax over the last axis."""
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


class NumpyBert:
    """A pre-training model; `forward` and `losses` return its outputs by name.

    `config` is a dictionary as in `bert_config.json`, `weights` are arrays by name.
    """

    def __init__(self, config, weights):
        self.config = config
        self.weights = {name: np.asarray(w, np.float64) for name, w in weights.items()}
        self.activation = ACTIVATIONS[config["hidden_act"]]

    def dense(self, x, scope):
        return x @ self.weights[f"{scope}/kernel"] + self.weights[f"{scope}/bias"]

    def norm(self, x, scope, name="LayerNorm"):
        scope += f"/{name}"
        epsilon = self.config.get("layer_norm_eps", 1e-12)
        weights = (self.weights[f"{scope}/{name}"] for name in ("gamma", "beta"))
        return layer_norm(x, *weights, epsilon)

    def attention(self, hidden, input_mask, scope):
        """Returns the context, [B, S, H], and the probabilities, [B, N, S, S]."""
        shape = (*hidden.shape[:2], self.config["num_attention_heads"], -1)  # [B, S, N, D]
        query, key, value = (
            self.dense(hidden, f"{scope}/{name}").reshape(shape)
            for name in ("query", "key", "value")
        )
        scores = np.einsum("bfnd,btnd->bnft", query, key) / np.sqrt(query.shape[-1])
        scores = scores + (1.0 - input_mask[:, None, None, :]) * -10000.0
        probs = np.exp(log_softmax(scores))
        return np.einsum("bnft,btnd->bfnd", probs, value).reshape(hidden.shape), probs

    def forward(self, input_ids, input_mask, segment_ids):
        """Returns the outputs of `BertModel` by name."""
        scope = "bert/embeddings"
        x = self.weights[f"{scope}/word_embeddings"][input_ids]
        x = x + self.weights[f"{scope}/token_type_embeddings"][segment_ids]
        x = x + self.weights[f"{scope}/position_embeddings"][self.positions(input_ids)]
        hidden = self.norm(x, scope)
        outputs = {"embedding_output": hidden, **self.encode(hidden, input_mask)}
        first = outputs["sequence_output"][:, 0]
        outputs["pooled_output"] = np.tanh(self.dense(first, "bert/pooler/dense"))
        return outputs

    def positions(self, input_ids):
        return np.arange(input_ids.shape[1])

    def encode(self, hidden, input_mask):
        layers, all_probs = [], []
        for i in range(self.config["num_hidden_layers"]):
            scope = f"bert/encoder/layer_{i}"
            context, probs = self.attention(hidden, input_mask, f"{scope}/attention/self")
            projected = self.dense(context, f"{scope}/attention/output/dense")
            attended = self.norm(hidden + projected, f"{scope}/attention/output")
            inner = self.activation(self.dense(attended, f"{scope}/intermediate/dense"))
            projected = self.dense(inner, f"{scope}/output/dense")
            hidden = self.norm(attended + projected, f"{scope}/output")
            layers.append(hidden)
            all_probs.append(probs)
        return self.outputs(layers, all_probs)

    def outputs(self, layers, all_probs):
        outputs = {"all_encoder_layers": layers, "attention_probs": all_probs}
        return {**outputs, "sequence_output": layers[-1]}

    def losses(self, features):
        """Returns the losses and log probabilities of pre-training by name."""
        names = ("input_ids", "input_mask", "segment_ids")
        outputs = self.forward(*(features[name] for name in names))
        rows = np.arange(len(features["input_ids"]))[:, None]
        hidden = outputs["sequence_output"][rows, features["masked_lm_positions"]]  # [B, P, H]
        scope = "cls/predictions"
        hidden = self.activation(self.dense(hidden, f"{scope}/transform/dense"))
        hidden = self.norm(hidden, f"{scope}/transform")
        logits = hidden @ self.weights["bert/embeddings/word_embeddings"].T
        log_probs = log_softmax(logits + self.weights[f"{scope}/output_bias"])
        log_probs = log_probs.reshape(-1, log_probs.shape[-1])  # [B*P, V]
        labels = features["masked_lm_ids"].reshape(-1)
        weights = features["masked_lm_weights"].reshape(-1).astype(np.float64)
        example_loss = -log_probs[np.arange(len(labels)), labels]
        masked_lm_loss = (weights * example_loss).sum() / (weights.sum() + 1e-5)

        scope = "cls/seq_relationship"
        logits = outputs["pooled_output"] @ self.weights[f"{scope}/output_weights"].T
        next_log_probs = log_softmax(logits + self.weights[f"{scope}/output_bias"])
        labels = features["next_sentence_labels"].reshape(-1)
        next_sentence_loss = -next_log_probs[np.arange(len(labels)), labels].mean()
        return {
            **outputs,
            "masked_lm_loss": masked_lm_loss,
            "masked_lm_example_loss": example_loss,
            "masked_lm_log_probs": log_probs,
            "next_sentence_loss": next_sentence_loss,
            "next_sentence_log_probs": next_log_probs,
            "total_loss": masked_lm_loss + next_sentence_loss,
        }


class NumpyRoberta(NumpyBert):
    """The same for RoBERTa, without `losses`; its `bert_config.json` has RoBERTa's keys."""

    def positions(self, input_ids):
        """Returns the positions: padding has the padding id, tokens count up from there."""
        pad_id = self.config["pad_token_id"]
        rows = np.full(input_ids.shape, pad_id)
        for row, ids in zip(rows, input_ids, strict=True):
            tokens = np.flatnonzero(ids != pad_id)
            row[tokens] += np.arange(1, len(tokens) + 1)
        return rows

    def masked_lm_logits(self, sequence_output):
        """Returns the logits of every position, [B, S, V]."""
        scope = "cls/predictions"
        hidden = gelu_erf(self.dense(sequence_output, f"{scope}/transform/dense"))
        hidden = self.norm(hidden, f"{scope}/transform")
        logits = hidden @ self.weights["bert/embeddings/word_embeddings"].T
        return logits + self.weights[f"{scope}/output_bias"]


class NumpyAlbert(NumpyBert):
    """The same for ALBERT; its configuration has the keys of an `albert_config.json`."""

    def encode(self, hidden, input_mask):
        config, layers, all_probs = self.config, [], []
        if config["embedding_size"] != config["hidden_size"]:
            hidden = self.dense(hidden, "bert/encoder/embedding_hidden_mapping_in")
        for i in range(config["num_hidden_layers"]):
            group = int(i / config["num_hidden_layers"] * config["num_hidden_groups"])
            for j in range(config["inner_group_num"]):
                scope = f"bert/encoder/transformer/group_{group}/inner_group_{j}"
                context, probs = self.attention(hidden, input_mask, f"{scope}/attention_1/self")
                projected = self.dense(context, f"{scope}/attention_1/output/dense")
                attended = self.norm(hidden + projected, scope)
                inner = f"{scope}/ffn_1/intermediate"
                wide = self.activation(self.dense(attended, f"{inner}/dense"))
                narrow = self.dense(wide, f"{inner}/output/dense")
                hidden = self.norm(attended + narrow, scope, "LayerNorm_1")
                layers.append(hidden)
                all_probs.append(probs)
        return self.outputs(layers, all_probs)


def adam_weight_decay(param, m, v, grad, learning_rate, decay):
    """Returns the next parameter and moments: Adam without bias correction, decoupled decay."""
    m = 0.9 * m + 0.1 * grad
    v = 0.999 * v + 0.001 * grad**2
    return param - learning_rate * (m / (np.sqrt(v) + 1e-6) + decay * param), m, v


def lamb(param, m, v, grad, learning_rate, decay, ratio=True, step=None, betas=(0.9, 0.999)):
    """Returns the next parameter and moments of LAMB; `step`, from 1, corrects the bias."""
    beta_1, beta_2 = betas
    m = beta_1 * m + (1 - beta_1) * grad
    v = beta_2 * v + (1 - beta_2) * grad**2
    correct = (1, 1) if step is None else (1 - beta_1**step, 1 - beta_2**step)
    update = m / correct[0] / (np.sqrt(v / correct[1]) + 1e-6) + decay * param
    norms = np.sqrt((param**2).sum()), np.sqrt((update**2).sum())
    if ratio and min(norms) > 0:
        learning_rate = learning_rate * norms[0] / norms[1]
    return param - learning_rate * update, m, v


def learning_rate(step, init_lr, num_train_steps, num_warmup_steps, power=1.0, start=0):
    """Returns the learning rate of a step: linear warm-up from `start`, then decay to 0."""
    if step - start < num_warmup_steps:
        return init_lr * (step - start) / num_warmup_steps
    return init_lr * max(0.0, 1 - step / num_train_steps) ** power


def random_weights(shapes, seed, scale=0.3):
    """Returns random weights by name; the scales of LayerNorm are near 1."""
    rng = np.random.default_rng(seed)
    return {
        name: (rng.normal(size=shape) * scale + name.endswith("gamma")).astype(np.float32)
        for name, shape in sorted(shapes.items())
    }


def assert_near(actual, expected, bound, name=""):
    """Asserts that no difference exceeds `bound` times the largest expected value."""
    actual, expected = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    assert actual.shape == expected.shape, name
    assert np.abs(actual - expected).max() <= bound * np.abs(expected).max(), name
