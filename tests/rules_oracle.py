#!/usr/bin/env python3
"""Compare the rules of `asdf-mount --check` with the schemas of the standard, as Python's asdf applies them.

    rules_oracle.py ASDF-MOUNT FOLDER

Three sets of trees are written to FOLDER: every example in the schemas, and mutations of small valid trees and of the extensions in
`history`, one at a time.
Each tree is given to both, and they must agree on whether it breaks a rule; DIFFERENCES lists where they do not, and why.
The last line says how many did: "N passed, M failed".
"""
import copy
import os
import pathlib
import re
import subprocess
import sys
import warnings

# before asdf is loaded: the schemas of the standard's next version are there too
os.environ["ASDF_UNSTABLE_CORE_SCHEMAS"] = "1"
warnings.simplefilter("ignore")

import asdf
import yaml
from asdf import schema
from asdf.extension import Extension, TagDefinition

HEAD = "#ASDF 1.0.0\n#ASDF_STANDARD 1.6.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n--- !core/asdf-1.1.0\n"

NDARRAY = {"source": 0, "datatype": "int16", "byteorder": "little", "shape": [2, 3], "offset": 4, "strides": [6, 2]}
SOFTWARE = {"name": "n", "version": "1", "author": "a", "homepage": "http://x.org"}


class AllTags(Extension):
    """The tags of all versions of the standard with their schemas, where asdf takes those of one version only."""

    extension_uri = "asdf://asdf-mount/all-tags"

    def __init__(self):
        resources = asdf.get_config().resource_manager
        manifests = [yaml.safe_load(resources[uri]) for uri in resources if re.search("/manifests/(core|astronomy)-1[.0-9]*$", uri)]
        found = {tag["tag_uri"]: tag["schema_uri"] for manifest in manifests for tag in manifest["tags"]}
        self._tags = [TagDefinition(tag, schema_uris=[schema_uri]) for tag, schema_uri in found.items()]

    @property
    def tags(self):
        return self._tags


class Tagged:
    """A value with a tag of the standard."""

    def __init__(self, tag, value):
        self.tag, self.value = tag, value


def array(version="1.1.0"):
    return Tagged(f"core/ndarray-{version}", dict(NDARRAY))


def quantity(version="1.2.0"):
    return Tagged(f"unit/quantity-{version}", {"value": 1.5, "unit": Tagged("unit/unit-1.0.0", "m")})


def column(place, version, data):
    return Tagged(f"{place}/column-{version}", {"name": "c", "data": data, "unit": Tagged("unit/unit-1.0.0", "m"), "description": "d", "meta": {"k": 1}})


# One valid tree for each tag that is mutated.
BASES = {
    "ndarray-1.0.0": array("1.0.0"),
    "ndarray-1.1.0": array("1.1.0"),
    "ndarray-1.2.0": array("1.2.0"),
    "record-1.2.0": Tagged("core/ndarray-1.2.0", {**NDARRAY, "datatype": [{"name": "a", "datatype": ["ascii", 2]}], "mask": Tagged("core/ndarray-1.2.0", [True, False])}),
    "inline": Tagged("core/ndarray-1.1.0", {"data": [[1, 2], [3, 4]], "datatype": "int8", "mask": Tagged("core/ndarray-1.1.0", [[True, False], [True, True]])}),
    "record": Tagged("core/ndarray-1.1.0", {**NDARRAY, "datatype": [{"name": "a", "datatype": "int8", "byteorder": "big", "shape": [2]}, {"datatype": ["ascii", 4]}]}),
    "software": Tagged("core/software-1.0.0", dict(SOFTWARE)),
    "history": Tagged("core/history_entry-1.0.0", {"description": "d", "time": "2020-01-01", "software": [dict(SOFTWARE)]}),
    "extension": Tagged("core/extension_metadata-1.0.0", {"extension_class": "c", "package": Tagged("core/software-1.0.0", dict(SOFTWARE))}),
    "complex": Tagged("core/complex-1.0.0", "1.5-2j"),
    "integer-1.0.0": Tagged("core/integer-1.0.0", {"words": array("1.0.0"), "sign": "+", "string": "12"}),
    "integer-1.1.0": Tagged("core/integer-1.1.0", {"words": array(), "sign": "-"}),
    "integer-1.2.0": Tagged("core/integer-1.2.0", {"words": array("1.2.0"), "sign": "+"}),
    "externalarray": Tagged("core/externalarray-1.0.0", {"fileuri": "a.fits", "target": 1, "datatype": "float32", "shape": [2]}),
    "table-1.0.0": Tagged("core/table-1.0.0", {"columns": [column("core", "1.0.0", array("1.0.0"))], "meta": {"k": 1}}),
    "table-1.1.0": Tagged("table/table-1.1.0", {"columns": [column("table", "1.1.0", array())]}),
    "table-1.2.0": Tagged("table/table-1.2.0", {"columns": [column("table", "1.2.0", array())]}),
    "quantity-1.1.0": quantity("1.1.0"),
    "quantity-1.2.0": Tagged("unit/quantity-1.2.0", {"value": array(), "unit": "m", "datatype": "float32"}),
    "quantity-1.3.0": Tagged("unit/quantity-1.3.0", {"value": array(), "unit": "m", "datatype": ["ucs4", 3]}),
    "time-text": Tagged("time/time-1.1.0", "2020-01-01T00:00:00"),
    "time-1.0.0": Tagged("time/time-1.0.0", {"value": "J2000", "format": "jyear", "scale": "utc", "location": {"long": 10, "lat": 20.5, "h": 1, "unit": "m"}}),
    "time-1.1.0": Tagged("time/time-1.1.0", {"value": 2000.5, "format": "jyear", "scale": "tt", "location": {k: quantity("1.1.0") for k in "xyz"}}),
    "time-1.2.0": Tagged("time/time-1.2.0", {"value": array(), "base_format": "isot", "location": {k: quantity() for k in "xyz"}}),
    "time-1.4.0": Tagged("time/time-1.4.0", {"value": array(), "format": "unix_tai", "location": {k: quantity("1.3.0") for k in "xyz"}}),
    "fits-1.0.0": Tagged("fits/fits-1.0.0", [{"header": [["SIMPLE", True, "c"], []], "data": None}]),
    "fits-1.1.0": Tagged("fits/fits-1.1.0", [{"header": [["KEY", 1.5]], "data": array()}]),
    "fits-1.2.0": Tagged("fits/fits-1.2.0", [{"header": [["KEY", "v", "c"]], "data": array()}]),
}

# What a value is replaced by, one after the other; the first is the key left out.
GONE = object()
VALUES = [GONE, None, True, -1, "x", [], {}]
# Further replacements for keys where a rule is about the value.
MORE = {
    "shape": [["*", 2], ["x"], [1.5], [True], 3],
    "datatype": ["float16", "float128", ["ascii", -1], ["ascii", "x"], ["int8", "int16"], [{"name": "a"}], [{"datatype": "int8", "name": "1"}], [["ucs4", 1], "int8"]],
    "byteorder": ["big", "Big"],
    "strides": [[0, 2], [-2, 2], [1.0]],
    "offset": [1.5, 0],
    "mask": [Tagged("core/ndarray-1.1.0", [1, 2]), "1+1j", "one", 0.5, Tagged("core/ndarray-1.1.0", {"data": [True], "datatype": "int8"})],
    "data": [[{}], [[None, "a"], [1.5]], "x"],
    "sign": ["+-", "-"],
    "value": ["2020", "noon", [["B1950", "x"]], ["J2000"], 0.5],
    "format": ["mjd", "galexsec", "isot", "unix_tai"],
    "base_format": ["byear", "fits"],
    "scale": ["tai", "TAI"],
    "long": [180, 181, "x"],
    "lat": [-90.0, -91],
    "header": [[["TOOLONGKEY", 1]], [["KEY", "v" * 61]], [["KEY", 1, "c", 4]], [["KEY", {}]], [[1, 1]], [["KEY", True, "c" * 61]]],
    "columns": [[{}], [1]],
    "unit": ["", 1],
    "name": ["1", "a-b"],
}

# Where the verdicts differ: a pattern for the case, whether we find a fault, and why that is right.
DIFFERENCES = [
    (r"time-1\.[01]\.0 (value|format|scale|location).*", True,
     "these two versions of the schema also take a time for an array whose keys are all optional, so that any mapping passes; "
     "one with a value is meant as a time, and newer versions have dropped the array"),
    (r"((inline|record-1.2.0) mask|\S+ (words|value)|fits-1.1.0 0/data) is \{\}", True,
     "asdf finds that source and data are missing, but ends in an AttributeError while it puts that into words"),
    (r"(inline|record-1.2.0) mask/0 is (None|-1|'x'|\{\})", True,
     "asdf can't make an array of a list that is not rectangular, and ends in a ValueError before the rule is asked"),
    (r"extension by class software/version is (None|True|-1|'x'|\[\]|\{\})", True,
     "asdf looks at its own version only if it knows the class or the URI"),
    (r"extension of another package manifest_software.*", True,
     "asdf does not look at it if the extension is installed, but from another package; nobody's asdf has such an extension"),
]


def walk(value, path=()):
    """Every place in a tree where something can be replaced."""
    inner = value.value if isinstance(value, Tagged) else value
    if isinstance(inner, dict):
        for key in inner:
            yield (*path, key)
            yield from walk(inner[key], (*path, key))
    elif isinstance(inner, list):
        for number, item in enumerate(inner):
            yield (*path, number)
            yield from walk(item, (*path, number))


def replaced(tree, path, new):
    tree = copy.deepcopy(tree)
    at = tree.value
    for key in path[:-1]:
        at = at[key]
        at = at.value if isinstance(at, Tagged) else at
    if new is GONE:
        del at[path[-1]]
    else:
        at[path[-1]] = new
    return tree


def mutations():
    for base, tree in BASES.items():
        yield base, tree
        for new in [None, True, 1, "x", [], {}, ["x"], [1]]:
            yield f"{base} is {new!r}", Tagged(tree.tag, new)
        if isinstance(tree.value, dict):
            yield f"{base} with a key more", Tagged(tree.tag, {**tree.value, "more": 1})
        for path in walk(tree):
            # what stands deeper is the business of another base, and one item of a list and one coordinate are enough
            nested = len(path) == 2 and path[0] in ("words", "data", "value")
            if len(path) > 2 or nested or path[-1] in (1, "y", "z"):
                continue
            for new in VALUES + MORE.get(path[-1], []):
                what = "gone" if new is GONE else repr(new.value) if isinstance(new, Tagged) else repr(new)
                yield f"{base} {'/'.join(map(str, path))} is {what}", replaced(tree, path, new)


def extensions():
    """Files whose second extension is mutated: the schema describes the first one only, but asdf.open looks all of them up."""
    software = {"name": "asdf", "version": "1.0"}
    whole = {"extension_class": "c", "extension_uri": "asdf://asdf-format.org/core/extensions/core-1.6.0", "software": software, "manifest_software": {**software, "name": "asdf_standard"}}
    by_class = {key: value for key, value in whole.items() if key != "extension_uri"}
    items = [(repr(new), new) for new in VALUES[1:] + [1.5, [1]]]
    other = {**whole, "software": {**software, "name": "other"}}
    for name, base in [("by uri", whole), ("by class", by_class), ("of another package", other)]:
        for path in walk(base):
            for new in VALUES + (["1.0-dev", "6.0a1+g1"] if path[-1] == "version" else []):
                what = "gone" if new is GONE else repr(new)
                items.append((f"{name} {'/'.join(path)} is {what}", replaced(Tagged("", base), path, new).value))
    for name, item in items:
        history = {"history": {"extensions": [{"extension_class": "first"}, item]}}
        yield f"extension {name}", HEAD + yaml.dump(history, Dumper=Dumper, width=1000) + "...\n"


def examples():
    """Each example of each schema under the tags of the standard."""
    for uri, content in asdf.get_config().resource_manager.items():
        found = re.fullmatch(r"http://stsci.edu/schemas/asdf/((core|table|unit|time|fits)/.*)", uri)
        if not found or b"examples:" not in content:
            continue
        loaded = schema.load_schema(uri)
        for number, example in enumerate(loaded.get("examples", [])):
            # since yaml-schema draft-01 an example is a title and a text, or a title, a standard and a text
            yield f"example {number} of {found[1]}", example[-1]


class Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data):
        return True


def represent(dumper, data):
    node = dumper.represent_data(data.value)
    node.tag = "tag:stsci.edu:asdf/" + data.tag
    if isinstance(node, yaml.ScalarNode):
        node.style = None
        if not isinstance(data.value, str):
            # a tagged scalar is a string to YAML
            node.value = str(data.value)
    return node


Dumper.add_representer(Tagged, represent)


def text_of(tree):
    body = yaml.dump({"x": tree}, Dumper=Dumper, width=1000)
    return HEAD + body + "...\n"


def python_faults(path, wants_history):
    """What Python's asdf says of a file, or nothing. Errors behind the validation count only if they are about the history."""
    try:
        with asdf.open(path, lazy_load=True) as opened:
            del opened
    except asdf.ValidationError as error:
        return str(error).splitlines()[0]
    except Exception as error:  # noqa: BLE001: what else comes after the validation is no business of the rules
        return repr(error) if wants_history or "validat" in str(error).lower() else None
    return None


def main():
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    warnings.simplefilter("ignore")
    cases = []
    for name, text in examples():
        text = re.sub(r"(?m)^%.*\n|^---.*\n|^\.\.\.$", "", text)
        cases.append((name, HEAD + "x:\n" + re.sub("(?m)^", "  ", text.strip("\n")) + "\n...\n"))
    count = len(cases)
    cases += [(name, text_of(tree)) for name, tree in mutations()]
    cases += extensions()
    print(f"NOTE {count} examples, {len(cases) - count} mutations")
    for number, (_, text) in enumerate(cases):
        (folder / f"{number}.asdf").write_text(text)
    ours = check_all(program, folder, len(cases))
    passed, wrong, used = 0, [], set()
    with asdf.config_context() as config:
        config.validate_on_read = True
        config.add_extension(AllTags())
        for number, (name, _) in enumerate(cases):
            theirs = python_faults(folder / f"{number}.asdf", name.startswith("extension "))
            why = [(p, r) for p, found, r in DIFFERENCES if re.fullmatch(p, name) and found == bool(ours[number])]
            if bool(theirs) == bool(ours[number]):
                passed += 1
            elif why:
                passed += 1
                used.add(why[0][0])
            else:
                wrong.append(f"FAIL {number}.asdf {name}: asdf says {theirs}, we say {ours[number] or None}")
    wrong += [f"FAIL no case differs as listed: {p}" for p, _, _ in DIFFERENCES if p not in used]
    print("\n".join(wrong))
    print(f"{passed} passed, {len(wrong)} failed")
    return bool(wrong)


def check_all(program, folder, count):
    """The broken rules that `--check` tells of each file."""
    paths = [str(folder / f"{number}.asdf") for number in range(count)]
    said = subprocess.run([program, "--check", *paths], capture_output=True, text=True)
    found = {path: [] for path in paths}
    for line in said.stdout.splitlines():
        path, _, rest = line.partition(": ")
        if re.search(r"\(rule [a-z_/]*-[0-9.]*\)$", rest):
            found[path].append(rest)
        elif "ok:" not in rest and "damaged: line" not in rest:
            print(f"NOTE {line}")
    if said.returncode not in (0, 1, 23):
        raise SystemExit(said.stderr)
    return [found[path] for path in paths]


if __name__ == "__main__":
    sys.exit(main())
