# SPDX-License-Identifier: Apache-2.0
"""Words of messages: lists of allowed names, with the nearest one to what the user wrote, and counts of things."""

import difflib
from collections.abc import Iterable


def nearest(value: object, names: Iterable[str]) -> str | None:
    """The name most like `value` in any letter case, or None when nothing is alike."""
    by_fold = {name.casefold(): name for name in names}
    close = difflib.get_close_matches(str(value).casefold(), by_fold, n=1)
    return by_fold[close[0]] if close else None


def one_of(value: object, names: Iterable[str]) -> str:
    """What an `InputError` says is allowed: every name, and the one that `value` was probably meant to be.

    Examples:
        >>> one_of("h100sxm", ["a30", "h100_sxm"])
        'one of a30, h100_sxm (did you mean h100_sxm?)'
    """
    names = list(names)
    guess = nearest(value, names)
    hint = f" (did you mean {guess}?)" if guess else ""
    return f"one of {', '.join(names)}{hint}" if names else "a known name (there is none here)"


def counted(count: int, thing: str) -> str:
    """A count of things.

    Examples:
        >>> counted(1, "GPU"), counted(16, "GPU")
        ('1 GPU', '16 GPUs')
    """
    return f"{count} {thing}{'' if count == 1 else 's'}"
