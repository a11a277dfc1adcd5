"""What glibc should do with freed memory in a process that does nothing but train and infer."""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # malloc.h: mallopt's parameters
_MUCH = 1 << 30
_PAD = 64 << 20


def keep_freed_memory(largest: int = _MUCH) -> bool:
    """Keep what is freed for the next batch instead of giving it back to the system; False if libc cannot.

    Blocks of more than `largest` bytes are given back all the same. By default every large activation is mapped, zeroed
    page by page and unmapped again: 3,100 page faults and half of the time of a forward pass over 512 images. It is a
    setting of the whole process, so only processes of our own make it.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc
        return False
    return all([mallopt(_MMAP_THRESHOLD, largest), mallopt(_TRIM_THRESHOLD, _MUCH), mallopt(_TOP_PAD, _PAD)])
