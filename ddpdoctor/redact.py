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
SECRET_PART = re.compile(r"KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH", re.IGNORECASE)
"""Parts of a name that are enough to keep the value on this host: MONKEY is among them, which does no harm."""
RULES = (
    (r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", HIDDEN),
    # A password, or a token in its place, in the authority of a URL.
    (r"(\b[a-z][a-z0-9+.-]*://)[^\s/@:]*:[^\s@]+@", rf"\1{HIDDEN}@"),
    (r"(\b[a-z][a-z0-9+.-]*://)[^\s/@:]{20,}@", rf"\1{HIDDEN}@"),
    # A parameter of a URL.
    (
        r"([?&](?:[a-z0-9-]*(?:token|secret|password|signature|credential)|(?:api_?|access_?)?key|sig|auth)=)[^&\s\"']+",
        rf"\1{HIDDEN}",
    ),
    (r"(\bBearer\s+)[A-Za-z0-9._~+/=-]{8,}", rf"\1{HIDDEN}"),
    (r"(\b\w*(?:TOKEN|SECRET|PASSWORD|PASSWD|(?:API|ACCESS|SECRET)_?KEY)=)(['\"]?)[^\s'\"]+\2", rf"\1{HIDDEN}"),
    # Shapes of tokens: Hugging Face, GitHub, GitLab, OpenAI and its like, Slack, JSON web tokens, AWS key ids.
    (r"\b(?:hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,})", HIDDEN),
    (r"\b(?:sk-[\w-]{20,}|xox[abprs]-[A-Za-z0-9-]{10,}|(?-i:AKIA|ASIA)(?-i:[A-Z0-9]{16})\b)", HIDDEN),
    (r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*", HIDDEN),
)
PATTERNS = tuple((re.compile(pattern, re.IGNORECASE | re.DOTALL), replacement) for pattern, replacement in RULES)

Value = TypeVar("Value")


def redact(text: str) -> str:
    """Replace what is a secret by its form: passwords and tokens in URLs, bearer tokens, keys of known shapes."""
    for pattern, replacement in PATTERNS:
        text = pattern.sub(replacement, text)
    return text


def redact_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """Hide the values of variables whose names say that they are secret, and secrets within the others."""
    return {name: HIDDEN if SECRET_NAME.search(name) else redact(value) for name, value in environ.items()}


def can_leave(name: str, value: str) -> bool:
    """Whether the value of a variable can be told to other hosts as it is: neither its name nor its form is secret."""
    return SECRET_PART.search(name) is None and SECRET_NAME.search(name) is None and redact(value) == value


def redacted(value: Value) -> Value:
    """Return a copy of a result, a report, or anything made of dataclasses, tuples and texts, without its secrets."""
    if isinstance(value, str):
        return redact(value)  # type: ignore[return-value]  # a str for a str
    if isinstance(value, tuple):
        return type(value)(redacted(item) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        changed: dict[str, Any] = {field.name: redacted(getattr(value, field.name)) for field in fields(value)}
        return replace(value, **changed)
    return value
