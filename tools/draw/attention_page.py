"""Draws the attention of a text as one HTML page that works offline; needs no model."""

import base64
import hashlib
import json
import re
from pathlib import Path

import numpy as np

from bert_tf.pretrained.results import TextAttention

TEMPLATE = Path(__file__).with_name("attention.html")


def attention_page(attention: TextAttention, model: str, layer: int = 0, head: int = 0) -> str:
    """Returns the page: a square for each head, and the lines of the head chosen on the page.

    The page fetches nothing, and a token is never read as HTML. A weight is stored in one byte as
    255 times its square root, so its error is at most 0.004, and much less for small weights.

    `model` is the page's line about the model. `layer` and `head`, from 0, are shown first.
    """
    layers, heads = attention.probabilities.shape[:2]
    codes = np.rint(255 * np.sqrt(np.clip(attention.probabilities, 0, 1))).astype(np.uint8)
    data = {
        "model": model,
        "tokens": attention.tokens,
        "segments": attention.segment_ids.tolist(),
        "layers": layers,
        "heads": heads,
        "layer": layer,
        "head": head,
        "weights": base64.b64encode(codes.tobytes()).decode(),
    }
    template = TEMPLATE.read_text(encoding="utf-8")
    script = re.search(r"<script>(.*?)</script>", template, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    template = template.replace("@SCRIPT_HASH@", f"sha256-{digest}")
    # In a script element only `<` can have another meaning than in JSON: `</script>`, `<!--`.
    return template.replace("@DATA@", json.dumps(data).replace("<", r"\u003c"))
