"""Pre-training's model as one that predicts, for tests of prediction on several devices."""

import tensorflow as tf

from bert_tf.tasks.pretraining.training.model import PretrainingTask


class PredictingTask(PretrainingTask):
    """Pre-training, with a prediction for each example."""

    def predictions(self, model, features):
        masked_lm, next_sentence = model(
            *(features[name] for name in ("input_ids", "input_mask", "segment_ids")),
            features["masked_lm_positions"],
        )
        ids = tf.argmax(masked_lm, axis=-1, output_type=tf.int32)
        shape = features["masked_lm_positions"].shape
        return {"ids": tf.reshape(ids, shape), "next": tf.nn.log_softmax(next_sentence)}
