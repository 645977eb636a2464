"""A log as its reader sees it: decompressed, decoded, without a launcher's decorations."""

import bz2
import codecs
import gzip
import hashlib
import logging
import lzma
import re
import shutil
import tarfile
import tempfile
import zlib
from contextlib import contextmanager
from pathlib import PurePath

import zstandard

_LOG = logging.getLogger(__name__)
_CHUNK = 1 << 20
# How much of a file is searched for what tells its format.
_SEARCHED = 1 << 24
_DAMAGED = (EOFError, zlib.error, lzma.LZMAError, zstandard.ZstdError, tarfile.TarError, OSError)
_OPENERS = {
    b"\x1f\x8b": gzip.open,
    b"\x28\xb5\x2f\xfd": lambda stream: zstandard.open(stream, closefd=False),
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
}
# A member of an archive that is larger goes to a temporary file.
_SPOOLED = 1 << 26
_COLOUR = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07]*\x07|[@-Z])")
# Open MPI's --tag-output puts its tag wherever a write begins, also inside a line.
_TAG = re.compile(r"\[(?:[\w.@-]+,)?\d+,\d+\]<std(?:out|err|diag)>: ?")
# srun --label, mpirun -prepend-rank of Intel MPI, torchrun --redirects; the times and pods that
# kubectl and docker put before a line.
_MARKS = ("\x1b", "\r", "\0", "]<std")
_LABELLED = tuple(" [0123456789")
_LABEL = re.compile(
    r"^(?: *\d+: |\[\d+\] |\[default\d+\]:|\[pod/[^\]]+\] "
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d) )"
)


class LogFile:
    """One log: a file, or a member of a tar archive.

    Parameters
    ----------
    path : str
        What messages and ``source_file`` call it.
    opens : callable
        Opens the decompressed content as a binary file.
    sha256 : str
        Of the file on disk.
    progress : callable
        Called with the number of bytes read from it, as they are read.

    Attributes
    ----------
    name : str
        File name without the suffix of a compression.
    head : str
        The beginning, decoded.
    unfinished : int or None
        Number of the last line, as soon as `lines` has reached it, if it has no line end.
    lines_skipped, first_skipped_reason, inferred
        What goes into ``Measurements.sources``.
    """

    def __init__(self, path, opens, sha256="", progress=None):
        self.path, self.sha256 = str(path), sha256
        self.name = re.sub(r"\.(gz|zst|bz2|xz|tgz)$", "", PurePath(path).name)
        self._opens, self._progress = opens, progress
        self.unfinished = None
        self.lines_skipped, self.first_skipped_reason, self.inferred = 0, "", ""
        self._damage = None
        with self._opens() as stream:
            self._start = self._read(stream, _SEARCHED)
            self._is_whole = self._damage is not None or not self._read(stream, 1)
        self.head = "".join(self._decoder()(self._start[:65536], False))

    def _read(self, stream, size):
        """Up to `size` bytes; fewer only at the end."""
        parts, wanted = [], size
        try:
            while wanted and (part := stream.read(min(wanted, _CHUNK))):
                parts.append(part)
                wanted -= len(part)
        except _DAMAGED as error:
            _raise_if_of_the_disk(error)
            self._damage = f"the compressed file is cut or damaged ({error})"
        return b"".join(parts)

    def _decoder(self):
        encoding = "utf-8-sig"
        if self._start[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            encoding = "utf-16"
        return codecs.getincrementaldecoder(encoding)(errors="replace").decode

    @property
    def is_binary(self):
        """Whether the beginning holds bytes that no text has."""
        return "\0" in self.head

    @property
    def is_empty(self):
        """Whether there is nothing but white space in it."""
        return self._is_whole and not self._start.strip(b" \t\r\n\0")

    def contains(self, *texts):
        """Whether one of these ASCII texts occurs (in the first 16 MiB)."""
        if self._start[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            return any(text in self.text() for text in texts)
        return any(text.encode() in self._start for text in texts)

    def chunks(self):
        """The decompressed content in pieces of bytes."""
        if self._is_whole:
            if self._progress:
                self._progress(len(self._start))
            yield self._start
        else:
            with self._opens() as stream:
                while chunk := self._read(stream, _CHUNK):
                    if self._progress:
                        self._progress(len(chunk))
                    yield chunk
        if self._damage:
            self.skip(None, self._damage)

    def text(self):
        """The whole content, decoded."""
        decode = self._decoder()
        return "".join([*(decode(chunk) for chunk in self.chunks()), decode(b"", True)])

    def lines(self):
        """Pairs (number from 1, line): no colours, no rank labels, no line end.

        What overwrote itself with carriage returns comes as several lines of one number.
        """
        decode = self._decoder()
        number, rest = 0, ""
        for chunk in self.chunks():
            text = rest + decode(chunk)
            is_plain = not any(mark in text for mark in _MARKS)
            lines = text.split("\n")
            rest = lines.pop()
            for line in lines:
                number += 1
                if is_plain and line[:1] not in _LABELLED:
                    yield number, line
                else:
                    for part in _clean(line):
                        yield number, part
        rest += decode(b"", True)
        if rest:
            self.unfinished = number + 1
            yield from ((number + 1, part) for part in _clean(rest))

    def is_cut(self, line_number, line, previous):
        """Whether a row may lack its end: the last line, without line end and shorter than others.

        Tools pad their columns: whole rows of a table are equally long. Of a first row
        (`previous` is None) nobody knows.
        """
        if line_number != self.unfinished:
            return False
        return previous is None or len(line.rstrip()) < len(previous.rstrip())

    def skip(self, line_number, reason):
        """Count a line that should have held a result but is not used."""
        if not self.lines_skipped:
            self.first_skipped_reason = (
                reason if line_number is None else f"line {line_number}: {reason}"
            )
        self.lines_skipped += 1

    def infer(self, what):
        """Note something that the file does not say but that was concluded."""
        if what not in self.inferred:
            self.inferred += f"; {what}" if self.inferred else what


def _clean(line):
    if "\x1b" in line:
        line = _COLOUR.sub("", line)
    if "]<std" in line:
        line = _TAG.sub("", line)
    for part in line.rstrip("\r").split("\r"):
        yield _LABEL.sub("", part.replace("\0", ""), count=1)


def logs_in(path, progress=None):
    """The logs that a file holds: itself decompressed, or the members of a tar archive.

    Yields
    ------
    LogFile
        To be read before the next one is asked for.
    """
    with open(path, "rb") as stream:
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
        if not _is_tar(stream):
            yield LogFile(path, lambda: _reopened(path), sha256, progress)
            return
        stream.seek(0)
        try:
            with (
                _decompressed(stream) as content,
                tarfile.open(fileobj=content, mode="r|") as archive,
            ):
                for member in archive:
                    if member.isfile() and not PurePath(member.name).name.startswith("._"):
                        # A stream goes forward only, and a log is read more than once.
                        with tempfile.SpooledTemporaryFile(_SPOOLED) as copy:
                            shutil.copyfileobj(archive.extractfile(member), copy)
                            yield LogFile(
                                f"{path}/{member.name}",
                                lambda copy=copy: _rewound(copy),
                                sha256,
                                progress,
                            )
        except _DAMAGED as error:
            _raise_if_of_the_disk(error)
            _LOG.warning("%s: the archive is cut or damaged: %s", path, error)


def _raise_if_of_the_disk(error):
    """An error with a number is not the content's but the file system's."""
    if getattr(error, "errno", None) is not None:
        raise error


@contextmanager
def _reopened(path):
    with open(path, "rb") as stream, _decompressed(stream) as content:
        yield content


@contextmanager
def _rewound(stream):
    stream.seek(0)
    with _decompressed(stream) as content:
        yield content


@contextmanager
def _decompressed(stream):
    """Content of a stream that stands at its beginning, whatever it is compressed with."""
    start = stream.read(8)
    stream.seek(0)
    opener = next((o for magic, o in _OPENERS.items() if start.startswith(magic)), None)
    if opener is None:
        yield stream
    else:
        with opener(stream) as content:
            yield content


def _is_tar(stream):
    stream.seek(0)
    try:
        with _decompressed(stream) as content:
            return content.read(263)[257:262] == b"ustar"
    except _DAMAGED as error:
        _raise_if_of_the_disk(error)
        return False
