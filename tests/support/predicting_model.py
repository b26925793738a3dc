"""A pre-training model with predictions, for tests of prediction on several devices."""

import tensorflow as tf

from bert_tf.tasks.pretraining.training.model import PretrainingModel


class PredictingModel(PretrainingModel):
    def predictions(self, outputs, features):
        masked_lm, next_sentence = outputs
        ids = tf.argmax(masked_lm, axis=-1, output_type=tf.int32)
        shape = features["masked_lm_positions"].shape
        return {"ids": tf.reshape(ids, shape), "next": tf.nn.log_softmax(next_sentence)}
