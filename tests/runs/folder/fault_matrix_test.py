"""The matrix of faults is what docs/reliability.md says; every byte of a checkpoint counts."""

import shutil

import pytest

from bert_tf.files import checkpoints
from tests.support import fault_matrix
from tests.support.line_task import phases, trainer, write
from tests.support.pretraining_runs import ROOT, variables

PAGE = f"{ROOT}/docs/reliability.md"


@pytest.mark.slow
def test_every_instant_with_every_fault(tmp_path):
    with open(PAGE, encoding="utf-8") as file:
        page = file.read()
    found = fault_matrix.table(tmp_path)
    cells = sum(line.count(" same bits ") + line.count(" refused ") for line in found.splitlines())
    assert cells >= 60
    assert found in page


def test_every_byte_of_the_data_counts(tmp_path):
    """A checkpoint's tensors have checksums: with any byte changed one of them is not read."""
    files = [write(tmp_path / "a.tfrecord", 32, 1)]
    trainer(tmp_path / "out", save_checkpoints_steps=2).train(phases(files, (2, 16)))
    prefix = tmp_path / "out/model.ckpt-2"
    data = prefix.with_name("model.ckpt-2.data-00000-of-00001")
    copy = tmp_path / "copy" / prefix.name
    copy.parent.mkdir()
    shutil.copyfile(f"{prefix}.index", f"{copy}.index")
    whole = data.read_bytes()
    assert len(whole) > 40
    assert len(variables(prefix)) == 7  # kernel, bias, their slots, the step
    for place in range(len(whole)):
        for bit in range(8):
            changed = bytearray(whole)
            changed[place] ^= 1 << bit
            copy.with_name(data.name).write_bytes(changed)
            with pytest.raises(checkpoints.DamagedCheckpointError):
                variables(copy)
