"""`tag`: the entities of a text."""

from collections.abc import Sequence
from typing import overload

from bert_tf.pretrained import entities
from bert_tf.pretrained.arguments import as_list
from bert_tf.pretrained.long_texts import check_stride
from bert_tf.pretrained.methods.base import LoadedModel
from bert_tf.pretrained.results import Entity


class Tag(LoadedModel):
    """Methods of taggers."""

    @overload
    def tag(
        self, texts: str, aggregation_strategy: str = ..., window_stride: int | None = ...
    ) -> list[Entity]: ...
    @overload
    def tag(
        self, texts: Sequence[str], aggregation_strategy: str = ..., window_stride: int | None = ...
    ) -> list[list[Entity]]: ...
    def tag(
        self,
        texts: str | Sequence[str],
        aggregation_strategy: str = "word",
        window_stride: int | None = None,
    ) -> list[Entity] | list[list[Entity]]:
        """Returns the entities of each text, in order.

        Neighbours of the same type form one entity, until a `B-` tag begins a new one. Classes that
        are all BILOU or IOBES tags are read as such: `U-` and `S-` are an entity of one word, `L-`
        and `E-` end one. An entity is not empty and has no white space at its ends.

        Args:
            texts: sentences. A long sentence is split into windows; each tags the words in its
                middle.
            aggregation_strategy: what gets a tag. "word": each run of characters without white
                space, as in run_tagging. As in transformers' pipeline: "first", "average" and
                "max", each word by its first piece, its pieces' mean or its surest piece (runs
                without white space or punctuation; with RoBERTa and ALBERT, runs without a space);
                "simple", each word piece; "none", each word piece, and neighbours are not joined.
            window_stride: word pieces that each window of a long sentence tags, and so between the
                starts of windows: fewer give every word more context, in more windows. None for
                what the model was trained with, or else half a window.

        Raises:
            UserError: the model is not a tagger, the strategy is unknown, or the stride is not from
                1 to the word pieces of a window.
        """
        self._folder.check_head("tagging", "tag")
        entities.check_strategy(aggregation_strategy)
        check_stride(window_stride, self.max_seq_length)
        window_stride = window_stride or self._folder.trained_on.window_stride
        texts, single = as_list(texts)
        window = self.max_seq_length, window_stride
        cuts = [entities.TaggedText(text, self.tokenizer, *window) for text in texts]
        logits = iter(self._run("tagging", [row for cut in cuts for row in cut.rows]))
        found = [
            cut.join([next(logits)["logits"] for _ in cut.rows], self.labels, aggregation_strategy)
            for cut in cuts
        ]
        return found[0] if single else found
