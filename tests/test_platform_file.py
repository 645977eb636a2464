import difflib

import pytest

import perfmodel as pm
from perfmodel.errors import MissingFileError, PlatformError, UnknownNameError
from perfmodel.platform_file import Platform, shipped_platforms

XML = b"""<?xml version="1.0"?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<!-- Two racks. -->
<platform version="4">
  <!-- bandwidth="1Bps" in a comment is not a number of the platform -->
  <zone id='world' routing="Floyd">
    <prop id="contact" value="someone"/>
    <cluster id="rack" prefix="n" suffix=".hpc" radical="0-2,7" speed="1Gf,500Mf" bw = "1GBps"
             lat='2us' bb_bw="10GBps" bb_lat="1us"><prop id="num_gpus" value="4"/></cluster>
    <zone id="rest" routing="Full">
      <host id="pfs" speed="0f"><prop id="role" value="storage"/>
        <disk id="d" read_bw="10GBps" write_bw="5GBps"/></host>
      <host id="login" speed="2Gf"/>
      <link id="up" bandwidth="12.5GBps" latency="1.5us"/>
    </zone>
  </zone>
</platform>
"""


@pytest.fixture
def racks():
    return Platform(XML, "racks.xml")


def test_numbers_are_read_in_si_units(racks):
    values = racks.parameters().set_index(["element", "attribute"])["value"]
    assert values["rack", "speed"] == 1e9
    assert values["rack", "lat"] == 2e-6
    assert values["rack", "prop:num_gpus"] == 4
    assert values["d", "write_bw"] == 5e9
    assert values["up", "bandwidth"] == 12.5e9
    assert ("world", "prop:contact") not in values


def test_compute_nodes_are_all_hosts_but_storage_in_file_order(racks):
    assert racks.hosts() == ["n0.hpc", "n1.hpc", "n2.hpc", "n7.hpc", "login"]


def test_links_are_found_by_the_names_that_simgrid_gives_them(racks):
    assert racks.link("rack_link_7_UP").bandwidth == 1e9
    assert racks.link("rack_backbone").latency_s == 1e-6
    assert racks.link("up").bandwidth_place == ("up", "bandwidth")
    with pytest.raises(PlatformError, match="'down'"):
        racks.link("down")


def test_only_what_was_changed_differs_in_the_file(racks):
    changed = racks.with_values(
        {
            ("rack", "bw"): 2.5e9,
            ("rack", "speed"): "3Gf",
            ("up", "latency"): "7us",
            ("world", "prop:perfmodel.ring_step_latency"): 4e-6,
        }
    )
    lines = difflib.unified_diff(
        XML.decode().splitlines(), changed.xml.decode().splitlines(), n=0, lineterm=""
    )
    new = [line for line in lines if line.startswith("+ ")]
    assert new == [
        '+    <prop id="perfmodel.ring_step_latency" value="4e-06s"/>',
        '+    <cluster id="rack" prefix="n" suffix=".hpc" radical="0-2,7" '
        'speed="3000000000f,500Mf" bw = "2500000000Bps"',
        '+      <link id="up" bandwidth="12.5GBps" latency="7e-06s"/>',
    ]
    values = changed.parameters().set_index(["element", "attribute"])["value"]
    assert values["world", "prop:perfmodel.ring_step_latency"] == 4e-6
    assert values["rack", "bw"] == 2.5e9


def test_a_written_platform_declares_dtd_4_1_and_reads_back_the_same(racks, tmp_path):
    racks.write(tmp_path / "x.xml")
    again = pm.platform(tmp_path / "x.xml")
    assert b'<platform version="4.1">' in again.xml
    assert again.parameters().equals(racks.parameters())
    again.write(tmp_path / "y.xml")
    assert (tmp_path / "y.xml").read_bytes() == (tmp_path / "x.xml").read_bytes()


def test_a_missing_doctype_is_added(tmp_path):
    xml = XML.replace(b'<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">\n', b"")
    assert b"<!DOCTYPE platform" in Platform(xml).text_4_1()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b'"12.5GBps"', b'"-1GBps"', "racks.xml:14: up bandwidth: -1e.09 makes no sense"),
        (b'"12.5GBps"', b'"0"', "above 0"),
        (b'"12.5GBps"', b'"12.5GB/s"', "racks.xml:14: up bandwidth: '12.5GB/s' is not"),
        (b'"2Gf"', b'"-2Gf"', "login speed"),
        (b"</platform>", b"", "racks.xml:18: not well-formed XML"),
        (b'version="4"', b'version="3"', "simgrid_update_xml"),
        (b"<platform", b'<!DOCTYPE x [<!ENTITY a "b">]><platform', "."),
        (b'radical="0-2,7"', b'radical="a"', "radical 'a'"),
    ],
)
def test_a_broken_file_is_an_error_with_its_line(old, new, message):
    with pytest.raises(PlatformError, match=message):
        Platform(XML.replace(old, new), "racks.xml")


def test_entities_are_refused_before_they_expand():
    bomb = b"""<!DOCTYPE p [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>
    <platform version="4.1"><zone id="&b;" routing="Full"/></platform>"""
    with pytest.raises(PlatformError, match="entity 'a'"):
        Platform(bomb)
    outside = b"""<!DOCTYPE p [<!ENTITY a SYSTEM "file:///etc/passwd">]>
    <platform version="4.1"><zone id="&a;" routing="Full"/></platform>"""
    with pytest.raises(PlatformError, match="entity 'a'"):
        Platform(outside)


@pytest.mark.parametrize(
    ("key", "value", "error", "message"),
    [
        (("up", "bandwidth"), -1.0, PlatformError, "up bandwidth: -1 makes no sense"),
        (("up", "bandwidth"), float("nan"), PlatformError, "up bandwidth: nan"),
        (("up", "bandwith"), 1.0, UnknownNameError, "did you mean 'bandwidth'"),
        (("upp", "bandwidth"), 1.0, UnknownNameError, "did you mean 'up'"),
        (("world", "prop:perfmodel.nonsense"), 1.0, UnknownNameError, "nonsense"),
    ],
)
def test_a_wrong_value_or_place_is_refused(racks, key, value, error, message):
    with pytest.raises(error, match=message):
        racks.with_values({key: value})


def test_an_unknown_name_offers_the_shipped_ones(tmp_path):
    with pytest.raises(UnknownNameError, match="did you mean 'testbed'"):
        pm.platform("testbet")
    with pytest.raises(MissingFileError):
        pm.platform(tmp_path / "no.xml")


def test_shipped_platforms_can_all_be_read():
    table = shipped_platforms()
    assert "testbed" in set(table["platform"])
    assert (table["n_nodes"] > 0).all()
    assert table["description"].str.len().min() > 10


def test_platforms_of_others_are_read_or_refused_with_a_reason(cases):
    read = 0
    for path in sorted((cases / "simgrid-xml").glob("*.xml")):
        try:
            read += len(pm.platform(path).parameters()) > 0
        except PlatformError as error:
            assert path.name in str(error)
    assert read >= 20


def test_a_property_needs_an_element_with_room():
    platform = Platform(
        b'<platform version="4.1"><zone id="z" routing="None"/></platform>', "z.xml"
    )
    with pytest.raises(PlatformError, match="no room for the property"):
        platform.with_values({("z", "prop:perfmodel.compute_latency"): 1e-3})
