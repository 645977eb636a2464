import pytest

from perfmodel.errors import UnknownNameError
from perfmodel.quantities import (
    DEFAULTS,
    QUANTITIES,
    check_columns,
    format_quantity,
    parse_quantity,
)


def test_names_are_unique_and_say_their_unit():
    names = [quantity.name for quantity in QUANTITIES]
    assert len(names) == len(set(names))
    ends = {"s": "_s", "B": "_bytes", "B/s": "_bytes_per_s", "W": "_watts", "J": "_joules"}
    ends |= {"Hz": "_hz", "1/s": "_per_s", "samples/s": "_samples_per_s"}
    for quantity in QUANTITIES:
        end = ends.get(quantity.unit)
        tail = (end, f"{end}_logged", "_bytes_total") if end else ("",)
        assert quantity.name.endswith(tail), quantity


def test_every_configuration_column_has_a_default():
    names = [q.name for q in QUANTITIES if q.group == "configuration"]
    assert names == list(DEFAULTS)


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("12.5GBps", "bandwidth", 12.5e9),
        ("100Mbps", "bandwidth", 12.5e6),
        ("1MiBps", "bandwidth", 2**20),
        ("50us", "time", 5e-5),
        ("1.5", "time", 1.5),
        ("2h", "time", 7200),
        ("1Gf", "speed", 1e9),
        ("1e3Mf", "speed", 1e9),
        ("16GiB", "size", 2**34),
    ],
)
def test_units_of_simgrid_become_si(text, dimension, value):
    assert parse_quantity(text, dimension) == value


@pytest.mark.parametrize("text", ["", "fast", "1GB/s", "1 2", "1Gq", "50us"])
def test_a_wrong_unit_is_refused_with_an_example(text):
    with pytest.raises(ValueError, match=r"write for example '12\.5GBps'"):
        parse_quantity(text, "bandwidth")


@pytest.mark.parametrize("value", [1.25e7, 1 / 3, 1e-9, 123456789012345.0])
def test_formatting_keeps_every_digit(value):
    assert parse_quantity(format_quantity(value, "bandwidth"), "bandwidth") == value


def test_an_unknown_column_is_refused_with_the_nearest_names():
    with pytest.raises(UnknownNameError, match="did you mean 'message_bytes'") as caught:
        check_columns(["mesage_bytes"])
    assert isinstance(caught.value, KeyError)
