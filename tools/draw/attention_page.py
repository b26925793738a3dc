"""Draws the attention of a text as one HTML page that works offline; no model is needed here."""

import base64
import hashlib
import json
import re
from pathlib import Path

import numpy as np

from bert_tf.pretrained.results import TextAttention

TEMPLATE = Path(__file__).with_name("attention.html")


def attention_page(attention: TextAttention, model: str, layer: int = 0, head: int = 0) -> str:
    """Returns the page: a square for each head, and the lines of the head that is chosen there.

    It fetches nothing, and a token is never read as HTML. A weight takes one byte, 255 times its
    square root, so that it is off by 0.004 at most, and small ones by much less.

    Args:
        attention: of a text or a pair.
        model: what the page says on the model.
        layer: the layer that is shown first, from 0.
        head: the head that is shown first, from 0.
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
    # In a script element only `<` can mean something else than in JSON: `</script>`, `<!--`.
    return template.replace("@DATA@", json.dumps(data).replace("<", r"\u003c"))
