"""Shapes of tensors, static where they are known."""

import tensorflow as tf


def get_shape_list(
    tensor: tf.Tensor, expected_rank: int | list[int] | None = None, name: str = "tensor"
) -> list[int | tf.Tensor]:
    """Returns the dimensions of a tensor (original: modeling.get_shape_list).

    Static dimensions are Python integers, dynamic ones int32 scalars.

    Args:
        tensor: a tensor of any dtype; its rank must be static.
        expected_rank: the rank, or a list of ranks, that the tensor must have; None allows all.
        name: the tensor's name in the error message.

    Raises:
        ValueError: the tensor has a different rank.
    """
    if expected_rank is not None:
        ranks = [expected_rank] if isinstance(expected_rank, int) else expected_rank
        if tensor.shape.rank not in ranks:
            raise ValueError(
                f"{name} must have rank {' or '.join(map(str, ranks))}, not {tensor.shape.rank}"
                f" (shape {tensor.shape})"
            )
    static, dynamic = tensor.shape.as_list(), tf.shape(tensor)
    return [dynamic[i] if size is None else size for i, size in enumerate(static)]
