"""Which store of files a configuration means."""

from __future__ import annotations

from pathlib import Path

from adapters.file_store import FILES_FOLDER, DiskFileStore
from contracts.batches import FileStore
from contracts.config import WorkersConfig


def open_file_store(config: WorkersConfig, data_dir: Path) -> FileStore:
    """The object store that ``config`` names, else a folder of ``data_dir``.

    Raises
    ------
    Invalid
        It cannot be used as it is configured.
    """
    if config.files_url is None:
        return DiskFileStore(data_dir / FILES_FOLDER, max_bytes=config.files_max_bytes)
    # Costs a third of a second that few need.
    from adapters.object_store import ObjectFileStore

    return ObjectFileStore(config.files_url, max_bytes=config.files_max_bytes)
