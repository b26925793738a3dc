"""Fuzzes files of --flagfile: the values that a line gives, or one message."""

import random
from pathlib import Path
from unittest import mock

from absl import flags

from bert_tf.errors import UserError
from bert_tf.runs.flags import command_line
from tests.fuzz.cases import attempt, damage

_GOOD = ("--size=7", "-size=7", "--rate=0.5", "--name=é x", "--names=a,b", "--on", "--noon")
_ODD = (
    *("--size=x", "--size 7", "--size", "--size=" + "9" * 5000, "--rate=nan", "--rate=1e999"),
    *("--on=maybe", "-", "--noon=1", "--unknown=1", "--nosize", "word", "--", "#", "# note", "//"),
    *("\t--on\t", "--=1", "--name=\0", "--name=" + "x" * 5000, "--" + "x" * 5000, "--name='a b'"),
    *("--names=,", "\x85", "--undefok=unknown", "--flagfile=", "--flagfile=/", "--flagfile=none"),
    *("--name=\u2028", "---on"),
)


def _flags() -> flags.FlagValues:
    values = flags.FlagValues()
    flags.DEFINE_integer("size", 1, "", flag_values=values)
    flags.DEFINE_float("rate", 0.1, "", flag_values=values)
    flags.DEFINE_string("name", "", "", flag_values=values)
    flags.DEFINE_list("names", [], "", flag_values=values)
    flags.DEFINE_bool("on", False, "", flag_values=values)
    return values


def fuzz_flagfiles(random: random.Random, folder: Path) -> None:
    path = folder / "x.flags"
    lines = random.choices(_GOOD, k=random.randint(0, 5))
    odd = random.random() < 0.6
    if odd:
        lines += random.choices((*_ODD, f"--flagfile={folder}"), k=2)
        random.shuffle(lines)
    end = random.choice(["\n", "\r\n"])
    data = end.join(lines).encode()
    damaged = random.random() < 0.2
    path.write_bytes(damage(random, data) if damaged else data)
    words = [f"--flagfile={path}", *random.choices(_GOOD, k=random.randrange(2))]

    def parse() -> flags.FlagValues:
        with mock.patch.object(flags, "FLAGS", _flags()) as values:
            try:
                assert command_line.parse(words) == []
            except command_line.CommandLineError as error:
                raise UserError(str(error)) from error
            return values

    message, values = attempt(parse, naming="")
    if odd or damaged:
        return
    assert message is None, message
    given = "".join([*lines, *words])
    assert values["size"].value == (7 if "size" in given else 1)
    assert values["rate"].value == (0.5 if "rate" in given else 0.1)
    assert values["name"].value == ("é x" if "--name=" in given else "")
    assert values["names"].value == (["a", "b"] if "names" in given else [])
    switches = [line for line in (*lines, *words[1:]) if line in ("--on", "--noon")]
    assert values["on"].value == (switches[-1:] == ["--on"])
