"""A host does not trust the certificate of the server that the script downloads from, or the proxy refuses it.

## What happens

Companies and clusters let HTTPS pass through a proxy that shows a certificate of their own. Python trusts those of its
package certifi, and knows nothing of it: "certificate verify failed: unable to get local issuer certificate". Where the
proxy wants a name and password: "Tunnel connection failed: 407 Proxy Authentication Required". Where only some hosts
were set up for it, the ranks of the others fail, and the rest wait. "certificate is not yet valid" or "has expired" is
a clock, or an old certifi.

## How to be sure

`python -c "import requests; requests.get('https://huggingface.co')"` on the host that failed; `curl -v` shows the
issuer.

## How to mend it

Name the file with the certificates of your site to all libraries:

    export SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt REQUESTS_CA_BUNDLE=$SSL_CERT_FILE

Better for a training: download once, and let the ranks read from storage.

## Versions and sources

Holds for torch 2.2 and later, and all versions of Python 3. Sources: Python documentation, "ssl"; requests
documentation, "SSL Cert Verification".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP321", Severity.ERROR)
SERVER = re.compile(r"host='([^']+)'|\bhttps?://([\w.-]+)")
TRUST = Fix(
    "name the certificates of your site to Python on each host; or download once, where it works",
    command="export SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt REQUESTS_CA_BUNDLE=$SSL_CERT_FILE",
)
CLOCK = Fix(
    "set the clock of this host, and bring certifi up to date", command="date -u; timedatectl; pip install -U certifi"
)
PROXY = Fix(
    "give the proxy with the name and password that it wants, or leave it out for servers inside",
    command="export https_proxy=http://USER:PASSWORD@PROXY:PORT no_proxy=localhost,127.0.0.1,.internal",
)


@log_pattern(
    r"CERTIFICATE_VERIFY_FAILED\] certificate verify failed(?:: (?P<why>[^\n(]{1,80}))?"
    r"|Tunnel connection failed: (?P<status>\d{3} [^'\n)]{1,60})|(?P<proxy>ProxyError\('(?:Unable|Cannot) (?:to "
    r")?connect to proxy')"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read why it is not trusted, of an exception; a line that only warns is followed by what was done instead."""
    if not record.error:
        return
    names = [name for found in SERVER.finditer(record.text) for name in found.groups() if name]
    of = f" of {names[0]}" if names else ""
    why = (match["why"] or "").strip()
    if match["status"] or match["proxy"]:
        refused = (
            f"the proxy refuses the connection: {match['status']}" if match["status"] else "the proxy does not answer"
        )
        said, fix = refused, PROXY
    elif "expired" in why or "not yet valid" in why:
        said, fix = f"the certificate{of} is out of its time for this host: {why}", CLOCK
    else:
        said, fix = f"this host does not trust the certificate{of}" + (f": {why}" if why else ""), TRUST
    yield Finding(said, (record.proof(match, "a connection over HTTPS"),), fix, record.place)
