"""Hosts on one switch, from network namespaces: a real network on one machine.

Every host is a namespace with one interface, joined by a veth pair to a bridge in a namespace of
its own. Both ends of a pair are limited with a token bucket, so each link carries one rate each
way. Nothing outside these namespaces is touched.
"""

import shutil
import subprocess

PREFIX = "pmtestbed-"
SWITCH = f"{PREFIX}switch"
# Every packet costs processor time. At 9000 bytes eight hosts keep two processors busy with packets
# alone, and compute waits for them; the kernel's segmentation would spoil the count of headers.
MTU_BYTES = 32_000
BURST_BYTES = 64 * 1024
QUEUE_S = 0.4
# Ethernet, IPv4, and TCP with time stamps.
HEADER_BYTES = 14 + 20 + 32


class TestbedError(Exception):
    """The testbed cannot be built or may not record; the message says what to do."""


def missing_tools():
    """Debian packages of the programs that the network needs and that are not there."""
    package_of = {"ip": "iproute2", "tc": "iproute2", "ethtool": "ethtool", "taskset": "util-linux"}
    return sorted({package for tool, package in package_of.items() if shutil.which(tool) is None})


def host_name(i):
    """Namespace of host `i`."""
    return f"{PREFIX}host{i}"


def address(i):
    """Address of host `i`, in a network that only exists inside the namespaces."""
    return f"10.77.0.{i + 1}"


def inside(namespace, *command):
    """Command line that runs a command in a namespace."""
    return ["ip", "netns", "exec", namespace, *map(str, command)]


class Network:
    """Context in which the hosts exist; they are removed at its end, whatever happened.

    Parameters
    ----------
    n_hosts : int
    rate_mbit : int
        Rate of each link, each way. [Mbit/s]
    """

    def __init__(self, n_hosts, rate_mbit):
        self.n_hosts = n_hosts
        self.rate_mbit = rate_mbit

    def __enter__(self):
        remove()
        try:
            self._build()
        except BaseException:
            remove()
            raise
        return self

    def __exit__(self, *_):
        remove()

    def set_rate(self, rate_mbit):
        """Change the rate of all links."""
        self.rate_mbit = rate_mbit
        for i in range(self.n_hosts):
            for namespace, device in self._ends(i):
                self._limit("change", namespace, device)

    def _build(self):
        _run("ip", "netns", "add", SWITCH)
        _in(SWITCH, "ip", "link", "add", "br0", "type", "bridge", "stp_state", 0)
        _in(SWITCH, "ip", "link", "set", "br0", "type", "bridge", "mcast_snooping", 0)
        # Where the bridge is made to pass packets through the firewall, not in here.
        _quiet(*inside(SWITCH, "sysctl", "-qw", "net.bridge.bridge-nf-call-iptables=0"))
        for i in range(self.n_hosts):
            host, port = host_name(i), f"port{i}"
            _run("ip", "netns", "add", host)
            link = ["ip", "link", "add", "eth0", "netns", host, "type", "veth"]
            _run(*link, "peer", "name", port, "netns", SWITCH)
            _in(host, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1")
            for namespace, device in self._ends(i):
                _in(namespace, "ip", "link", "set", device, "mtu", MTU_BYTES)
                _in(namespace, "ethtool", "-K", device, "tso", "off", "gso", "off", "gro", "off")
            _in(SWITCH, "ip", "link", "set", port, "master", "br0", "up")
            _in(host, "ip", "address", "add", f"{address(i)}/24", "dev", "eth0")
            _in(host, "ip", "link", "set", "lo", "up")
            _in(host, "ip", "link", "set", "eth0", "up")
            for namespace, device in self._ends(i):
                self._limit("add", namespace, device)
        _in(SWITCH, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1")
        _in(SWITCH, "ip", "link", "set", "br0", "mtu", MTU_BYTES)
        _in(SWITCH, "ip", "link", "set", "br0", "up")

    def _ends(self, i):
        return (host_name(i), "eth0"), (SWITCH, f"port{i}")

    def _limit(self, verb, namespace, device):
        limit = ["tbf", "rate", f"{self.rate_mbit}mbit", "burst", BURST_BYTES]
        limit += ["latency", f"{QUEUE_S * 1000:g}ms"]
        _in(namespace, "tc", "qdisc", verb, "dev", device, "root", *limit)


def remove():
    """Remove every namespace of the testbed and end what runs in them."""
    listed = _quiet("ip", "netns", "list")
    for line in listed.stdout.splitlines():
        name = line.split()[0] if line.split() else ""
        if name.startswith(PREFIX):
            processes = _quiet("ip", "netns", "pids", name).stdout.split()
            if processes:
                _quiet("kill", "-9", *processes)
            _quiet("ip", "netns", "delete", name)


def _in(namespace, *command):
    _run(*inside(namespace, *command))


def _run(*command):
    result = _quiet(*map(str, command))
    if result.returncode:
        raise TestbedError(f"{' '.join(map(str, command))}: {result.stderr.strip()}")


def _quiet(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False)
