"""Exports a trained model for servers, other languages and phones.

    python -m tools.export --input=FOLDER --output=FOLDER --format=saved_model
    python -m tools.export --input=FOLDER --output=FOLDER --format=onnx --quantize=int8

--input is any folder that bert_tf.load takes. The tool writes to --output

    saved_model.pb, variables/    or model.onnx, or model.tflite
    README.md                     how to call the model from Python
    export.json                   inputs, outputs and classes, for programs
    bert_config.json, vocab.txt, tokenizer_config.json, labels.txt
                                  of the model; labels.txt if it has classes

The tool runs the exported model once and prints the largest difference between its outputs and the
original model's. Inputs may have any batch size and length unless --batch_size or --seq_length
fixes them.
"""

if __name__ == "__main__" and not __package__:
    raise SystemExit("Run this from the folder above: python -m tools.export")

from bert_tf.export.settings import ExportSettings
from bert_tf.runs.flags import command_flags


def main() -> None:
    from bert_tf.export.exporting import export  # imports TensorFlow

    export(command_flags.settings_from_flags(ExportSettings))


if __name__ == "__main__":
    command_flags.define_flags(ExportSettings)
    command_flags.run_program(main)
