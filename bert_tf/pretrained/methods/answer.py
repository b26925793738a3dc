"""`answer`: the part of a text that answers a question."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Unpack, overload

from bert_tf.pretrained.methods.base import LoadedModel
from bert_tf.pretrained.results import Answer
from bert_tf.tasks.arguments import WHOLE_NUMBER, check_type

if TYPE_CHECKING:
    from bert_tf.tasks.squad.examples import AnswerOptions


class AnswerQuestions(LoadedModel):
    """Methods of models that were trained on SQuAD."""

    @overload
    def answer(
        self, question: str, context: str, *, top_k: None = None, **options: Unpack["AnswerOptions"]
    ) -> Answer: ...
    @overload
    def answer(
        self, question: str, context: str, *, top_k: int, **options: Unpack["AnswerOptions"]
    ) -> list[Answer]: ...
    @overload
    def answer(
        self,
        question: Sequence[str],
        context: str | Sequence[str],
        *,
        top_k: None = None,
        **options: Unpack["AnswerOptions"],
    ) -> list[Answer]: ...
    @overload
    def answer(
        self,
        question: Sequence[str],
        context: str | Sequence[str],
        *,
        top_k: int,
        **options: Unpack["AnswerOptions"],
    ) -> list[list[Answer]]: ...
    def answer(
        self,
        question: str | Sequence[str],
        context: str | Sequence[str],
        *,
        top_k: int | None = None,
        null_score_diff_threshold: float | None = None,
        max_seq_length: int = 384,
        doc_stride: int = 128,
        max_answer_length: int = 30,
        method: str = "run_squad",
    ) -> Answer | list[Answer] | list[list[Answer]]:
        """Returns the answer to each question, a part of its context.

        Args:
            question: a question, or a list of questions.
            context: the text with the answer: one for all questions, or a list with one for each.
                A long context is split into windows.
            top_k: None for the best answer; a number for a list of at most that many answers.
            null_score_diff_threshold: None if every question has an answer, as in SQuAD 1.1.
                Otherwise the answer is `text=""` if the no-answer score exceeds the best answer's
                score by more than this (SQuAD 2.0); run_squad writes a good value to
                null_threshold.json.
            max_seq_length: longest window in word pieces, capped at the model's `max_seq_length`.
            doc_stride: word pieces between the starts of two windows; with
                `method="transformers"`, word pieces that two windows share, as in transformers.
            max_answer_length: maximum length of an answer in word pieces.
            method: "run_squad" ranks like the program: the scores are the probabilities in its
                nbest_predictions.json. "transformers" ranks like the question-answering
                pipeline of transformers 4; its scores can exceed 1.

        Raises:
            UserError: the model has no head for answers, or an argument is invalid.
        """
        from bert_tf.pretrained import answer_search  # slow to import, and few models answer

        self._folder.check_head("squad", "answer")
        check_type("max_seq_length", max_seq_length, WHOLE_NUMBER)
        length = min(max_seq_length, self.max_seq_length)
        options = top_k, null_score_diff_threshold, length, doc_stride, max_answer_length, method
        searches, single = answer_search.make_searches(question, context, self.tokenizer, *options)
        rows = [row for search in searches for row in search.rows]
        found = answer_search.find_all(searches, self._run("squad", rows), self.tokenizer)
        if top_k:
            return found[0] if single else found
        best = [answers[0] for answers in found]
        return best[0] if single else best
