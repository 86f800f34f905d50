"""A configuration holds a value, or a key, that its reader refuses.

## What happens

Configurations are read into typed models (pydantic: DeepSpeed, vLLM, Ray), and one value ends every rank: "1
validation error for DeepSpeedZeroConfig", with the key and the reason in the lines below. "extra fields not permitted"
and "Extra inputs are not permitted" mean a key that this version does not know: it is misspelt, or of a newer version.
accelerate says the same of its file in one line: "The config file at default_config.yaml had unknown keys".
"Input should be a valid integer, got a number with a fractional part" is what older transformers compute for "auto"
(0.9 * hidden_size * hidden_size).

## How to be sure

The lines behind the class name each refused key with its reason.

## How to mend it

Write the value as it is asked for, or install the version that knows the key.

## Versions and sources

Holds for pydantic 1 and 2. Sources: pydantic documentation, "Validation Errors"; DeepSpeed,
deepspeed/runtime/zero/config.py; microsoft/DeepSpeed#6525; accelerate, commands/config/config_args.py. No
version of torch changes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP427", Severity.ERROR)
FIELD = re.compile(r"\n(?:\[rank\d+\]: )?(?P<key>[^\s\n][^\n]{0,99})\n(?:\[rank\d+\]: )?  (?P<why>[^\n]{1,300})")
UNKNOWN = re.compile(r"[Ee]xtra (?:fields|inputs) (?:are )?not permitted")
FROM_FLOAT = "int_from_float"
SHOWN = 4


@log_pattern(r"ValidationError: \d+ validation errors? for (?P<model>\w+)(?P<fields>(?:\n[^\n]{1,400}){0,40})")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read the keys and the reasons."""
    model = match["model"]
    owner = next((name for name in ("DeepSpeed", "vLLM", "Ray") if model.lower().startswith(name.lower())), "")
    fields = [(each["key"].strip(), each["why"].partition(" [type=")[0].strip()) for each in FIELD.finditer(match[0])]
    if not fields:
        return
    told = "; ".join(f"{key}: {why}" for key, why in fields[:SHOWN])
    yield Finding(
        f"{owner + ' refuses its configuration' if owner else model + ' refuses its values'}: {told}"
        + (f"; and {len(fields) - SHOWN} more" if len(fields) > SHOWN else ""),
        (record.proof(match, "keys and values that this version takes"),),
        _mend(fields, match[0], owner),
        record.place,
    )


@log_pattern(r"The config file at (?P<path>[^\n]{1,300}) had unknown keys \(\[(?P<keys>[^\]\n]{1,900})\]\)")
def of_accelerate(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Name the keys that accelerate's own file has and the installed version does not know."""
    keys = re.findall(r"'([^'\n]+)'", match["keys"])
    if not keys:
        return
    listed = ", ".join(keys[:SHOWN]) + (f" and {len(keys) - SHOWN} more" if len(keys) > SHOWN else "")
    yield Finding(
        f"accelerate refuses its configuration {match['path']}: it does not know {listed}",
        (record.proof(match, "keys that the installed version of accelerate knows"),),
        Fix(
            "upgrade accelerate where a newer one wrote the file; else take out what is not its own: keys of the "
            "training, as an optimizer's, belong to the script",
            command="pip install --upgrade accelerate",
            diff="\n".join(f"-{key}: ..." for key in keys[:SHOWN]),
        ),
        record.place,
    )


@log_pattern(
    r"(?:omegaconf\.errors\.\w+: |(?P<override>Could not override '(?P<key>[^'\n]{1,200})'))"
    r"(?P<said>(?:Key '[^'\n]{1,100}' is not in struct|Missing mandatory value: [^\n]{1,100})?)"
)
def of_omegaconf(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read OmegaConf's and Hydra's own words."""
    if not match["said"] and not match["override"]:
        return
    full = re.search(r"full_key: (\S+)", record.text)
    key = match["key"] or (full[1] if full else "")
    yield Finding(
        f"the configuration has no {key}, which the command line is to change"
        if match["override"]
        else f"the configuration refuses what is asked of it: {match['said']}" + (f" ({key})" if key else ""),
        (record.proof(match, "a key that the configuration has"),),
        Fix("name a key that is there, or add it by a plus sign", command=f"python train.py +{key}=... --cfg job"),
        record.place,
    )


@log_pattern(
    r"yaml\.\w+\.(?:Scanner|Parser|Composer|Constructor)Error: (?P<yaml>[^\n]{1,200})"
    r"|Expected a string path to an existing deepspeed config, or a dictionary[^\n]{0,60}Received: "
    r"(?P<path>[^\n]{1,200})|JSONDecodeError: (?P<json>[^\n]{1,200})"
)
def of_a_file(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Tell the file and the line that is no YAML or JSON; JSON can be data, so a reader of settings must ask."""
    if match["json"] and not OF_SETTINGS.search(record.text):
        return
    at = re.search(r'in "([^"<\n]+)", line (\d+)', record.text)
    where = f"{at[1]}:{at[2]}" if at else ""
    yield Finding(
        f"the DeepSpeed configuration {match['path']} is not there"
        if match["path"]
        else f"a configuration cannot be read{f', {where}' if where else ''}: {match['yaml'] or match['json']}",
        (record.proof(match, "a file that can be read"),),
        Fix(
            "name it by its absolute path: a relative one counts from where the launcher is started"
            if match["path"]
            else "mend that line",
            command=f"ls -l {match['path']}" if match["path"] else "python -m json.tool FILE   # for JSON",
        ),
        record.place,
    )


@log_pattern(
    r"(?:Exception|ValueError): Could not find the transformer layer class (?:(?P<name>\w+) in|to wrap in) the model"
)
def of_a_class_to_wrap(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """FSDP is told by a class's name what to wrap, and no module of this model is of it."""
    yield Finding(
        f"FSDP is to wrap modules of the class {match['name'] or 'in its configuration'}, and the model has none",
        (record.proof(match, "the class of the model's repeated block"),),
        Fix(
            "name the class of the model's block, or leave the name out where the model tells it (_no_split_modules)",
            command='python -c "import train; print({type(m).__name__ for m in train.model.modules()})"',
            diff="-fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer\n"
            "+fsdp_transformer_layer_cls_to_wrap: Qwen2DecoderLayer",
        ),
        record.place,
    )


@log_pattern(
    r"(?:^|\n)In '(?P<file>[^'\n]{1,200})': Could not (?:find|load) "
    r"'(?P<option>[^'\n]{1,200})'"
    r"|Cannot find primary config '(?P<primary>[^'\n]{1,200})'"
)
def of_hydra(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Hydra prints what it did not find, the options that there are, and no traceback."""
    option = match["option"] or match["primary"]
    group, _, name = option.rpartition("/")
    yield Finding(
        f"the configuration has no {option}"
        + (
            f", which {match['file']} or the command line asks for"
            if match["file"]
            else ", which the script starts from"
        ),
        (record.proof(match, "a file of the configuration that is there"),),
        Fix(
            f"name one of those that Hydra lists below that line, or add conf/{option}.yaml",
            command=f"ls conf/{group}; grep -rnF {name} conf *.sh   # the folder that 'Config search path' names",
        ),
        record.place,
    )


OF_SETTINGS = re.compile(r"deepspeed[/\\]runtime[/\\]config\.py|hf_argparser\.py|parse_json_file|\bds_config\b")


def _mend(fields: list[tuple[str, str]], text: str, owner: str) -> Fix:
    key = fields[0][0]
    if any(UNKNOWN.search(why) for _, why in fields):
        return Fix(
            f"take the key out, or install a {owner or 'version'} that knows it",
            command=f"pip install --upgrade {owner.lower()}" if owner else "",
            diff=f'-"{key}": ...',
        )
    if FROM_FLOAT in text:
        value = re.search(r"input_value=([\d.]+)", text)
        whole = int(float(value[1])) if value else 0
        return Fix(
            'write a whole number in place of the one that was computed for "auto", or upgrade what computes it',
            command="pip install --upgrade transformers accelerate",
            diff=f'-"{key}": "auto"\n+"{key}": {whole}',
        )
    return Fix(f"write {key} as it is asked for", diff=f'-"{key}": ...')


@log_pattern(r"ValueError: Target modules (?P<names>[^\n]{1,300}?) not found in the base model")
def of_modules_to_adapt(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """LoRA is told by their names which modules it adapts, and this model calls them otherwise."""
    yield Finding(
        f"LoRA is to adapt {match['names'].strip()}, and the model has no modules of these names",
        (record.proof(match, "names of the model's linear layers"),),
        Fix(
            "name the linear layers as this model does, or all of them",
            diff='-LoraConfig(target_modules=["q_proj", "v_proj"])\n+LoraConfig(target_modules="all-linear")\n'
            "+print(sorted({n.rpartition('.')[2] for n, m in model.named_modules() if isinstance(m, nn.Linear)}))",
        ),
        record.place,
    )
