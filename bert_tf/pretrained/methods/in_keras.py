"""`KerasModel`: a loaded model whose batches Keras computes."""

from typing import Any

import keras

from bert_tf.model.layers import dtype_name
from bert_tf.pretrained.build import KerasRuntime, answering_dtype
from bert_tf.pretrained.folder import ModelFolder
from bert_tf.pretrained.methods.base import LoadedModel, check_process, mark_loaded


class KerasModel(LoadedModel):
    """The model of a folder in Keras. For the attributes see `Pretrained`."""

    model: keras.Model

    def __init__(self, folder: ModelFolder, dtype: Any = None):
        """Builds the model; users call `load` instead."""
        mark_loaded()
        self._dtype = dtype_name(dtype)
        self._set_folder(folder)

    def _set_folder(self, folder: ModelFolder) -> None:
        runtime = KerasRuntime(folder, answering_dtype(self._dtype))
        self.model = runtime.main
        self._hold(folder, runtime)

    @property
    def _folder(self) -> ModelFolder:
        """What the folder holds; every method needs it. Raises UserError in a forked process."""
        check_process()
        return self._own_folder
