"""Writing files so that nothing is lost or left half-written."""

import os
import tempfile
from pathlib import Path

from perfmodel.errors import MissingFileError


def write_whole(path, content):
    """Write text or bytes beside `path`, then rename: the file is replaced whole or not at all.

    Raises
    ------
    MissingFileError
        If the folder does not exist (also a `FileNotFoundError`).
    """
    path = Path(path)
    data = content.encode() if isinstance(content, str) else content
    if not path.parent.is_dir():
        raise MissingFileError(f"{path}: folder {path.parent} does not exist; make it first")
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
