"""Decodes UTF-8; for other bytes the message names the encoding that they seem to have."""

import codecs

from bert_tf.errors import UserError

_BYTE_ORDER_MARKS = {  # UTF-32's little-endian mark begins with UTF-16's
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
_MAGIC = {  # the first bytes of files that are often given instead of text
    b"\x1f\x8b": "is compressed by gzip; decompress it, or name it .gz if its flag reads that",
    b"(\xb5/\xfd": "is compressed by zstd; decompress it, or name it .zst if its flag reads that",
    b"BZh": "is compressed by bzip2; decompress it",
    b"\xfd7zXZ": "is compressed by xz; decompress it",
    b"PK\x03\x04": "is a ZIP archive or an office document; unpack it, or save its text",
    b"\xd0\xcf\x11\xe0": "is an office document; save its text",
    b"%PDF": "is a PDF; save its text",
    b"PAR1": "is a Parquet file; name it .parquet if its flag reads that",
}
_SAMPLE_BYTES = 4096
_LARGEST_SHARE = 0.3  # of bytes that are not ASCII, in Western European text
_TYPOGRAPHY = frozenset("€‚„…†‡‰‹‘’“”•–—™› ¡¢£¥§©«°´·»¿®±²³¹ºª¼½¾")


def decode_utf8(data: bytes, place: str, first_line: int = 1) -> str:
    """Returns the text of a file, or of a part of it, without a byte-order mark.

    Args:
        place: names the file in messages.
        first_line: the number of the first line in `data`, from 1.

    Raises:
        UserError: the data is not UTF-8; the message names the line.
    """
    if first_line == 1 and (name := _wide_encoding(data)):
        raise UserError(f"{place} is in {name}, not in UTF-8; {_advice(name)}")
    try:
        return data.decode("utf-8-sig" if first_line == 1 else "utf-8")
    except UnicodeDecodeError as error:
        for magic, what in _MAGIC.items():
            if first_line == 1 and data.startswith(magic):
                raise UserError(f"{place} is not text in UTF-8: it {what}") from error
        line = first_line + error.object.count(b"\n", 0, error.start)
        start = max(error.start - _SAMPLE_BYTES // 2, 0)
        name = "Windows-1252" if _is_western(error.object[start : start + _SAMPLE_BYTES]) else ""
        guess = f"it looks like {name}: " if name else ""
        raise UserError(
            f"{place}, line {line}, is not UTF-8 ({error.reason}); {guess}{_advice(name)}"
        ) from error


def is_unicode(text: str) -> bool:
    """Returns whether text has no surrogates, as which Python reads file names that are not UTF-8.

    JSON can also escape half a surrogate pair.
    """
    return not any("\ud800" <= char <= "\udfff" for char in text)


def drop_carriage_returns(text: str, place: str) -> str:
    """Returns the text of a file without carriage returns, as GFile.readline reads it.

    Raises:
        UserError: see `check_line_ends`.
    """
    check_line_ends(text, place)
    return text.replace("\r", "")


def check_line_ends(text: str, place: str) -> None:
    """Raises UserError if the lines of a file end in carriage returns only: it would be one."""
    if "\n" not in text and "\r" in text.rstrip("\r"):
        raise UserError(
            f"{place} has lines that end in a carriage return only, as on old Macs; convert the"
            " file, e.g. with `tr '\\r' '\\n'`"
        )


def _advice(name: str) -> str:
    how = f"`iconv -f {name.upper()} -t UTF-8`" if name else "iconv"
    return f"convert the file, e.g. with {how}"


def _wide_encoding(data: bytes) -> str:
    """Returns UTF-16 or UTF-32 if data has its byte-order mark or its zeros; else ""."""
    for mark, name in _BYTE_ORDER_MARKS.items():
        if data.startswith(mark):
            return name
    # ASCII has a zero in each second byte, or three in each four. UTF-8 text has no zeros.
    sample = data[: _SAMPLE_BYTES // 4 * 4]
    for name, width in (("UTF-16", 2), ("UTF-32", 4)):
        zeros = [sample[i::width].count(0) * width for i in range(width)]
        for least, zero in ((zeros[0], zeros[1:]), (zeros[-1], zeros[:-1])):
            if len(sample) >= 8 and min(zero) > 0.7 * len(sample) and least < 0.1 * len(sample):
                return name
    return ""


def _is_western(sample: bytes) -> bool:
    """Returns whether bytes look like Windows-1252: Western European letters and marks."""
    high = sum(byte > 127 for byte in sample)
    if high > _LARGEST_SHARE * len(sample) or not sample.decode("utf-8", "ignore").isascii():
        return False
    try:
        text = sample.decode("cp1252")
    except UnicodeDecodeError:
        return False
    known = (c.isascii() or c.isalpha() and c != "ÿ" or c in _TYPOGRAPHY for c in text)
    return all(known) and "\0" not in text
