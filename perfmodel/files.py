"""Files of users: TOML read with clear errors, output written whole or not at all."""

import os
import tempfile
import tomllib
from pathlib import Path

from perfmodel.errors import MissingFileError


def read_toml(path, what, error):
    """Content of a user's TOML file.

    Parameters
    ----------
    path : str or path
    what : str
        What messages call it.
    error : type
        Exception for a file that is not TOML.

    Raises
    ------
    MissingFileError
        If there is no such file (also a `FileNotFoundError`).
    """
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (FileNotFoundError, IsADirectoryError):
        raise MissingFileError(f"{path}: no such {what}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise error(f"{path}: not TOML: {problem}") from None


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
