"""What to know about a model file whose weights are to be kept in the page cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping


def advice_on(config: Mapping[str, object]) -> tuple[str, ...]:
    """Lines about ``mmap`` and ``mmlock``, as LocalAI's model file sets them; usually none.

    >>> advice_on({"name": "a", "mmap": True})
    ()
    """
    return tuple(_lines(config))


def _lines(config: Mapping[str, object]) -> Iterator[str]:
    on_gpu = config.get("gpu_layers") != 0
    if config.get("mmlock") is True and on_gpu:
        yield (
            "mmlock holds all of its weights in host memory beside the GPU's copy, where the page "
            "cache would let go of them: leave it out"
        )
    elif config.get("mmlock") is True:
        yield "mmlock keeps its weights from being pushed out while it runs on the CPU: right so"
    if config.get("mmap") is False:
        yield (
            "mmap: false copies its weights while it loads, so that a load takes their size in "
            "host memory twice: leave it out"
        )
