"""SimGrid platform files: find a shipped one, read its numbers, change some, write it again.

A platform is kept as the text that was read. A changed number is put where the old one stood, so
comments, properties, order and layout stay as their author left them.
"""

import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple
from xml.parsers import expat

import pandas as pd

from perfmodel.errors import MissingFileError, PlatformError, UnknownNameError
from perfmodel.files import write_whole
from perfmodel.quantities import base_unit, format_quantity, parse_quantity

# Numeric attributes of SimGrid's elements, with the dimension of their unit.
_ATTRIBUTES = {
    "host": {"speed": "speed"},
    "link": {"bandwidth": "bandwidth", "latency": "time"},
    "disk": {"read_bw": "bandwidth", "write_bw": "bandwidth"},
    "cluster": {
        **{"speed": "speed", "bw": "bandwidth", "lat": "time"},
        **{"bb_bw": "bandwidth", "bb_lat": "time"},
        **{"loopback_bw": "bandwidth", "loopback_lat": "time"},
    },
}
# Numeric properties that mean something to the library; None: a number without unit.
PROPERTIES = {
    "num_gpus": None,
    "flops_per_gpu": "speed",
    "gpu_to_gpu_bw": "bandwidth",
    "gpu_to_gpu_lat": "time",
    "memory_per_gpu": "size",
    "perfmodel.ring_step_latency": "time",
    "perfmodel.compute_latency": "time",
    "perfmodel.optimizer_latency": "time",
}
# The attribute that says how flows share a bandwidth.
_POLICIES = {"bandwidth": "sharing_policy", "bw": "sharing_policy", "bb_bw": "bb_sharing_policy"}
_DOCTYPE = '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">'
_ATTRIBUTE = re.compile(rb"""([\w:.-]+)\s*=\s*(?:"([^"]*)"|'([^']*)')""")
_START_TAG = re.compile(rb"""<[\w:.-]+(?:\s*[\w:.-]+\s*=\s*(?:"[^"]*"|'[^']*'))*\s*/?>""")


def platform(name_or_path):
    """Read a shipped platform by its name, or any SimGrid XML by its path.

    Raises
    ------
    UnknownNameError
        For a name that is no shipped platform (also a `KeyError`).
    MissingFileError
        If there is no such file (also a `FileNotFoundError`).
    PlatformError
        If the file is no SimGrid platform or holds a number that makes no sense, with file and
        line (also a `ValueError`).

    Examples
    --------
    >>> platform("testbed").parameters().query("element == 'link0'")["attribute"].tolist()
    ['bandwidth', 'latency']
    """
    if isinstance(name_or_path, Platform):
        return name_or_path
    path = Path(name_or_path)
    if path.suffix == ".xml" or path.exists() or len(path.parts) > 1:
        try:
            return Platform(path.read_bytes(), str(path))
        except (FileNotFoundError, IsADirectoryError):
            raise MissingFileError(f"{path}: no such platform file") from None
    known = list(shipped_platforms()["platform"])
    if name_or_path not in known:
        raise UnknownNameError("platform", name_or_path, known)
    return Platform((_shipped() / f"{name_or_path}.xml").read_bytes(), f"{name_or_path}.xml")


def shipped_platforms():
    """Shipped platforms.

    Returns
    -------
    DataFrame
        Columns ``platform`` (its name), ``n_nodes`` and ``description``.
    """
    rows = []
    for entry in sorted(_shipped().iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".xml"):
            shipped = Platform(entry.read_bytes(), entry.name)
            name = entry.name.removesuffix(".xml")
            rows.append((name, len(shipped.hosts()), shipped.description()))
    return pd.DataFrame(rows, columns=["platform", "n_nodes", "description"])


def _shipped():
    """Folder of the shipped platforms: package data once installed, platforms/ in a checkout."""
    try:
        return files("perfmodel.platforms")
    except ModuleNotFoundError:
        return Path(__file__).parents[1] / "platforms"


@dataclass(frozen=True)
class _Number:
    """A number of the file and the bytes [start, end) that hold it."""

    element: str
    attribute: str
    dimension: str | None
    value: float
    start: int
    end: int
    line: int


class Link(NamedTuple):
    """A link: bandwidth [B/s], latency [s], whether each flow gets all of it, where they stand."""

    bandwidth: float
    latency_s: float
    fat: bool
    bandwidth_place: tuple[str, str]
    latency_place: tuple[str, str] | None


class Platform:
    """A SimGrid platform: the text of its file, and the numbers in it.

    Parameters
    ----------
    xml : bytes
        Content of a platform file of DTD 4 or 4.1.
    source : str
        What messages call it.
    """

    def __init__(self, xml, source="platform"):
        self.source = source
        self.xml = xml
        self._numbers = {}
        self._nodes = {}
        self._shared = {}
        self._root = None
        self._root_end = None
        self._read()

    def __repr__(self):
        return f"<Platform {self.source}: {len(self._nodes)} nodes>"

    def __eq__(self, other):
        return isinstance(other, Platform) and self.xml == other.xml

    def __hash__(self):
        return hash(self.xml)

    def parameters(self):
        """Numbers of the platform.

        Returns
        -------
        DataFrame
            Columns ``element`` (id), ``attribute`` (``prop:…`` for a property), ``value`` (in SI
            base units) and ``unit``, in file order.
        """
        rows = [
            (n.element, n.attribute, n.value, base_unit(n.dimension) if n.dimension else "1")
            for n in self._numbers.values()
        ]
        return pd.DataFrame(rows, columns=["element", "attribute", "value", "unit"])

    def hosts(self):
        """Names of the compute nodes in file order: all hosts without role storage or master."""
        aside = ("storage", "master")
        return [name for name, node in self._nodes.items() if node["role"] not in aside]

    def property(self, name, host=None, default=0.0):
        """Value of a property in SI base units: of the root zone, or of a compute node."""
        element = self._root if host is None else self._nodes[host]["element"]
        number = self._numbers.get((element, f"prop:{name}"))
        return default if number is None else number.value

    def speed(self, host):
        """Speed of a compute node. [flop/s]."""
        return self._numbers[self.speed_place(host)].value

    def speed_place(self, host):
        """Element and attribute that hold the speed of a compute node."""
        return self._nodes[host]["element"], "speed"

    def elements(self):
        """Ids of the elements that hold numbers, in file order."""
        return list(dict.fromkeys(element for element, _ in self._numbers))

    def dimension(self, element, attribute):
        """What a number measures, see `perfmodel.quantities.parse_quantity`; None: no unit."""
        if (element, attribute) in self._numbers:
            return self._numbers[element, attribute].dimension
        return PROPERTIES[attribute.removeprefix("prop:")]

    def link(self, name):
        """The link that SimGrid calls `name`: its bandwidth, latency and sharing.

        SimGrid splits a duplex link in two, ``_UP`` and ``_DOWN``, and names those of a cluster
        after it.
        """
        base = name.removesuffix("_UP").removesuffix("_DOWN")
        if (base, "bandwidth") in self._numbers:
            names = (base, "bandwidth", "latency")
        elif match := re.fullmatch(r"(.+)_link_\d+(_loopback)?", base):
            names = (
                (match[1], "loopback_bw", "loopback_lat") if match[2] else (match[1], "bw", "lat")
            )
        elif match := re.fullmatch(r"(.+)_backbone", base):
            names = (match[1], "bb_bw", "bb_lat")
        else:
            names = (base, "bandwidth", "latency")
        if names[:2] not in self._numbers:
            raise PlatformError(
                f"{self.source}: SimGrid uses a link {name!r} that has no bandwidth"
            )
        return self._link(*names)

    def links(self):
        """All links of the platform; those of a cluster are one."""
        latencies = {"bandwidth": "latency", "bw": "lat", "bb_bw": "bb_lat"}
        latencies["loopback_bw"] = "loopback_lat"
        return [
            self._link(element, attribute, latencies[attribute])
            for element, attribute in self._numbers
            if attribute in latencies
        ]

    def _link(self, element, bandwidth, latency):
        latency = self._numbers.get((element, latency))
        return Link(
            self._numbers[element, bandwidth].value,
            latency.value if latency else 0.0,
            self._shared.get((element, bandwidth), "SHARED") == "FATPIPE",
            (element, bandwidth),
            None if latency is None else (element, latency.attribute),
        )

    def description(self):
        """First comment of the file, on one line."""
        comment = re.search(rb"<!--(.*?)-->", self.xml, re.DOTALL)
        return " ".join(comment[1].decode().split()) if comment else ""

    def root(self):
        """Id of the root zone, whose ``perfmodel.…`` properties hold for the whole platform."""
        return self._root

    def with_values(self, values):
        """Platform with other numbers, everything else as it was.

        Parameters
        ----------
        values : mapping of (element, attribute) to number or str
            SI base units, or a text with SimGrid's unit. A property that the root zone lacks
            (``prop:perfmodel.…``) is added to it.

        Raises
        ------
        UnknownNameError
            If the platform has no such element or attribute (also a `KeyError`).
        PlatformError
            If a number makes no sense, such as a negative bandwidth (also a `ValueError`).
        """
        edits = []
        for (element, attribute), value in values.items():
            number = self._numbers.get((element, attribute))
            dimension = number.dimension if number else self._new_property(element, attribute)
            try:
                text = _text(value, dimension)
            except ValueError as error:
                raise PlatformError(f"{element} {attribute}: {error}") from None
            if number:
                edits.append((number.start, number.end, text))
            else:
                name = attribute.removeprefix("prop:")
                line = f'\n    <prop id="{name}" value="{text}"/>'
                edits.append((self._root_end, self._root_end, line))
        xml = self.xml
        for start, end, text in sorted(edits, key=lambda edit: edit[0], reverse=True):
            xml = xml[:start] + text.encode() + xml[end:]
        return Platform(xml, self.source)

    def write(self, path):
        """Write the platform as DTD 4.1; the file is replaced whole or not at all."""
        write_whole(path, self.text_4_1())

    def text_4_1(self):
        """Content of the file, declaring DTD 4.1."""
        xml = re.sub(
            rb"(<platform\b[^>]*\bversion\s*=\s*)([\"'])4(?:\.0)?\2", rb"\1\g<2>4.1\2", self.xml
        )
        if b"<!DOCTYPE" not in xml:
            xml = re.sub(rb"(?=<platform\b)", _DOCTYPE.encode() + b"\n", xml, count=1)
        return xml

    def _new_property(self, element, attribute):
        known = [e for e, _ in self._numbers]
        if element != self._root and element not in known:
            raise UnknownNameError(
                "element", element, dict.fromkeys([self._root, *known]), f" ({self.source})"
            )
        name = attribute.removeprefix("prop:")
        if (
            element != self._root
            or not attribute.startswith("prop:perfmodel.")
            or name not in PROPERTIES
        ):
            known = [a for e, a in self._numbers if e == element]
            known += [f"prop:{name}" for name in PROPERTIES if element == self._root]
            raise UnknownNameError(f"attribute of {element!r}", attribute, known)
        if self._root_end is None:
            raise PlatformError(
                f"{self.source}: <… id={element!r}/> has no room for the property {name}; put it "
                "inside a <zone>"
            )
        return PROPERTIES[name]

    # Reading: expat gives the place of each tag; attributes are then found in the bytes.

    def _read(self):
        parser = expat.ParserCreate()
        parser.ordered_attributes = True
        parser.EntityDeclHandler = self._refuse_entity
        parser.StartElementHandler = lambda tag, _: self._start(parser, tag)
        parser.EndElementHandler = lambda tag: self._open.pop()
        self._open = []
        try:
            parser.Parse(self.xml, True)
        except expat.ExpatError as error:
            raise PlatformError(
                f"{self.source}:{error.lineno}: not well-formed XML: "
                f"{expat.errors.messages[error.code]}"
            ) from None
        if self._root is None:
            raise PlatformError(f"{self.source}: no zone; expected <platform> with one <zone>")

    def _refuse_entity(self, name, *_):
        # An entity can expand to gigabytes or read other files, and no platform needs one.
        raise PlatformError(f"{self.source}: declares the XML entity {name!r}; remove it")

    def _start(self, parser, tag):
        start, line = parser.CurrentByteIndex, parser.CurrentLineNumber
        match = _START_TAG.match(self.xml, start)
        if match is None:
            raise PlatformError(f"{self.source}:{line}: the tag <{tag} …> cannot be read")
        spans = {
            m[1].decode(): m.span(2 if m[2] is not None else 3)
            for m in _ATTRIBUTE.finditer(self.xml, *match.span())
        }
        values = {name: self.xml[a:b].decode() for name, (a, b) in spans.items()}
        parent = self._open[-1] if self._open else None
        element = values.get("id", tag)
        self._open.append({"tag": tag, "element": element, "line": line})
        if not parent:
            self._check_root(tag, values, line)
        elif parent["tag"] == "platform" and tag in ("zone", "AS", "cluster"):
            self._root, self._root_end = element, match.end()
            if self.xml[match.end() - 2 : match.end()] == b"/>":
                self._root_end = None
        if tag == "host":
            self._nodes[element] = {"element": element, "role": None}
        elif tag == "cluster":
            for i in _radical(values.get("radical", ""), f"{self.source}:{line}"):
                name = f"{values.get('prefix', '')}{i}{values.get('suffix', '')}"
                self._nodes[name] = {"element": element, "role": None}
        for name, dimension in _ATTRIBUTES.get(tag, {}).items():
            if name in values:
                self._add(element, name, dimension, values[name], spans[name], line)
        if tag in ("link", "cluster"):
            for name, policy in _POLICIES.items():
                self._shared[element, name] = values.get(policy, "SHARED")
        if tag == "prop" and parent:
            self._property(parent, values, spans, line)

    def _property(self, parent, values, spans, line):
        name, owner = values.get("id", ""), parent["element"]
        if name == "role":
            for node in self._nodes.values():
                if node["element"] == owner:
                    node["role"] = values.get("value")
        if name in PROPERTIES and "value" in values:
            attribute = f"prop:{name}"
            self._add(owner, attribute, PROPERTIES[name], values["value"], spans["value"], line)

    def _check_root(self, tag, values, line):
        if tag != "platform":
            raise PlatformError(f"{self.source}:{line}: <{tag}> where <platform> was expected")
        version = values.get("version", "none")
        if version not in ("4", "4.0", "4.1"):
            raise PlatformError(
                f"{self.source}:{line}: platform version {version!r}; DTD 4 and 4.1 are read: "
                "convert it with SimGrid's simgrid_update_xml"
            )

    def _add(self, element, attribute, dimension, text, span, line):
        start, end = span
        # Several speeds are those of the pstates; the first is the one at full speed.
        first = text.split(",")[0]
        try:
            value = parse_number(first, dimension)
            _check(value, dimension)
        except ValueError as error:
            raise PlatformError(f"{self.source}:{line}: {element} {attribute}: {error}") from None
        end = start + len(first)
        number = _Number(element, attribute, dimension, value, start, end, line)
        self._numbers[element, attribute] = number


def _check(value, dimension):
    zero_is_fine = dimension in ("time", "speed", None)
    if not 0 <= value < float("inf") or (value == 0 and not zero_is_fine):
        bound = "at least 0" if zero_is_fine else "above 0"
        raise ValueError(f"{value:g} makes no sense; it must be {bound}")


def _text(value, dimension):
    value = parse_number(value, dimension)
    _check(value, dimension)
    return format_number(value, dimension)


def parse_number(value, dimension):
    """Number in SI base units of what a platform file holds: with a unit if it has a dimension."""
    return float(value) if dimension is None else parse_quantity(value, dimension)


def format_number(value, dimension):
    """Text that a platform file holds for a number in SI base units."""
    return repr(float(value)) if dimension is None else format_quantity(value, dimension)


def _radical(text, where):
    """Numbers of a cluster's ``radical``, such as ``0-3,7``."""
    for part in filter(None, text.split(",")):
        bounds = part.split("-")
        if len(bounds) > 2 or not all(bound.strip().isdigit() for bound in bounds):
            raise PlatformError(f"{where}: radical {text!r}; write for example '0-7'")
        yield from range(int(bounds[0]), int(bounds[-1]) + 1)
