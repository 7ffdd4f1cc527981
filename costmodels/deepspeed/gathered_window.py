"""How much is gathered at each moment of a micro-batch, counted as parameters come and go."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from costmodels.deepspeed.micro_batch import Windows


class GatheredWindow:
    """The elements that are gathered, of parameters that do not persist; it writes down each change.

    Kept as it changes, since it is looked at at every hook.
    """

    def __init__(self, elements: Sequence[int], available: Iterable[int]) -> None:
        """Begins with what is available.

        Args:
            elements: Of each parameter; 0 of those that persist.
            available: Indices of the parameters that are gathered.
        """
        self._elements = elements
        self._live_elements = self.sum_of(available)
        self._arriving: set[int] = set()
        """Parameters whose message nobody has waited for."""
        self._arriving_elements = 0
        self._begun: set[int] = set()
        """Of what arrives, the parameters whose message began in the present segment."""
        self._begun_elements = 0
        self._joined_elements = 0
        """Of the buffers out of which joined parameters have been copied: the last one that is asked for frees it."""
        self._fields: list[int] = []
        """The fields of `Windows` for one moment after the other."""
        self._seen: tuple[int, int, int, int] | None = None
        """The fields of the last window."""
        self.segment = -1

    def sum_of(self, parameters: Iterable[int]) -> int:
        """Returns their elements, as windows count them."""
        elements = self._elements
        return sum([elements[parameter] for parameter in parameters])

    @property
    def windows(self) -> Windows:
        """All that was written down."""
        return Windows(*np.array(self._fields, np.int64).reshape(-1, 4).T)

    def is_arriving(self, parameter: int) -> bool:
        """Whether nobody has waited for the parameter's message."""
        return parameter in self._arriving

    def enter(self, segment: int) -> None:
        """Goes on to `segment`; those without a hook, between the last one and this, hold what the last one left."""
        for number in range(self.segment + 1, segment):
            self._seen = (number, self._live_elements + self._joined_elements, self._arriving_elements, 0)
            self._fields += self._seen
        if segment != self.segment:
            self.segment = segment
            self._begun.clear()
            self._begun_elements = 0
            self.look()

    def look(self) -> None:
        """Writes down what is gathered now, where that is not what was written last."""
        held_elements = self._live_elements + self._joined_elements
        seen = (self.segment, held_elements, self._arriving_elements, self._begun_elements)
        if seen != self._seen:
            self._seen = seen
            self._fields += seen

    def stop_arriving(self) -> None:
        """Takes all messages as waited for; their elements count on until `forget_messages`."""
        self._arriving.clear()

    def forget_messages(self) -> None:
        """Takes all messages as over, with their buffers given up."""
        self._arriving.clear()
        self._begun.clear()
        self._arriving_elements = self._joined_elements = self._begun_elements = 0

    def begin(self, message: tuple[int, ...]) -> None:
        """Adds the parameters of a message that begins: they count as gathered from now on."""
        elements = self.sum_of(message)
        self._live_elements += elements
        self._arriving.update(message)
        self._arriving_elements += elements
        self._begun.update(message)
        self._begun_elements += elements

    def wait(self, parameter: int, message: tuple[int, ...]) -> None:
        """All parameters of a message are there once one is waited for; joined ones as copies beside the buffer."""
        if parameter not in self._arriving:
            return
        elements = self.sum_of(message)
        self._arriving.difference_update(message)
        if parameter in self._begun:
            self._begun.difference_update(message)
            self._begun_elements -= elements
        self._arriving_elements -= elements
        if len(message) > 1:
            self._joined_elements += elements

    def free_buffer(self, message: tuple[int, ...]) -> None:
        """Gives up the buffer of a joined message."""
        self._joined_elements -= self.sum_of(message)

    def drop(self, parameter: int) -> None:
        """Takes away a parameter that is released."""
        self._live_elements -= self._elements[parameter]
