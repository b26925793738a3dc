"""The parts of the model, from ids to logits. Start reading at `bert_tf/modeling.py`."""
