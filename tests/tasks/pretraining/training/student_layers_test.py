"""Tests of which layers a student begins with, and which its own are compared with."""

import re

import numpy as np
import pytest

from bert_tf.errors import UserError
from bert_tf.model.distilbert_configuration import DistilBertConfig
from bert_tf.model.distillation import matching_layers
from bert_tf.modeling import BertConfig
from bert_tf.tasks.pretraining.training.distillation import choose_layers, copy_weights
from bert_tf.tasks.pretraining.training.model import PretrainingModel
from tests.support.small_pretraining import SMALL, make_features, small_model, weights_of


@pytest.mark.parametrize(
    "student,teacher,expected",
    [(3, 6, [1, 3, 5]), (6, 12, [1, 3, 5, 7, 9, 11]), (2, 5, [2, 4]), (3, 2, [0, 1, 1])],
)
def test_layers_that_match(student, teacher, expected):
    assert matching_layers(student, teacher) == expected


@pytest.mark.parametrize(
    "given,student,teacher,expected",
    [
        (None, 6, 12, [0, 2, 4, 7, 9, 11]),  # DistilBERT's
        (None, 3, 6, [0, 3, 5]),
        (None, 1, 5, [0]),
        (None, 4, 4, [0, 1, 2, 3]),
        (None, 2, 7, [0, 6]),
        ("3, 0", 2, 4, [3, 0]),
    ],
)
def test_layers_are_spread_evenly_or_given(given, student, teacher, expected):
    assert choose_layers(given, student, teacher) == expected


@pytest.mark.parametrize(
    "arguments,message",
    [
        (
            (None, 5, 4),
            "The student must have at most as many layers as the teacher to begin with its weights;"
            " num_hidden_layers of --bert_config_file is 5, and the teacher's is 4",
        ),
        (
            (None, 2, 1, "groups"),
            "The student must have at most as many groups as the teacher to begin with its weights;"
            " num_hidden_groups of --bert_config_file is 2, and the teacher's is 1. Change",
        ),
        (("0,4", 2, 4), "--student_layers=0,4: the teacher's layers are 0 to 3; there is no '4'"),
        (
            ("0,1,3", 2, 4),
            "--student_layers=0,1,3 must have as many of the teacher's layers as the student has"
            " (num_hidden_layers of --bert_config_file), 2; it has 3",
        ),
        (("0,-1", 2, 4), "--student_layers must be numbers of the teacher's layers, separated by"),
        (("", 2, 4), "such as 0,2,4,7,9,11, or none; received ''"),
    ],
)
def test_layers_that_do_not_fit(arguments, message):
    with pytest.raises(UserError, match=re.escape(message)):
        choose_layers(*arguments)


def copying(student_changes, layers, teacher_lacks="nothing"):
    """Returns the weights of a student that begins with layers of a teacher, and the teacher's."""
    teacher, _ = small_model(5, num_hidden_layers=4)
    config = BertConfig.from_dict({**SMALL, **student_changes})
    variables = {
        name: variable
        for name, variable in weights_of(teacher).items()
        if not name.startswith(teacher_lacks)
    }
    student = PretrainingModel(config)
    copy_weights(student, variables, teacher.bert.config.layer_scopes, layers)
    return weights_of(student), weights_of(teacher)


def test_a_student_begins_with_layers_of_its_teacher():
    student, teacher = copying({}, [1, 3])
    for name, value in student.items():
        source = name.replace("layer_1/", "layer_3/").replace("layer_0/", "layer_1/")
        np.testing.assert_array_equal(value, teacher[source], err_msg=name)


def test_a_teacher_may_lack_a_pooler():
    student, teacher = copying({}, [1, 3], "bert/pooler/")
    name = "bert/pooler/dense/kernel"
    assert np.abs(student[name]).max() <= 0.04  # random
    name = "cls/seq_relationship/output_weights"
    np.testing.assert_array_equal(student[name], teacher[name])


def test_a_distilbert_begins_with_its_teachers_input_of_a_first_text():
    teacher, _ = small_model(5)
    config = DistilBertConfig.from_dict(SMALL)
    student = PretrainingModel(config)
    copy_weights(student, weights_of(teacher), teacher.bert.config.layer_scopes, [0, 1])
    ids, segments = make_features()["input_ids"], make_features()["segment_ids"]
    np.testing.assert_array_equal(
        student.bert(ids, None, segments).embedding_output, teacher.bert(ids).embedding_output
    )


def test_other_sizes_than_the_teachers_cannot_be_copied():
    message = (
        "only where their sizes are equal: bert/encoder/layer_0/intermediate/dense/kernel is"
        " [24, 21] by --bert_config_file, and [24, 20] in the teacher"
    )
    with pytest.raises(UserError, match=re.escape(message)):
        copying({"intermediate_size": 21}, [1, 3])
