"""Objects of an array in a JSON file of any size, also of one that was cut."""

import json
import re

import msgspec

_BETWEEN = re.compile(rb"\}(\s*,\s*)(?=\{)")
_BLOCK, _TAIL = 1 << 23, 1 << 18


def objects(log, array, kind):
    """Objects of an array, decoded a block at a time.

    A prefix of the array that ends between two braces is decoded; if it is no list of whole
    objects, the comma was inside one of them or inside a text, and the one before is tried. So
    nothing is taken apart by guess, and memory does not grow with the file.

    Parameters
    ----------
    log : LogFile
        What cannot be decoded is counted there.
    array : bytes or None
        Key of the array; None: the file is the array.
    kind : type
        What msgspec decodes an object to.

    Yields
    ------
    list of kind
    """
    decoder = msgspec.json.Decoder(list[kind], strict=False)
    data, began, wanted = bytearray(), False, _BLOCK
    pieces = log.chunks()
    at_end = False
    while True:
        while not at_end and len(data) < wanted:
            piece = next(pieces, None)
            if piece is None:
                at_end = True
            else:
                data += piece
        if not began:
            start = _start(data, array)
            if start is None:
                if at_end:
                    return
                wanted += _BLOCK
                continue
            del data[:start]
            began = True
        block, used, is_last = _decoded(decoder, kind, data, at_end, log)
        if block:
            yield block
        del data[:used]
        if is_last or (at_end and not used):
            return
        wanted = _BLOCK if used else wanted + _BLOCK


def _start(data, array):
    """Offset behind the opening bracket."""
    pattern = rb"^\s*(?:\xef\xbb\xbf)?\s*\[" if array is None else rb'"%b"\s*:\s*\[' % array
    match = re.search(pattern, data)
    return None if match is None else match.end()


def _decoded(decoder, kind, data, at_end, log):
    """Objects of the beginning of `data`, how many bytes they took, and whether it was the end."""
    if at_end:
        for end in _closings(data):
            block = _try(decoder, data[:end])
            if block is not None:
                return block, len(data), True
    else:
        for cut in _likely(data):
            block = _try(decoder, data[: cut.start() + 1])
            if block is not None:
                return block, cut.end(), False
    return _one_by_one(decoder, data, at_end, log)


def _likely(data):
    """Cuts near the end, last first; before them those whose object begins as the first one."""
    cuts = list(_BETWEEN.finditer(data, max(0, len(data) - _TAIL)))
    alike = _like_the_first(data)
    yield from reversed([cut for cut in cuts if alike.match(data, cut.end())][-16:])
    yield from reversed(cuts[-16:])


def _like_the_first(data):
    """Pattern of how the first object begins: objects of an array mostly begin alike."""
    key = re.match(rb'\s*(\{\s*"[^"]*")', data)
    words = re.split(rb"\s+", key[1]) if key else [b"{"]
    return re.compile(rb"\s*".join(map(re.escape, words)))


def _closings(data, with_whole=True):
    """Offsets where the array may end: before the last brackets, and at the very end."""
    if with_whole:
        yield len(data)
    end = len(data)
    for _ in range(16):
        end = data.rfind(b"]", 0, end)
        if end < 0:
            return
        yield end


def _try(decoder, data):
    try:
        return decoder.decode(b"[" + bytes(data).strip(b" \t\r\n,\0") + b"]")
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None


def _one_by_one(decoder, data, at_end, log):
    """The same where something in it is no JSON: the other objects are read."""
    block, start, missed, before = [], 0, 0, 0
    alike = _like_the_first(data)
    ends = [(cut.start() + 1, cut.end()) for cut in _BETWEEN.finditer(data)]
    if at_end:
        ends.append((len(data), len(data)))
    for end, following in ends:
        part = data[start:end].strip(b" \t\r\n,\0")
        found = _try(decoder, part)
        if found is None:
            found = _try(decoder, _mended(part))
        if found is not None:
            block += found
            start, missed = following, 0
            continue
        for closing in _closings(part, with_whole=False):
            last = _try(decoder, part[:closing])
            if last is not None:
                return block + last, len(data), True
        # Not a comma inside an object, but a broken object, if a whole one follows.
        alone = _try(decoder, data[before:end]) if missed and alike.match(data, before) else None
        if alone:
            log.skip(None, "an object in the JSON cannot be decoded")
            block += alone
            start, missed = following, 0
        else:
            missed += 1
        before = following
    if at_end:
        if missed:
            log.skip(None, "the JSON ends in the middle of an object")
        return block, len(data), True
    return block, start, False


def _mended(data):
    """The same with NaN and infinities, which Python writes and JSON has not, as null."""
    return re.sub(rb"(?<=[:\s\[,])-?(?:NaN|nan|Infinity|inf)(?=[\s,\]}])", b"null", bytes(data))


def value_at(log, key, size=65536):
    """Value of a key near the beginning of a JSON file, outside the big arrays; else None."""
    match = re.search(rf'"{key}"\s*:\s*', log.head[:size])
    if match is None:
        return None
    try:
        return json.JSONDecoder().raw_decode(log.head, match.end())[0]
    except (ValueError, RecursionError):
        return None
