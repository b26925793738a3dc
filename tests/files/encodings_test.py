import bz2
import gzip
import io
import lzma
import zipfile

import pytest

from bert_tf.errors import UserError
from bert_tf.files.encodings import decode_utf8

TEXT = "Crème brûlée – 20 €\nL’été, “Straße” und Gemüse\n" * 3


def test_utf8_is_decoded_without_a_byte_order_mark_at_the_start():
    assert decode_utf8(TEXT.encode("utf-8-sig"), "--x") == TEXT
    assert decode_utf8(TEXT.encode("utf-8-sig"), "--x", first_line=9) == "\ufeff" + TEXT
    assert decode_utf8(b"", "--x") == ""


@pytest.mark.parametrize(
    ("encoding", "name"),
    [
        ("utf-16", "UTF-16"),  # with a byte-order mark
        ("utf-32", "UTF-32"),
        ("utf-16-le", "UTF-16"),
        ("utf-16-be", "UTF-16"),
        ("utf-32-le", "UTF-32"),
        ("utf-32-be", "UTF-32"),
    ],
)
def test_wide_encodings_are_named(encoding, name):
    with pytest.raises(UserError) as error:
        decode_utf8("sentence,label\nIt was good.,1\n".encode(encoding), "--data_dir: train.csv")
    assert str(error.value) == (
        f"--data_dir: train.csv is in {name}, not in UTF-8; convert the file, e.g. with"
        f" `iconv -f {name} -t UTF-8`"
    )


@pytest.mark.parametrize("text", [TEXT, "a\nb\nEspañol: ¿qué?\n", "x\n" * 9999 + "don’t\n" * 99])
def test_windows_1252_is_named(text):
    data = text.encode("cp1252")
    first = next(i for i, line in enumerate(text.split("\n"), 7) if not line.isascii())
    with pytest.raises(UserError) as error:
        decode_utf8(data, "--x=y", first_line=7)
    assert str(error.value).startswith(f"--x=y, line {first}, is not UTF-8 (invalid ")
    assert str(error.value).endswith(
        "; it looks like Windows-1252: convert the file, e.g. with `iconv -f WINDOWS-1252 -t UTF-8`"
    )


@pytest.mark.parametrize(
    "data",
    [
        "Съешь ещё этих мягких булок\n".encode("cp1251"),
        "気持ちのよい朝\n".encode("shift-jis"),
        bytes(range(128, 256)),  # no text at all
        "text in UTF-8: é, ß\nwith one damaged byte: \xff".encode()[:-1],
    ],
)
def test_no_encoding_is_named_where_none_is_likely(data):
    with pytest.raises(UserError, match=r"is not UTF-8 \(.*\); convert the file, e.g. with iconv$"):
        decode_utf8(data, "--x")


@pytest.mark.parametrize("text", ["\0", "\0" * 99, "a\0b\0", "a,\0\nb,\0\nc,\0\nd\n"])
def test_zeros_in_a_text_are_no_wide_encoding(text):
    assert decode_utf8(text.encode(), "--x") == text


def zipped(text: bytes) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.txt", text)
    return content.getvalue()


@pytest.mark.parametrize(
    "data,message",
    [
        (
            gzip.compress(b"the moon\n" * 9, mtime=0),
            "is compressed by gzip; decompress it, or name it .gz",
        ),
        (bz2.compress(b"the moon\n"), "is compressed by bzip2; decompress it"),
        (lzma.compress(b"the moon\n"), "is compressed by xz; decompress it"),
        (zipped(b"the moon\n" * 99), "is a ZIP archive or an office document; unpack it, or save"),
        (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj", "is a PDF; save its text"),
        (b"PAR1\x15\x00\xff\xfe", "is a Parquet file; name it .parquet"),
    ],
)
def test_files_that_are_no_text_are_named(data, message):
    with pytest.raises(UserError, match=f"^FLAG: a.txt is not text in UTF-8: it {message}"):
        decode_utf8(data, "FLAG: a.txt")
