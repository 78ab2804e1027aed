"""Errors of the library as exceptions."""


class Error(OSError):
    """The library or the driver failed. errno is the reason, and remedy says what to do."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(number, message)
        self.remedy: str = message.partition(": ")[2]
