"""Secrets never leave: what every reporter prints goes through here first."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

HIDDEN = "<redacted>"
# Whole words of a variable's name: WANDB_API_KEY and HF_TOKEN, not MONKEY, KEYBOARD or TOKENIZERS_PARALLELISM.
SECRET_NAME = re.compile(
    r"(?:^|_)(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|PASS|PWD_SECRET|KEY|APIKEY|CREDENTIALS?|AUTH|AUTHORIZATION"
    r"|COOKIE|PRIVATE|DSN|WEBHOOK|SAS)S?(?:_|$)",
    re.IGNORECASE,
)
PATTERNS = tuple(
    (re.compile(pattern, re.IGNORECASE | re.DOTALL), replacement)
    for pattern, replacement in (
        (r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", HIDDEN),
        (r"(\b[a-z][a-z0-9+.-]*://)[^\s/@:]*:[^\s@]+@", rf"\1{HIDDEN}@"),
        (r"(\b[a-z][a-z0-9+.-]*://)[^\s/@:]{20,}@", rf"\1{HIDDEN}@"),
        (
            r"([?&](?:[a-z0-9-]*(?:token|secret|password|signature|credential)|api_?key|access_?key|key|sig|auth)=)"
            r"[^&\s\"']+",
            rf"\1{HIDDEN}",
        ),
        (r"(\bBearer\s+)[A-Za-z0-9._~+/=-]{8,}", rf"\1{HIDDEN}"),
        (
            r"(\b[A-Z0-9_]*(?:TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_?KEY|SECRET_?KEY)=)(['\"]?)[^\s'\"]+\2",
            rf"\1{HIDDEN}",
        ),
        (r"\b(?:hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,})", HIDDEN),
        (r"\b(?:sk-[A-Za-z0-9_-]{20,}|xox[abprs]-[A-Za-z0-9-]{10,})", HIDDEN),
        (r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*", HIDDEN),
    )
) + ((re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"), HIDDEN),)  # fmt: skip

Value = TypeVar("Value")


def redact(text: str) -> str:
    """Replace what is a secret by its form: passwords and tokens in URLs, bearer tokens, keys of known shapes."""
    for pattern, replacement in PATTERNS:
        text = pattern.sub(replacement, text)
    return text


def redact_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """Hide the values of variables whose names say that they are secret, and secrets within the others."""
    return {name: HIDDEN if SECRET_NAME.search(name) else redact(value) for name, value in environ.items()}


def redacted(value: Value) -> Value:
    """Give a copy of a result, a report, or anything made of dataclasses, tuples and texts, without its secrets."""
    if isinstance(value, str):
        return redact(value)  # type: ignore[return-value]  # a str for a str
    if isinstance(value, tuple):
        return type(value)(redacted(item) for item in value)  # type: ignore[return-value]  # a tuple for a tuple
    if is_dataclass(value) and not isinstance(value, type):
        changed: dict[str, Any] = {field.name: redacted(getattr(value, field.name)) for field in fields(value)}
        return replace(value, **changed)
    return value
