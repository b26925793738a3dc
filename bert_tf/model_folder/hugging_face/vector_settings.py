"""Settings of sentence-transformers: how a text's vector is made, and a pair's score."""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

from bert_tf.errors import UserError, listed, quoted
from bert_tf.files import storage, weight_files
from bert_tf.files.paths import real_path
from bert_tf.files.whole_files import JsonKeys, Needed, read_checked, write_json
from bert_tf.start import lazy_tensorflow as tf
from bert_tf.text.tokenizer_settings import TOKENIZER_CONFIG

Text = TypeVar("Text", str, tuple[str, str])

MODULES_FILE = "modules.json"
SETTINGS_FILE = "config_sentence_transformers.json"
IDENTITY = "torch.nn.modules.linear.Identity"
SIGMOID = "torch.nn.modules.activation.Sigmoid"
# `activation_fn` in SETTINGS_FILE and in config.json's `sentence_transformers`; until version 3,
# `sbert_ce_default_activation_function` in config.json.
FUNCTION = Needed(
    (IDENTITY, SIGMOID, None),
    f"rank knows only this function and {SIGMOID}. Delete the key to load the model; its scores are"
    " then sigmoids",
)
_KIND = "CrossEncoder"
_NO_PROMPT = Needed((None,), "prompts of cross-encoders are not supported. Set it to null")
_CROSS_ENCODER_SETTINGS = JsonKeys(
    used={"activation_fn"},
    needed={
        "model_type": Needed((_KIND,)),
        "activation_fn": FUNCTION,
        "default_prompt_name": _NO_PROMPT,
    },
    harmless={"__version__", "prompts", "requirements"},
)
# Values of a cross-encoder in the Transformer's file, such as sentence_bert_config.json.
TRANSFORMER_VALUES = {
    "transformer_task": Needed(("sequence-classification",)),
    "module_output_name": Needed(("scores",)),
    "modality_config": Needed(({"text": {"method": "forward", "method_output_name": "logits"}},)),
    "do_lower_case": Needed((False, None)),
}
_TRANSFORMER_FILES = [
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
]  # the first that is not empty is used
_POOLING_FOLDER = "1_Pooling"
# Files and folders that `write_vector_settings` writes.
VECTOR_FILES = (MODULES_FILE, _TRANSFORMER_FILES[0], SETTINGS_FILE, _POOLING_FOLDER)
_DEFAULT_PROMPT = "default"  # name of the prompt in files that we write
_MODULES = ("Transformer", "Pooling", "Normalize")
SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")

# Keys of poolings until version 5, in the order in which several are joined -> version 6's names.
_POOLINGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_WANTED = {bool: "true or false", dict: "a dictionary"}  # other values are positive numbers
_NO_ARGUMENTS = Needed(({}, None), "arguments for transformers are not supported. Delete the key")
_MODULE_KEYS = JsonKeys(
    used={"path", "type"}, needed={"kwargs": Needed(([], None))}, harmless={"idx", "name"}
)
_TRANSFORMER_KEYS = JsonKeys(
    used={"max_seq_length", "do_lower_case"},
    needed={
        "transformer_task": Needed(("feature-extraction",)),
        "module_output_name": Needed(("token_embeddings",)),
        "modality_config": Needed(
            ({"text": {"method": "forward", "method_output_name": "last_hidden_state"}},)
        ),
        "processing_kwargs": _NO_ARGUMENTS,
        **{
            f"{what}_{end}": _NO_ARGUMENTS
            for what in ("model", "tokenizer", "processor", "config")
            for end in ("args", "kwargs")
        },
    },
    # Removal of padding, and keys for `encode_query` and `encode_document` only.
    harmless={"unpad_inputs", "query_length", "document_length", "query_expansion"},
)
_CROSS_ENCODER_KEYS = dataclasses.replace(
    _TRANSFORMER_KEYS, used=(), needed={**_TRANSFORMER_KEYS.needed, **TRANSFORMER_VALUES}
)
_POOLING_KEYS = JsonKeys(
    used={"pooling_mode", "include_prompt", *_POOLINGS},
    harmless={"word_embedding_dimension", "embedding_dimension"},
)
_VECTOR = Needed(("sentence_embedding", None))
_NORMALIZE_KEYS = JsonKeys(
    used=(), needed={"module_input_name": _VECTOR, "module_output_name": _VECTOR}
)
_SETTINGS_KEYS = JsonKeys(
    used={"prompts", "default_prompt_name", "similarity_fn_name", "truncate_dim"},
    needed={
        "model_type": Needed(("SentenceTransformer",)),
        "similarity_fn_name": Needed(
            (*SIMILARITIES, None), f"the known values are {', '.join(SIMILARITIES)}"
        ),
    },
    harmless={"__version__", "requirements"},
)


class VectorSettings(NamedTuple):
    """How the vector of a text is made; the defaults apply to folders without settings."""

    poolings: tuple[str, ...] = ("mean",)  # names of `pooling.POOLINGS`; the results are joined
    normalize: bool = False  # whether the vector is scaled to length 1
    max_seq_length: int | None = None  # longest input in word pieces; None for no limit
    do_lower_case: bool = False  # whether to use the tokenizer's `after_lowering`
    prompt: str = ""  # put before every text, or before the first text of a pair
    include_prompt: bool = True  # whether the pooling includes the prompt's tokens
    truncate_dim: int | None = None  # number of elements to keep of the vector; None for all
    similarity: str = "cosine"  # one of `SIMILARITIES`
    # (name, text) of the other prompts, without empty ones
    prompts: tuple[tuple[str, str], ...] = ()

    @property
    def named_prompts(self) -> dict[str, str]:
        """The text of each prompt; sentence-transformers always has `query` and `document`."""
        own = {_DEFAULT_PROMPT: self.prompt} if self.prompt else {}
        return {"query": "", "document": "", **own, **dict(self.prompts)}

    def prepared(self, text: Text) -> Text:
        if isinstance(text, tuple):
            return self.prompt + text[0], text[1]
        return self.prompt + text


def transformer_folder(folder: str) -> str:
    """Returns the folder of the weights: `folder`, or a subfolder named in its modules.json."""
    modules = _modules(folder)
    return os.path.join(folder, modules["Transformer"]) if modules.get("Transformer") else folder


def read_as_hugging_face(vocab_file: str, model: str | None) -> bool:
    """Returns whether a vocabulary belongs to `model`, a Hugging Face model that a flag names.

    Other vocabularies are read by the original's rules, unless files beside them say otherwise;
    see `tokenizer_files.read_settings`.
    """
    folder = os.path.dirname(vocab_file)
    if not model or not weight_files.is_hugging_face(folder):
        return False
    model = weight_files.folder_named(model).rstrip("/")
    return real_path(folder) in map(real_path, (model, transformer_folder(model)))


def read_vector_settings(folder: str) -> VectorSettings:
    """Returns the settings in a folder; the defaults if it has no modules.json."""
    modules = _modules(folder)
    if not modules:
        return VectorSettings()
    if "Pooling" not in modules:  # a cross-encoder, which makes no vectors
        _read_transformer(transformer_folder(folder), _CROSS_ENCODER_KEYS)
        return VectorSettings()
    if modules.get("Normalize"):
        read_checked(os.path.join(folder, modules["Normalize"], "config.json"), _NORMALIZE_KEYS)
    poolings, include_prompt = _pooling(os.path.join(folder, modules["Pooling"], "config.json"))
    transformer = transformer_folder(folder)
    config, path = _read_transformer(transformer, _TRANSFORMER_KEYS)
    do_lower_case = _value(config, "do_lower_case", False, path, bool)
    length = _value(config, "max_seq_length", None, path, int)
    length = tokenizer_length(transformer) if length is None else length
    output = _output(os.path.join(folder, SETTINGS_FILE))
    settings = poolings, "Normalize" in modules, length, do_lower_case
    return VectorSettings(*settings, include_prompt=include_prompt, **output)


def tokenizer_length(folder: str) -> int | None:
    """Returns the longest input according to `tokenizer_config.json`, or None."""
    path = os.path.join(folder, TOKENIZER_CONFIG)
    config = read_checked(path)
    key = "model_max_length" if "model_max_length" in config else "max_len"
    # A tokenizer without a limit has 1e30.
    length = _value(config, key, None, path, int | float)
    return length and int(length)


def write_vector_settings(folder: str, settings: VectorSettings, hidden_size: int) -> None:
    """Writes the files of sentence-transformers into a model's folder.

    With the default settings, it removes the modules.json that an earlier model left.
    """
    modules_file = os.path.join(folder, MODULES_FILE)
    if settings == VectorSettings():
        if tf.io.gfile.exists(modules_file):
            tf.io.gfile.remove(modules_file)
        return
    paths = ["", _POOLING_FOLDER, *(["2_Normalize"] if settings.normalize else [])]
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(zip(paths, _MODULES, strict=False))
    ]
    pooling = {
        "embedding_dimension": hidden_size,
        "pooling_mode": list(settings.poolings),
        "include_prompt": settings.include_prompt,
    }
    output = {
        "prompts": {**dict(settings.prompts), _DEFAULT_PROMPT: settings.prompt},
        "default_prompt_name": _DEFAULT_PROMPT,
        "similarity_fn_name": settings.similarity,
        "truncate_dim": settings.truncate_dim,
    }
    values = {name: getattr(settings, name) for name in ("max_seq_length", "do_lower_case")}
    tf.io.gfile.makedirs(os.path.join(folder, _POOLING_FOLDER))
    for name, content in (
        (os.path.join(_POOLING_FOLDER, "config.json"), pooling),
        (_TRANSFORMER_FILES[0], values),
        (SETTINGS_FILE, output),
        (MODULES_FILE, modules),
    ):
        write_json(os.path.join(folder, name), content)


def check_mean_vectors(folder: str) -> None:
    """Raises UserError unless a model's vectors are means over the tokens of the plain text."""
    check_are_means(read_vector_settings(folder), os.path.join(folder, MODULES_FILE))


def check_are_means(settings: VectorSettings, path: str) -> None:
    default = VectorSettings()
    names = ("poolings", "do_lower_case", "prompt", "truncate_dim")
    others = {x: getattr(settings, x) for x in names if getattr(settings, x) != getattr(default, x)}
    if others:
        raise UserError(
            f"{path} and its modules' files ask for vectors with"
            f" {', '.join(f'{name}={quoted(value)}' for name, value in others.items())}; this"
            " program makes the mean over the tokens of the plain text. Use"
            " bert_tf.load(FOLDER).encode, or delete modules.json to make means anyway"
        )


def _modules(folder: str) -> dict[str, str]:
    """Returns kind of module -> its path in the folder; {} without a modules.json."""
    file = os.path.join(folder, MODULES_FILE)
    modules = read_checked(file, _MODULE_KEYS, list)
    types = [str(module.get("type") if isinstance(module, dict) else module) for module in modules]
    kinds = [kind.rpartition(".")[-1] for kind in types]
    remedy = (
        "To load the model without these modules, delete the file. The model's vectors will then"
        " differ from sentence-transformers'"
    )
    pairs = zip(types, kinds, strict=True)
    others = [
        x for x, kind in pairs if kind not in _MODULES or not x.startswith("sentence_transformers.")
    ]
    if others:
        raise UserError(
            f"{file} lists {listed(others)}; only sentence_transformers' {', '.join(_MODULES)} are"
            f" supported. {remedy}"
        )
    has_vectors = tuple(kinds) in (_MODULES[:2], _MODULES)
    if modules and not has_vectors and not (len(kinds) == 1 and is_cross_encoder(folder)):
        raise UserError(
            f"{file} must list {_MODULES[0]}, {_MODULES[1]} and, if vectors have length 1,"
            f" {_MODULES[2]}, in this order; it lists {listed(kinds)}. {remedy}"
        )
    paths = [module.get("path") for module in modules]
    for path in paths:
        is_path = isinstance(path, str) and storage.is_path(path)
        if not is_path or os.path.isabs(path) or ".." in path.split("/"):
            raise UserError(
                f"{file}: path must be a folder within {folder}; it is {quoted(path)}. Correct it"
            )
    return dict(zip(kinds, paths, strict=True))


def _pooling(path: str) -> tuple[tuple[str, ...], bool]:
    """Returns the poolings in a file, and whether they include the prompt's tokens."""
    config = read_checked(path, _POOLING_KEYS)
    if not config:
        raise UserError(
            f"{path} must say how vectors are pooled, since {MODULES_FILE} names its folder; it is"
            " missing or empty. Copy or download it again"
        )
    chosen = [name for key, name in _POOLINGS.items() if _value(config, key, False, path, bool)]
    if "pooling_mode" in config:
        mode = config["pooling_mode"]
        chosen = mode if isinstance(mode, list) else [mode]
    for name in chosen:
        if name not in _POOLINGS.values():
            raise UserError(
                f"{path}: pooling_mode must be one or more of {', '.join(_POOLINGS.values())}; it"
                f" is {quoted(config['pooling_mode'])}. Choose a different model"
            )
    include_prompt = _value(config, "include_prompt", True, path, bool)
    return tuple(chosen) or ("mean",), include_prompt


def _read_transformer(folder: str, keys: JsonKeys) -> tuple[dict[str, Any], str]:
    paths = [os.path.join(folder, name) for name in _TRANSFORMER_FILES]
    path = next((path for path in paths if read_checked(path)), paths[0])
    return read_checked(path, keys), path


def _output(path: str) -> dict[str, Any]:
    """Returns `prompt`, `truncate_dim`, `similarity` and `prompts` of `VectorSettings`."""
    config = read_checked(path, _SETTINGS_KEYS)
    given = _value(config, "prompts", {}, path, dict)
    prompts = {"query": "", "document": ""} | {key: text or "" for key, text in given.items()}
    name = config.get("default_prompt_name")
    prompt = "" if name is None else prompts.get(name) if isinstance(name, str) else None
    if not isinstance(prompt, str):
        raise UserError(
            f"{path}: default_prompt_name must be the name of a text in prompts, {listed(prompts)};"
            f" it is {quoted(name)}. Correct it"
        )
    found = {"prompt": prompt, "similarity": config.get("similarity_fn_name") or "cosine"}
    found["truncate_dim"] = _value(config, "truncate_dim", None, path, int)
    texts = {key: text for key, text in given.items() if text and key != _DEFAULT_PROMPT}
    for key, text in texts.items():
        if not isinstance(text, str):
            raise UserError(
                f"{path}: prompts must be texts; {quoted(key)} is {quoted(text)}. Correct it"
            )
    return {**found, "prompts": tuple(texts.items())}


def _value(config: dict[str, Any], key: str, default: Any, path: str, kind: Any) -> Any:
    """Returns the checked value of a key; the default if it is missing or null."""
    value = config.get(key)
    if value is None:
        return default
    is_number = kind not in _WANTED
    if not isinstance(value, kind) or (is_number and (isinstance(value, bool) or value < 1)):
        wanted = _WANTED.get(kind, "a positive number")
        raise UserError(f"{path}: {key} must be {wanted}; it is {quoted(value)}. Correct it")
    return value


def is_cross_encoder(folder: str) -> bool:
    """Returns whether a folder has the settings file of a cross-encoder (version 5 and later)."""
    return read_checked(os.path.join(folder, SETTINGS_FILE)).get("model_type") == _KIND


def read_score_function(folder: str, config: Mapping[str, Any] | None, has_classes: bool) -> str:
    """Returns the function, IDENTITY or SIGMOID, that turns a single output into a score.

    The default is SIGMOID in Hugging Face's format, as in the class CrossEncoder, and IDENTITY in a
    checkpoint (`config` is None), which was trained to predict numbers.
    """
    path = os.path.join(folder, SETTINGS_FILE)
    own = read_checked(path, _CROSS_ENCODER_SETTINGS) if is_cross_encoder(folder) else {}
    config = config or {}
    named = (
        own.get("activation_fn")
        or (config.get("sentence_transformers") or {}).get("activation_fn")
        or config.get("sbert_ce_default_activation_function")
    )
    if has_classes and named == SIGMOID:
        place = path if own.get("activation_fn") else os.path.join(folder, "config.json")
        raise UserError(
            f"{place} names the function {quoted(named)} for the outputs of the model, but it has"
            " several classes, whose probabilities are a softmax. Delete the key to load the model"
        )
    return named or (SIGMOID if config else IDENTITY)


def write_score_function(folder: str, function: str) -> None:
    """Writes the score function, except the identity, into the folder of a checkpoint."""
    # An embedding model's settings use the same file, and take precedence.
    if function != IDENTITY and not tf.io.gfile.exists(os.path.join(folder, MODULES_FILE)):
        content = {"model_type": _KIND, "activation_fn": function}
        write_json(os.path.join(folder, SETTINGS_FILE), content)
