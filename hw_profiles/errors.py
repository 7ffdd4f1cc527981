"""What a profile's reader or measurer raises for a user, with the key, the value and what is expected."""

from __future__ import annotations


class ProfileError(Exception):
    """A profile that cannot be found, read, resized or measured; a mistake of usage or input, not of the program."""

    def __init__(self, message: str, *, key: str = "", value: object = None, expected: str = "") -> None:
        """Keeps the parts of the text as attributes.

        Args:
            message: The whole text for a person: what is wrong, by how much, and what to try.
            key: Dotted key inside the profile, such as `levels.0.size`; "" where no key is at fault.
            value: The bad value.
            expected: What the key should hold.
        """
        super().__init__(message)
        self.key = key
        self.value = value
        self.expected = expected


class RanksFailed(ProfileError):  # noqa: N818 - reads as the sentence that it is
    """Measuring was begun and ranks failed; `ranks` names them where that is known."""

    def __init__(self, message: str, ranks: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.ranks = ranks
