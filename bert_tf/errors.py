"""The error that a user can mend."""


class UserError(ValueError):
    """A flag, file, record or checkpoint is wrong, and the message says what to change.

    A program ends with this message on one line and status 1. Any other exception is a defect of
    the program (status 70) or of the machine (OSError, status 74).
    """
