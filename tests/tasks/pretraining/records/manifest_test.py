"""Manifests: what makers of records write beside them, and what reads and compares it."""

import dataclasses
import json
import os
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.files import checkpoints
from bert_tf.tasks.pretraining.records import manifest
from bert_tf.tasks.pretraining.records.data import create_pretraining_data
from bert_tf.tasks.pretraining.records.data_settings import PackingSettings, PretrainingDataSettings
from bert_tf.tasks.pretraining.records.manifest import MadeFor
from bert_tf.tasks.pretraining.records.packing import pack_records
from bert_tf.text.model_vocabulary import vocabulary_digest
from bert_tf.tokenization import load_vocab
from tests.support.refusals import refusal, refuses

SPECIAL = ["[PAD]", "[unused0]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = "river bread stone walk moon see the a of and".split()


def write_vocab(path, *words):
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join([*SPECIAL, *(words or WORDS)]) + "\n")
    return str(path)


@pytest.fixture
def make(tmp_path):
    """Returns a function that makes records of ten documents, and returns their path."""
    write_vocab(tmp_path / "vocab.txt")
    document = "the river of bread\nsee the moon and a stone\nwalk the walk\n\n"
    (tmp_path / "text.txt").write_text(document * 10)

    def make(name="a.tfrecord", **more):
        options = {"vocab_file": f"{tmp_path}/vocab.txt", "max_seq_length": 16, "dupe_factor": 2}
        options |= {"input_file": f"{tmp_path}/text.txt", "output_file": f"{tmp_path}/{name}"}
        settings = PretrainingDataSettings(**{**options, **more})
        create_pretraining_data(settings)
        return settings.output_file

    return make


def read(path):
    return json.loads(Path(f"{path}.json").read_text())


def save_model(folder):
    folder.mkdir(exist_ok=True)
    checkpoints.write(str(folder / "model.ckpt-1"), {"w": np.zeros(2, np.float32)})
    return str(folder / "model.ckpt-1")


def check_model(records, prefix):
    MadeFor("mlm_nsp", init_checkpoint=prefix).check([records], "input_file")


def test_what_a_manifest_says(make, tmp_path):
    path = make(random_seed=7, do_lower_case=False)
    found = read(path)
    vocab = {token: i for i, token in enumerate([*SPECIAL, *WORDS])}
    expected = {
        "vocab_file": f"{tmp_path}/vocab.txt",
        "vocabulary": vocabulary_digest(vocab),
        "do_lower_case": False,
        "objective": "mlm_nsp",
        "max_seq_length": 16,
        "random_seed": 7,
        "dupe_factor": 2,
        "documents": 10,
        "sentences": 30,
        "tokens": 130,
        "bytes": (tmp_path / "a.tfrecord").stat().st_size,
    }
    assert {name: found[name] for name in expected} == expected
    assert found["instances"] == sum(1 for _ in tf.data.TFRecordDataset(path))


@pytest.mark.parametrize("more", [{"objective": "mlm"}, {"pack": True}, {"mask": False}])
def test_each_of_several_files_has_one(make, tmp_path, more):
    paths = make(f"x.tfrecord,{tmp_path}/y.tfrecord", **more).split(",")
    first, second = map(read, paths)
    assert first.pop("bytes") != 0 != second.pop("bytes")
    assert first == second
    assert {name: first[name] for name in more} == more


def test_packed_records_keep_it(make, tmp_path):
    path = make()
    settings = PackingSettings(input_file=f"{tmp_path}/a.tf*", output_file=f"{tmp_path}/packed")
    pack_records(settings)
    packed = read(f"{tmp_path}/packed")
    assert packed.pop("bytes") == (tmp_path / "packed").stat().st_size
    unpacked = read(path)
    del unpacked["bytes"]
    assert packed == {**unpacked, "pack": True}
    (tmp_path / "a.tfrecord.json").unlink()
    (tmp_path / "packed.json").unlink()
    pack_records(settings)  # records of the original
    assert not (tmp_path / "packed.json").exists()


@pytest.mark.parametrize(
    "more, what",
    [
        ({"do_lower_case": False}, "--do_lower_case"),
        ({"objective": "mlm"}, "--objective"),
        ({"vocab_file": "other/vocab.txt"}, "vocabularies, '{}/vocab.txt' and '{}/other/vocab.txt"),
    ],
)
def test_files_that_were_made_differently_are_refused(make, tmp_path, more, what):
    if "vocab_file" in more:
        more = {"vocab_file": write_vocab(tmp_path / "other" / "vocab.txt", *WORDS[::-1])}
    paths = [make("a.tfrecord"), make("b.tfrecord", **more)]
    start = f"--input_file: {paths[0]} and {paths[1]} were made with different "
    told = refusal(MadeFor("mlm").check, paths, "input_file")
    assert told.startswith(start + what.format(tmp_path, tmp_path))
    refuses("were made with different", pack_records, PackingSettings(input_file=",".join(paths)))


@pytest.mark.parametrize(
    "made, trained",
    [
        *(("mlm_nsp", "mlm_sop"), ("mlm", "mlm_nsp"), ("mlm_sop", "electra")),
        *(("electra", "mlm"), ("electra", "mlm_nsp")),
    ],
)
def test_objective(make, made, trained):
    path = make(objective=made, dupe_factor=1)
    MadeFor(made).check([path], "input_file")
    way = "--objective=mlm, which takes any records"
    if "electra" in (made, trained):
        way = f"make the records again with --objective={trained}"
    else:
        MadeFor("mlm").check([path], "input_file")
    assert refusal(MadeFor(trained).check, [path], "eval_input_file") == (
        f"--eval_input_file: the records of {path} were made with --objective={made}, but now it is"
        f" {trained}. Give the same --objective, or {way}. To use them anyway, delete {path}.json"
    )


def test_a_given_vocabulary_must_be_that_of_the_records(make, tmp_path):
    path = make()
    for words in (WORDS, WORDS[::-1], [*WORDS, "loaf"], WORDS[:-1], ["x"]):
        file = write_vocab(tmp_path / "other.txt", *words)
        made_for = MadeFor("mlm", file, load_vocab(file))
        if words == WORDS:
            made_for.check([path], "input_file")
            continue
        with pytest.raises(UserError, match="were made with the vocabulary .*, not with --vocab_f"):
            made_for.check([path], "input_file")
    os.remove(f"{path}.json")  # records without a manifest pass
    made_for.check([path], "input_file")
    MadeFor("mlm_sop").check([path], "input_file")


@pytest.mark.parametrize(
    "words, reason",  # of the model's vocabulary; the end of the message's reason, None: accepted
    [
        (WORDS, None),
        (WORDS[::-1], ": 'and' has the id 7 in the model's and 16 in the records'"),
        ([*WORDS, "loaf"], ": 'loaf' has the id 17 in the model's and none in the"),
        (WORDS[:-1], None),  # the records' vocabulary adds a word
    ],
)
@pytest.mark.parametrize("as_output", [False, True])
def test_vocabulary_of_the_model(make, tmp_path, words, reason, as_output):
    path = make()
    prefix = save_model(tmp_path / "model")
    model_file = write_vocab(tmp_path / "model" / "vocab.txt", *words)
    model = {"init_checkpoint": prefix}
    if as_output:
        (tmp_path / "model" / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-1"\n')
        model = {"output_dir": str(tmp_path / "model")}
    if reason is None:
        return MadeFor("mlm_nsp", **model).check([path], "input_file")
    told = refusal(MadeFor("mlm_nsp", **model).check, [path], "input_file")
    assert told.startswith(
        f"--input_file: the records of {path} were made with the vocabulary"
        f" '{tmp_path}/vocab.txt', not with the model's, {model_file}{reason}"
    )
    assert told.endswith(
        f". Make them again with --vocab_file={model_file}. To use them anyway, delete {path}.json"
    )


@pytest.mark.parametrize(
    "path", ["/", "a\0b", "\udcff", "hdfs://a/vocab.txt", "", "v" * 9000, "{}/a.tfrecord", "[gone]"]
)
def test_a_manifest_whose_vocabulary_cannot_be_read(make, tmp_path, path):
    records = make()
    content = read(records) | {"vocab_file": path.format(tmp_path), "vocabulary": "sha256 0"}
    Path(f"{records}.json").write_text(json.dumps(content))
    prefix = save_model(tmp_path / "model")
    model_file = write_vocab(tmp_path / "model" / "vocab.txt")
    told = refusal(check_model, records, prefix)
    assert f", not with the model's, {model_file}. Make them again with --vocab" in told


def test_words_instead_of_reserved_lines(make, tmp_path):
    own = tmp_path / "own" / "vocab.txt"
    write_vocab(own)
    own.write_text(own.read_text().replace("[unused1]", "loaf"))
    path = make(vocab_file=str(own))
    prefix = save_model(tmp_path / "model")
    file = Path(write_vocab(tmp_path / "model" / "vocab.txt"))
    check_model(path, prefix)
    # Without the vocabulary that made the records nothing can tell that it only adds a word.
    own.unlink()
    refuses(r"with the model's, .*/model/vocab.txt\. Make them again", check_model, path, prefix)
    # The other way round the model knows a word that the records do not have.
    file.write_text((tmp_path / "vocab.txt").read_text().replace("[unused0]", "loaf"))
    refuses(
        "'loaf' has the id 1 in the model's and none in the records'", check_model, make(), prefix
    )


@pytest.mark.parametrize("recorded", [True, False])
def test_casing_of_the_model(make, tmp_path, recorded):
    path = make(do_lower_case=not recorded)
    prefix = save_model(tmp_path / "model")
    check_model(path, prefix)
    file = tmp_path / "model" / "tokenizer_config.json"
    file.write_text(json.dumps({"do_lower_case": recorded}))
    assert (
        f"were made with --do_lower_case={not recorded}, but the model in {tmp_path}/model was"
        f" trained with --do_lower_case={recorded}. Make the records again"
    ) in refusal(check_model, path, prefix)
    if not recorded:  # a released model's name tells its casing
        prefix = save_model(tmp_path / "cased_L-12_H-768_A-12")
        refuses("was trained with --do_lower_case=False", check_model, path, prefix)


def test_a_manifest_of_earlier_records_is_ignored(make, tmp_path, caplog):
    path = make()
    with open(path, "ab") as file:
        file.write(b"more")
    MadeFor("mlm_sop").check([path], "input_file")
    assert f"{path}.json is ignored: it describes a file of" in caplog.text


@pytest.mark.parametrize(
    "text, message",
    [
        ("{", "is not JSON"),
        ("[]", "with do_lower_case, objective, vocab_file, vocabulary"),
        ('{"vocab_file": "v", "vocabulary": "x", "do_lower_case": true}', "must say what made the"),
    ],
)
def test_damaged_manifests(make, text, message):
    path = make()
    Path(f"{path}.json").write_text(text)
    with pytest.raises(UserError, match=f"^{path}.json .*{message}.*or delete it, and the rec"):
        MadeFor("mlm_nsp").check([path], "input_file")


def test_patterns_do_not_take_manifests_for_records(make, tmp_path):
    path = make()
    assert manifest.record_files(f"{path}*", "input_file") == [path]
    assert manifest.record_files(f"{path}.json", "input_file") == [f"{path}.json"]
    assert manifest.record_files(f"{path}.json,{path}", "input_file") == [path]
    shard = f"{tmp_path}/b-00002-of-00003"
    assert manifest.manifest_file(shard) == f"{tmp_path}/b-shards-00002.json"
    assert manifest.manifest_file(f"{shard}.rec") == f"{tmp_path}/b-shards-00002.json"


@pytest.mark.parametrize("ending", ["", ".rec"])
def test_a_set_of_shards_is_whole_or_refused(tmp_path, ending):
    def shard(i, name="b"):
        return f"{tmp_path}/{name}-{i:05}-of-00005{ending}"

    names = [shard(i) for i in range(5)]
    for path in (*names, f"{tmp_path}/b-shards.json", f"{tmp_path}/b-shards-00002.json"):
        Path(path).write_text("x")
    assert manifest.record_files(f"{tmp_path}/*", "input_file") == names
    some = manifest.record_files(f"{tmp_path}/b-0000[13]*", "input_file")
    assert some == [names[1], names[3]]  # the others are there, for --eval_input_file, say
    Path(shard(4, "c")).write_text("x")
    for path in names[1], names[4]:
        os.remove(path)
    told = refusal(manifest.record_files, f"{tmp_path}/b-*,{names[0]}", "input_file")
    assert told.startswith("--input_file: 2 shards of these records are missing, so training would")
    assert f"; the first is {names[1]}. Put them back, or make them again." in told
    told = refusal(manifest.record_files, shard(4, "c"), "eval_input_file")
    assert told.startswith("--eval_input_file: 4 shards of these records are missing")
    assert f"; the first is {shard(0, 'c')}. " in told


@pytest.mark.parametrize("text", ['{"hidden_size": 3}', "[]", "# notes"])
def test_no_other_file_is_replaced(make, tmp_path, text):
    file = tmp_path / "a.tfrecord.json"
    file.write_text(text)
    for more in ({}, {"heldout_fraction": 0.3, "heldout_output_file": f"{tmp_path}/a.tfrecord"}):
        message = f"^{file} .*needed for the manifest of --.*move it"
        refuses(message, make, "b.tfrecord" if more else "a.tfrecord", **more)
    assert file.read_text() == text
    file.unlink()
    make()
    make()  # an earlier manifest is replaced


def test_what_gets_no_manifest(make, tmp_path):
    make("../../../../../../../dev/null")
    assert not os.path.exists("/dev/null.json")
    (tmp_path / "text.txt").write_text("\n\n \n")
    refuses("must have tokens", make)
    assert not (tmp_path / "a.tfrecord.json").exists()


def test_counts_add_up(make, tmp_path):
    make("a.tfrecord")
    make("b.tfrecord")
    paths = [str(tmp_path / name) for name in ("a.tfrecord", "b.tfrecord", "none.tfrecord")]
    one, both = (manifest.counts_of(x) for x in (paths[:1], paths))
    assert one.tokens > one.sentences > 0
    assert dataclasses.astuple(both) == tuple(2 * x for x in dataclasses.astuple(one))
