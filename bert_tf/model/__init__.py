"""The parts of the model, ids to logits. Start reading at `bert_tf/modeling.py`."""
