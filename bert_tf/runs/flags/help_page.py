"""The text of --help."""

import dataclasses
import textwrap
from collections.abc import Iterable

_WIDTH = 80
_HEADER = "Flags are written --name=value, or --name and --noname if true or false."
_FOOTER = """\
--flagfile=FILE reads flags from a file, one on each line. --verbosity=1 logs
everything, with TensorFlow's messages and tracebacks. --helpfull also lists the
flags of the libraries in use."""


@dataclasses.dataclass(frozen=True)
class FlagHelp:
    """What --help shows of a flag.

    name: name of the flag, without dashes.
    value: placeholder for the value, such as N; None for a flag that is true or false.
    default: the default; "" for none.
    required: whether the flag must be given.
    text: the help text.
    heading: the heading under which the flag is listed.
    """

    name: str
    value: str | None
    default: str
    required: bool
    text: str
    heading: str

    def rank(self) -> int:
        """Returns the flag's sort key: required flags first, then --do_..., then the rest."""
        return 0 if self.required else 1 if self.name.startswith("do_") else 2

    def lines(self) -> list[str]:
        """Returns the flag's lines in --help."""
        form = f"--[no]{self.name}" if self.value is None else f"--{self.name}={self.value}"
        note = " (required)" if self.required else ""
        if self.default:
            note = f" (default: {self.default})"
        indent = " " * 6
        text = textwrap.wrap(
            " ".join(self.text.split()),
            _WIDTH,
            initial_indent=indent,
            subsequent_indent=indent,
            break_on_hyphens=False,
        )
        return [f"  {form}{note}", *text]


def help_page(docstring: str, flags: Iterable[FlagHelp], headings: Iterable[str]) -> str:
    """Returns a program's docstring, its lines unchanged, then its flags by heading.

    Args:
        headings: in the order to list them; a heading without flags is left out.
    """
    flags = list(flags)
    lines = [docstring.strip(), "", _HEADER, ""]
    for heading in headings:
        below = [flag for flag in flags if flag.heading == heading]
        if below:
            lines += [f"{heading}:", ""]
            for flag in sorted(below, key=FlagHelp.rank):
                lines += flag.lines()
            lines.append("")
    return "\n".join([*lines, _FOOTER, ""])
