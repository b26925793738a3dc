"""Keeps the texts of examples on disk while a model is trained, to be shown beside predictions."""

import json
import tempfile
from array import array
from collections.abc import Iterable, Mapping
from typing import Any

# A text, a number, or None where an example lacks the column.
Cell = str | float | int | None


class KeptRows:
    """Rows in a temporary file; `rows[i]` reads one.

    A row takes 8 bytes of memory. The file has no name on Linux, so nothing is left of it even if
    the program is killed.

    Attributes:
        columns: the names of all columns, in the order in which they first occur.

    Args:
        rows: the cells of each row by column.
        folder: where the file is; None for the system's folder of temporary files.

    Raises:
        OSError: the file cannot be written.
    """

    def __init__(self, rows: Iterable[Mapping[str, Cell]], folder: str | None = None):
        columns: dict[str, None] = {}
        self._starts = array("Q")
        try:
            self._file = tempfile.TemporaryFile(dir=folder)
            for row in rows:
                self._starts.append(self._file.tell())
                self._file.write(json.dumps(row, default=_number).encode() + b"\n")
                columns |= dict.fromkeys(name for name, cell in row.items() if cell is not None)
            self._file.flush()
        except OSError as error:
            raise OSError(
                "Cannot keep the texts of the examples in a temporary file in"
                f" {folder or tempfile.gettempdir()}: {error.strerror}. Make space there, or name"
                " another folder in the environment variable TMPDIR"
            ) from error
        self.columns = list(columns)

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, number: int) -> dict[str, Any]:
        self._file.seek(self._starts[number])
        return json.loads(self._file.readline())

    def close(self) -> None:
        self._file.close()


def _number(value: Any) -> Any:
    """Returns a number of NumPy, such as a processor's label, as Python's own."""
    return value.item()
