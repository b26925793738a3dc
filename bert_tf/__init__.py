"""BERT for TensorFlow 2 and Keras 3.

`load` gets a trained model from a folder:

    import bert_tf
    model = bert_tf.load("uncased_L-12_H-768_A-12")
    print(model.fill_mask("Paris is the [MASK] of France."))

The names here are public; docs/api.md describes each and says what may change.
"""

import importlib
import sys
from typing import TYPE_CHECKING

if sys.version_info < (3, 11):  # noqa: UP036 - programs in a checkout come here first
    sys.exit(f"bert-tf needs Python 3.11 to 3.13; this is Python {sys.version.split()[0]}")

from bert_tf.start import quiet_start

__version__ = "0.1.0"

if TYPE_CHECKING:
    from bert_tf.errors import UserError as UserError
    from bert_tf.export.exporting import export_model as export_model
    from bert_tf.export.preprocessor import Preprocessor as Preprocessor
    from bert_tf.export.text_features import TextFeatures as TextFeatures
    from bert_tf.files.checkpoints import load_weights as load_weights
    from bert_tf.model.layer_scopes import layerwise_lr_factors as layerwise_lr_factors
    from bert_tf.modeling import AlbertConfig as AlbertConfig
    from bert_tf.modeling import BertConfig as BertConfig
    from bert_tf.modeling import BertModel as BertModel
    from bert_tf.modeling import DistilBertConfig as DistilBertConfig
    from bert_tf.modeling import ElectraConfig as ElectraConfig
    from bert_tf.modeling import RobertaConfig as RobertaConfig
    from bert_tf.optimization import AdamWeightDecayOptimizer as AdamWeightDecayOptimizer
    from bert_tf.optimization import LAMBOptimizer as LAMBOptimizer
    from bert_tf.optimization import PolynomialSchedule as PolynomialSchedule
    from bert_tf.optimization import linear_schedule as linear_schedule
    from bert_tf.pretrained.estimators import BertClassifier as BertClassifier
    from bert_tf.pretrained.estimators import BertRegressor as BertRegressor
    from bert_tf.pretrained.loading import load as load
    from bert_tf.pretrained.model import Pretrained as Pretrained
    from bert_tf.runs.training.keras_checkpoints import CheckpointCallback as CheckpointCallback
    from bert_tf.tasks.classification.model import ClassificationModel as ClassificationModel
    from bert_tf.tasks.extraction.model import FeaturesModel as FeaturesModel
    from bert_tf.tasks.multiple_choice.model import MultipleChoiceModel as MultipleChoiceModel
    from bert_tf.tasks.pretraining.training.model import PretrainingModel as PretrainingModel
    from bert_tf.tasks.sentences.model import SentenceModel as SentenceModel
    from bert_tf.tasks.squad.model import SquadModel as SquadModel
    from bert_tf.tasks.tagging.model import TaggingModel as TaggingModel
    from bert_tf.text.base_tokenizer import Tokenizer as Tokenizer
    from bert_tf.text.byte_pairs import BytePairTokenizer as BytePairTokenizer
    from bert_tf.text.fast_tokenization import FastTokenizer as FastTokenizer
    from bert_tf.text.sentence_pieces import SentencePieceTokenizer as SentencePieceTokenizer
    from bert_tf.text.tokenizers import load_tokenizer as load_tokenizer
    from bert_tf.tokenization import FullTokenizer as FullTokenizer
else:
    # Lazy, because programs import this package before they import TensorFlow in their own way.
    # Hidden from type checkers, so that they report unknown names.
    _NAMES = {
        "errors": "UserError",
        "export.preprocessor": "Preprocessor",
        "export.exporting": "export_model",
        "export.text_features": "TextFeatures",
        "files.checkpoints": "load_weights",
        "model.layer_scopes": "layerwise_lr_factors",
        "modeling": (
            "AlbertConfig BertConfig BertModel DistilBertConfig ElectraConfig RobertaConfig"
        ),
        "optimization": (
            "AdamWeightDecayOptimizer LAMBOptimizer PolynomialSchedule linear_schedule"
        ),
        "pretrained.estimators": "BertClassifier BertRegressor",
        "pretrained.loading": "load",
        "pretrained.model": "Pretrained",
        "runs.training.keras_checkpoints": "CheckpointCallback",
        "tasks.classification.model": "ClassificationModel",
        "tasks.extraction.model": "FeaturesModel",
        "tasks.multiple_choice.model": "MultipleChoiceModel",
        "tasks.pretraining.training.model": "PretrainingModel",
        "tasks.sentences.model": "SentenceModel",
        "tasks.squad.model": "SquadModel",
        "tasks.tagging.model": "TaggingModel",
        "text.byte_pairs": "BytePairTokenizer",
        "text.fast_tokenization": "FastTokenizer",
        "text.sentence_pieces": "SentencePieceTokenizer",
        "text.base_tokenizer": "Tokenizer",
        "text.tokenizers": "load_tokenizer",
        "tokenization": "FullTokenizer",
    }
    _HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
    # These modules import TensorFlow lazily.
    _LIGHT = ("errors", "files", "pretrained.loading", "text", "tokenization")
    __all__ = sorted([*_HOMES, "__version__"])

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if not _HOMES[name].startswith(_LIGHT):
            quiet_start.import_tensorflow()  # quietly, before the module imports it
        with quiet_start.deferred_imports():
            return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)

    def __dir__() -> list[str]:
        return __all__
