"""Lists the operations of TensorFlow that `encode` takes its time for.

    python -m benchmarks.operations --model=minilm --text_file=glue/MRPC/dev.tsv --dtype=bfloat16

--model is any folder that `bert_tf.load` takes, and every line of --text_file is a text. The times
are sums over all threads, for one pass over the file.
"""

import collections
import tempfile
from collections.abc import Mapping
from pathlib import Path

from absl import flags

import bert_tf
from bert_tf.runs.flags import command_flags

FLAGS = flags.FLAGS


def read_profile(folder: str) -> Mapping[str, tuple[int, float]]:
    """Returns the calls and the seconds of each operation in a profile, the longest first."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    calls: dict[str, list[float]] = collections.defaultdict(list)
    for path in Path(folder).rglob("*.xplane.pb"):
        for plane in xplane_pb2.XSpace.FromString(path.read_bytes()).planes:
            for event in (event for line in plane.lines for event in line.events):
                name, _, operation = plane.event_metadata[event.metadata_id].name.partition(":")
                if operation.isidentifier() and not name.startswith("Thread"):
                    calls[operation].append(event.duration_ps / 1e12)
    totals = {operation: (len(seconds), sum(seconds)) for operation, seconds in calls.items()}
    return dict(sorted(totals.items(), key=lambda item: -item[1][1]))


def main() -> None:
    import tensorflow as tf

    model = bert_tf.load(FLAGS.model, dtype=FLAGS.dtype)
    texts = Path(FLAGS.text_file).read_text(encoding="utf-8").splitlines()
    model.encode(texts)
    with tempfile.TemporaryDirectory() as folder:
        with tf.profiler.experimental.Profile(folder):
            model.encode(texts)
        found = read_profile(folder)
    total = sum(seconds for _, seconds in found.values())
    print("| Operation | Calls | Seconds | Share |")
    print("|---|--:|--:|--:|")
    for operation, (calls, seconds) in [*found.items()][: FLAGS.num_operations]:
        print(f"| `{operation}` | {calls} | {seconds:.3f} | {seconds / total:.1%} |")


if __name__ == "__main__":
    flags.DEFINE_string("model", None, "Folder of the model.", required=True)
    flags.DEFINE_string("text_file", None, "File with a text in each line.", required=True)
    flags.DEFINE_enum("dtype", "float32", ["float32", "bfloat16", "auto"], "See bert_tf.load.")
    flags.DEFINE_integer("num_operations", 12, "Operations to list.", lower_bound=1)
    command_flags.run_program(main)
