"""The optimizers' names and default hyperparameters, in a module that settings can import fast."""

CLIP_NORM = 1.0  # maximum global norm of a step's gradients
BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-6  # Adam's
WEIGHT_DECAY_RATE = 0.01
EXCLUDE_FROM_WEIGHT_DECAY = ("LayerNorm", "layer_norm", "bias")
OPTIMIZERS = ("adamw", "lamb")  # names of ALBERT's create_optimizer; the first is BERT's
