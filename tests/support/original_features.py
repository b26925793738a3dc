"""The model's input for a text or a pair, by the steps of the original's programs."""


def original_features(reference, text_a, text_b, max_seq_length):
    """Returns the tokens, and the features padded to a length; `reference` is a FullTokenizer."""
    tokens_a, tokens_b = reference.tokenize(text_a), reference.tokenize(text_b or "")
    room = max_seq_length - (3 if tokens_b else 2)
    while len(tokens_a) + len(tokens_b) > room:
        (tokens_a if len(tokens_a) > len(tokens_b) else tokens_b).pop()
    tokens = ["[CLS]", *tokens_a, "[SEP]", *tokens_b, *["[SEP]"] * bool(tokens_b)]
    first, padding = len(tokens_a) + 2, [0] * (max_seq_length - len(tokens))
    return tokens, {
        "input_ids": reference.convert_tokens_to_ids(tokens) + padding,
        "input_mask": [1] * len(tokens) + padding,
        "segment_ids": [0] * first + [1] * (len(tokens) - first) + padding,
    }
