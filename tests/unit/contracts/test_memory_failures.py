from __future__ import annotations

import doctest

import pytest

import contracts.memory
import contracts.profiles
from contracts.memory import is_memory_failure


def test_the_examples_hold():
    assert doctest.testmod(contracts.memory).failed == 0
    options = doctest.ELLIPSIS
    assert doctest.testmod(contracts.profiles, optionflags=options).failed == 0


@pytest.mark.parametrize(
    "message",
    [
        "could not load model: rpc error: CUDA out of memory",
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9000.00 MiB on device 0: "
        "cudaMalloc failed: out of memory",
        "llama_model_load: error loading model: unable to allocate CUDA0 buffer",
        "ggml_vulkan: Device memory allocation of size 2147483648 failed. "
        "vk::Device::allocateMemory: ErrorOutOfDeviceMemory",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "hipErrorOutOfMemory",
        "CUBLAS_STATUS_ALLOC_FAILED",
        "terminate called after throwing an instance of 'std::bad_alloc'",
        "mmap: Cannot allocate memory",
        "No available memory for the cache blocks. Try increasing gpu_memory_utilization",
        "Free memory on device (5.1/23.6 GiB) on startup is less than desired GPU memory "
        "utilization (0.9, 21.2 GiB)",
        "there is not enough GPU memory",
        "CUDA error: an illegal instruction was encountered",
        "failed to allocate buffer for kv cache",
    ],
)
def test_what_says_that_memory_was_short(message: str):
    assert is_memory_failure(message)


@pytest.mark.parametrize(
    "message",
    [
        "",
        "context canceled",
        "CUDA error: no kernel image is available for execution on the device",
        "CUDA error: invalid device ordinal",
        "CUDA error: an illegal memory access was encountered",
        "open /models/a.gguf: no such file or directory",
        "error reading from server: EOF",
        "model is still busy",
        "x" * 5000 + "out of memory",
    ],
)
def test_what_does_not(message: str):
    assert not is_memory_failure(message)
