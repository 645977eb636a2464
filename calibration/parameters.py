"""Which numbers of a platform are free: where they stand, their bounds, scale, ties and priors."""

import math
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from perfmodel.errors import CalibrationError, UnknownNameError
from perfmodel.files import read_toml
from perfmodel.platform_file import PROPERTIES, format_number, parse_number
from perfmodel.quantities import base_unit


@dataclass(frozen=True)
class FreeParameter:
    """One free number, which may stand in several places of the platform.

    Parameters
    ----------
    places : tuple of (str, str)
        Element and attribute of each place that gets the number.
    dimension : str or None
        What it measures; see `perfmodel.quantities.parse_quantity`.
    low, high, start : float
        Bounds, and where the search begins. [SI base unit]
    scale : {'log', 'linear'}
    prior, prior_factor : float, optional
        What it is believed to be, and within which factor.
    source : str, optional
        Where the prior comes from.
    asked : bool
        Whether the user asked for it, or a default did.
    """

    places: tuple[tuple[str, str], ...]
    dimension: str | None
    low: float
    high: float
    start: float
    scale: str = "log"
    prior: float | None = None
    prior_factor: float | None = None
    source: str | None = None
    asked: bool = True

    @property
    def element(self):
        """Id of the element; of several, the first and the last."""
        ids = list(dict.fromkeys(element for element, _ in self.places))
        return ids[0] if len(ids) == 1 else f"{ids[0]}…{ids[-1]}"

    @property
    def attribute(self):
        """Name of the attribute."""
        return self.places[0][1]

    @property
    def unit(self):
        """SI base unit."""
        return base_unit(self.dimension) if self.dimension else "1"

    @property
    def prior_deviation(self):
        """Standard deviation of the prior in coordinates of the search."""
        if self.scale == "log":
            return math.log(self.prior_factor)
        return (self.prior_factor - 1) * self.prior / (self.high - self.low)

    def to_search(self, value):
        """Coordinate of a value in the search: its logarithm, or its share of the range."""
        if self.scale == "log":
            return math.log(value)
        return (value - self.low) / (self.high - self.low)

    def from_search(self, x):
        """Value at a coordinate of the search."""
        if self.scale == "log":
            return math.exp(x)
        return self.low + x * (self.high - self.low)

    def text(self):
        """Start and bounds for people."""
        low, start, high = (
            format_number(v, self.dimension) for v in (self.low, self.start, self.high)
        )
        return f"{self.element} {self.attribute}: {low} … {high}, from {start}"


def default_parameters(platform, has_steps, link_names):
    """Free parameters where the user declares none.

    Bandwidth and latency of every class of links that the measured rows use (links with equal
    numbers are a class); with steps, the speed of the hosts and the fixed times of a micro-batch
    and of the optimiser.

    Parameters
    ----------
    platform : Platform
    has_steps : bool
    link_names : set of str
        Links that the measured rows use, as SimGrid calls them.
    """
    used = {platform.link(name).bandwidth_place for name in link_names}
    classes = {}
    for link in platform.links():
        classes.setdefault((link.bandwidth, link.latency_s, link.latency_place is None), []).append(
            link
        )
    free = []
    for (bandwidth, latency_s, _), links in classes.items():
        if used.isdisjoint(link.bandwidth_place for link in links):
            continue
        free.append(_default([link.bandwidth_place for link in links], "bandwidth", bandwidth, 1e3))
        places = [link.latency_place for link in links if link.latency_place is not None]
        if places:
            free.append(_default(places, "time", max(latency_s, 1e-6), 1e5))
    if has_steps:
        speeds = {}
        for host in platform.hosts():
            speeds.setdefault(platform.speed(host), []).append(platform.speed_place(host))
        free += [_default(places, "speed", speed, 1e6) for speed, places in speeds.items()]
        for name in ("perfmodel.compute_latency", "perfmodel.optimizer_latency"):
            free.append(_default([(platform.root(), f"prop:{name}")], "time", 1e-3, 1e4))
    return free


def _default(places, dimension, start, factor):
    unique = tuple(dict.fromkeys(places))
    return FreeParameter(unique, dimension, start / factor, start * factor, start, asked=False)


def read_free(source, platform):
    """Free parameters from a TOML file, or a list of mappings with the same keys.

    Raises
    ------
    MissingFileError
        If there is no such file (also a `FileNotFoundError`).
    CalibrationError
        If a declaration is wrong: which one, what was found (also a `ValueError`).
    UnknownNameError
        If no element of the platform matches (also a `KeyError`).
    """
    if isinstance(source, list | tuple):
        where, declarations = "free", list(source)
    else:
        where = source
        content = read_toml(where, "file of free parameters", CalibrationError)
        declarations = content.get("free")
        if set(content) != {"free"} or not isinstance(declarations, list):
            raise CalibrationError(f"{where}: expected tables [[free]] and nothing else")
    free = []
    for number, declaration in enumerate(declarations, start=1):
        if isinstance(declaration, FreeParameter):
            free.append(declaration)
        else:
            free += _declared(declaration, platform, f"{where}: [[free]] number {number}")
    if not free:
        raise CalibrationError(f"{where}: declares no free parameter")
    return free


def _declared(declaration, platform, where):
    from pydantic import ValidationError

    try:
        wanted = _declaration_type()(**declaration)
    except (ValidationError, TypeError) as error:
        first = error.errors()[0] if isinstance(error, ValidationError) else None
        problem = f"{first['loc'][-1]}: {first['msg'].lower()}" if first else str(error)
        raise CalibrationError(f"{where}: {problem}") from None
    table = platform.parameters()
    numbers = dict(
        zip(zip(table["element"], table["attribute"], strict=True), table["value"], strict=True)
    )
    ids = list(dict.fromkeys([platform.root(), *platform.elements()]))
    matching = [id_ for id_ in ids if fnmatchcase(id_, wanted.element)]
    if not matching:
        raise UnknownNameError(
            f"element like {wanted.element!r} in {platform.source}:", wanted.element, ids
        )
    name = wanted.attribute.removeprefix("prop:")
    may_be_new = wanted.attribute != name and name in PROPERTIES
    places = [
        (id_, wanted.attribute)
        for id_ in matching
        if (id_, wanted.attribute) in numbers or (may_be_new and id_ == platform.root())
    ]
    if not places:
        raise UnknownNameError(
            f"attribute of {', '.join(matching[:3])} in {platform.source}:",
            wanted.attribute,
            dict.fromkeys(a for e, a in numbers if e in matching),
        )
    groups = [places] if wanted.tie else [[place] for place in places]
    return [_free(wanted, group, numbers, platform, where) for group in groups]


def _free(wanted, places, numbers, platform, where):
    dimension = platform.dimension(*places[0])

    def number(name):
        value = getattr(wanted, name)
        try:
            return None if value is None else parse_number(value, dimension)
        except ValueError as error:
            raise CalibrationError(f"{where}: {name}: {error}") from None

    low, high, prior = number("low"), number("high"), number("prior")
    if not low < high or (wanted.scale == "log" and low <= 0):
        raise CalibrationError(
            f"{where}: low = {wanted.low}, high = {wanted.high}; low must be below high"
            + (" and above 0 on a logarithmic scale" if wanted.scale == "log" else "")
        )
    if (prior is None) != (wanted.prior_factor is None):
        raise CalibrationError(f"{where}: give prior and prior_factor together")
    if prior is not None and (wanted.prior_factor <= 1 or prior <= 0):
        raise CalibrationError(f"{where}: prior must be above 0 and prior_factor above 1")
    start = prior if prior is not None else numbers.get(places[0], 0.0)
    if not low <= start <= high:
        start = math.sqrt(low * high) if wanted.scale == "log" else (low + high) / 2
    return FreeParameter(
        tuple(places),
        dimension,
        low,
        high,
        start,
        wanted.scale,
        prior,
        wanted.prior_factor,
        wanted.source,
    )


def _declaration_type():
    """The keys of a table [[free]] (pydantic is heavy, so it is loaded when a file is read)."""
    from pydantic import BaseModel, ConfigDict

    class Declaration(BaseModel):
        model_config = ConfigDict(extra="forbid")
        element: str
        attribute: str
        low: str | float
        high: str | float
        scale: Literal["log", "linear"] = "log"
        tie: bool = True
        prior: str | float | None = None
        prior_factor: float | None = None
        source: str | None = None

    return Declaration
