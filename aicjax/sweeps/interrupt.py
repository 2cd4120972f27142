# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C and SIGTERM as a wish to stop soon, with what is done so far in good order."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def wishes_to_stop() -> Iterator[threading.Event]:
    """An event that the first signal sets; the second interrupts at once.

    Outside the main thread, where signals cannot be handled, it is never set.
    """
    wished = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield wished
        return

    def handle(_: int, __: FrameType | None) -> None:
        if wished.is_set():
            raise KeyboardInterrupt
        wished.set()

    before = {number: signal.signal(number, handle) for number in SIGNALS}
    try:
        yield wished
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
