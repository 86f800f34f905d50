"""The object storage (S3, Google Cloud Storage, Azure) refuses a rank, or does not have what it asks for.

## What happens

Each rank opens its own connection to the storage. A rank finds no credentials where its process has another
environment than the shell that started it (another host, a container, `sudo`); it is refused after an hour when
temporary credentials run out; it is told to slow down where hundreds of loader workers ask at once. The others wait for
it in the next collective.

## How to be sure

The code in the message decides: `NoCredentialsError` (none found), `ExpiredToken` and often a bare `400 Bad Request` of
HeadObject (expired), `403`/`AccessDenied` (found, and not allowed), `404`/`NoSuchKey` (not there, or not to be listed),
`SlowDown`/`503` (too many requests). `aws sts get-caller-identity` on the host that failed says who one is there.

## How to mend it

Hand the credentials on to each host (`srun --export=ALL`, a Kubernetes secret, an instance role), prefer roles, which
are renewed, to copied keys; make the client anew when they expire; lower the number of workers where it is too busy.

## Versions and sources

Holds for torch 2.2 and later: the words are botocore's, as reports of 2020 and later have them; not run here. Sources:
botocore documentation, "Credentials"; Amazon S3 documentation, "Error responses".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Log, Record, Severity, log_pattern

AILMENT = Ailment("DDP440", Severity.ERROR)
ABSENT = "no credentials are found"
EXPIRED = "the credentials have expired"
FORBIDDEN = "the credentials do not allow it"
GONE = "the object is not there, or its bucket is not to be listed"
BUSY = "it is asked too often at once"
UNREACHED = "it cannot be reached"
UNCLEAR = "it refuses the request and does not say why"
KINDS = (
    (r"NoCredentials|PartialCredentials|Unable to locate credentials|DefaultCredentialsError|access_key'", ABSENT),
    (r"ExpiredToken|TokenRefreshRequired|RequestTimeTooSkewed|token (?:included in the request )?is expired", EXPIRED),
    (r"AccessDenied|\(403\)|Forbidden|InvalidAccessKeyId|SignatureDoesNotMatch|AuthenticationError", FORBIDDEN),
    (r"NoSuchKey|NoSuchBucket|\(404\)|not found!|BlobNotFound", GONE),
    (r"SlowDown|\(503\)|Throttling|TooManyRequests|reached max retries", BUSY),
    (r"EndpointConnectionError|ConnectTimeoutError|ReadTimeoutError|ConnectionClosedError", UNREACHED),
)
OBJECT = r"Object (?:s3|gs|oci)://\S{1,300} not found!"
WHO = "aws sts get-caller-identity; aws s3 ls s3://BUCKET/   # on the host that failed, in the shell of the ranks"
FIXES = {
    ABSENT: Fix(
        "hand the credentials on to the ranks of each host",
        command="srun --export=ALL ...   # Kubernetes: envFrom a secret; docker run -e AWS_ACCESS_KEY_ID -e "
        "AWS_SECRET_ACCESS_KEY",
    ),
    EXPIRED: Fix(
        "take a role, which is renewed, in the place of copied keys, or make the client anew when they expire",
        command="unset AWS_SESSION_TOKEN AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY; export AWS_PROFILE=training",
    ),
    FORBIDDEN: Fix("allow s3:GetObject and s3:ListBucket to who trains", command=WHO),
    GONE: Fix("compare the address with what is there", command=WHO),
    BUSY: Fix(
        "ask less often: fewer workers, larger shards, or a copy on the hosts' own disks",
        diff="-DataLoader(data, num_workers=16)\n+DataLoader(data, num_workers=4)",
    ),
    UNREACHED: Fix("look at the network of that host: proxy, endpoint, region", command=WHO),
    UNCLEAR: Fix("ask by hand, with the same credentials", command=WHO),
}


@log_pattern(
    r"(?P<said>botocore\.(?:errorfactory\.\w+|exceptions\.(?:NoCredentials|PartialCredentials|Client|EndpointConnection|"
    r"ConnectTimeout|ReadTimeout|ConnectionClosed|TokenRetrieval|CredentialRetrieval)\w*)(?::[^\n]{0,300})?"
    r"|Failed to download (?:s3|gs|oci|azure)://[^\n]{1,300}(?:\n\[[^\n]{1,300})?"
    r"|google\.auth\.exceptions\.(?:DefaultCredentials|Refresh)Error[^\n]{0,300}"
    r"|azure\.core\.exceptions\.(?:ClientAuthentication|ResourceNotFound)Error[^\n]{0,300}"
    r"|PermissionError: (?:Access Denied|Forbidden)\b|AttributeError: 'NoneType' object has no attribute 'access_key')",
    context=(OBJECT,),
    plain=True,
)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Read the code of the refusal."""
    said = match["said"]
    if "Failed to download" in said and (found := log.first(OBJECT)):
        said += found[1][0]
    kind = next((kind for pattern, kind in KINDS if re.search(pattern, said)), UNCLEAR)
    bucket = re.search(r"\b((?:s3|gs|oci|azure)://[^\s'\"]+)", said)
    open_ones = {GONE: (GONE, FORBIDDEN), UNCLEAR: (EXPIRED, FORBIDDEN, GONE)}.get(kind)
    yield Finding(
        f"the object storage refuses {'rank ' + str(record.rank) if record.rank is not None else 'a rank'}: {kind}"
        + (f" ({bucket[1]})" if bucket else ""),
        (record.proof(match, "the object"),),
        FIXES[kind],
        record.place,
        ambiguity=Ambiguity(open_ones, WHO) if open_ones else None,
    )
