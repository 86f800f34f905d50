"""What torch says when the store of the rendezvous is not reached, and what its address tells."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING

from ddpdoctor.check import is_loopback

if TYPE_CHECKING:
    from ddpdoctor.check import Joining

# torch before 2.0 writes "trying to connect to HOST:PORT", newer ones "(HOST, PORT)".
GAVE_UP_AT = (
    r"client socket has (?:failed to connect to any network address of|timed out after \S+ while trying to connect to)"
    r" \(?([^\s,()]+?)(?:, |:)"
)
GAVE_UP = GAVE_UP_AT + r"(\d+)\b"
ERRNO = r"client socket has failed to connect to (\S+):\d+ \((?:errno|system error): (\d+)"
OF_AGENTS = r"torch[/\\]distributed[/\\]elastic[/\\](?:agent|utils)[/\\]"
"""Of the traceback of a torchrun that exchanges with those of other nodes what each has, before it starts a rank."""
C10D_STORE = r"The connection to the C10d store has failed"
PLACEHOLDER = re.compile(
    r"<|\$|your|example|placeholder|x\.x|xxx|^(?:master|host|node)?[-_]?(?:ip|addr|address)$|^MASTER_ADDR$|^255\."
    r"|^(?:192\.0\.2|198\.51\.100|203\.0\.113)\.|^0\.0\.0\.0$",
    re.IGNORECASE,
)
REFUSED = {"111", "61", "10061"}  # Linux, macOS, Windows: the host answered, and nobody listens on the port


def meets_nowhere(told: Joining) -> bool:
    """Whether several ranks are to meet where nobody listens: on port 0, for which the kernel gives another port."""
    return told.world_size > 1 and told.address.endswith(":0")


def misses_the_store(told: Joining) -> bool:
    """Whether ranks are to meet on another port than that of the store that torchrun has opened for them."""
    port = told.address.partition("?")[0].rpartition(":")[2].rstrip("/")
    return port.isdecimal() and told.store_port not in {"", port} and not meets_nowhere(told)


def is_number(host: str) -> bool:
    """Whether the name consists of digits, which getaddrinfo reads as one 32-bit number."""
    return host.isascii() and host.isdigit()


def read_as(host: str) -> str:
    """Return the address that a name of digits is taken for; a leading zero makes the number octal."""
    try:
        return str(ipaddress.IPv4Address(int(host, 8 if host.startswith("0") and host != "0" else 10)))
    except ValueError:
        return "no address"


def is_address(host: str) -> bool:
    """Whether it is an address already, for which nothing is looked up."""
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def is_placeholder(host: str) -> bool:
    """Whether the address is one of a README: a word in place of an address, or reserved for documentation."""
    return bool(PLACEHOLDER.search(host))


def is_this_host(host: str) -> bool:
    """Whether it is this host itself."""
    return host == "localhost" or is_loopback(host)


def is_name(host: str) -> bool:
    """Whether it is a host's name, not an address."""
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return True
    return False
