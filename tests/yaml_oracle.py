#!/usr/bin/env python3
"""Compare what `asdf-mount --check` says of YAML with whether Python's asdf opens it, and with all its keys.

    yaml_oracle.py ASDF-MOUNT FOLDER

Each case is the value of a key in a small tree, which is written to FOLDER and given to both. They must agree on whether it is sound;
DIFFERENCES lists where they do not, and why. The last line says how many did: "N passed, M failed".
"""
import pathlib
import re
import subprocess
import sys
import warnings

import asdf
import yaml

HEAD = "#ASDF 1.0.0\n#ASDF_STANDARD 1.5.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n--- !core/asdf-1.1.0\n"
ANCHORS = "m: &m {k: 1}\nn: &n {j: 2}\nl: &l [*m, *n]\ns: &s [1]\nx: &x 1\no: !!omap [&o !!omap {q: 1}]\n"

SCALARS = ["x", '""', '"_"', "~", "yes", "oN", "y", '" yes"', "5", '"5"', '" 5"', '"5 "', '"-5"', '" -5"', '"- 5"', '"+-5"', '"--5"',
           '"-"', '"+"', "5.0", "5.", ".5", ".", "1e3", '"1E3"', '"1e"', "1.e3", ".e3", "1d3", "inf", "-Infinity", "nan", "NaN", ".iNF", "-.nan",
           '" .inf"', '".inf "', '" inf"', "0x1F", "0X1F", '" 0x1F"', '"0x"', '"0x_f_"', '"0x-F"', '"0x 5"', "0x0X5", "0b12", "0B1", "0b0b1",
           "00b1", "0o17", "0O17", '"0_o7"', "0o0x5", "089", '" 010"', "0_", "_5_", "1:30", "1:30.5", '"1:"', '":1"', '"1: -2"', '"1:--2"', "1:0o5",
           "0:1", "1:inf", r'"\xa05"', r'"\x855"', r'"\x1c5"', r'"\u200b5"', r'"5\0"', '"5 5"', "٣", "²", "K", "ſ"]

BASE64 = ["", "a", "aGk=", "aGk", '"aG k="', '"aG*k="', "aGk==", "aGk=a", "aGk=aGk=", '"="', '"===="', "a===", "aa", "aa=", "aa==", "aa=a=", "aa=a",
          "aa=aa", "a=a=", "a=a==", "aa=*=", '"=aGk="', "aaaa=", "aaaaa", "aaaaa=", "aaaaaa", "é", '"aGké="', '"aa==é"', '"-_-_"', r'"\0"', "aa==a"]

NODES = ["x", "", "[]", "[1]", "{}", "{a: 1}", "{a: ~, b: 2}", "{a: 1, b: 2}", "[{}]", "[{a: 1}]", "[{a: 1}, {a: 2}]", "[{a: 1, b: 2}]", "[[a]]", "[*m]",
         "[*x]", "[*l]", "[*o]", "[{<<: *m}]", "[{=: 1}]", "[!!omap {a: 1}]", "[!!str {a: 1}]", "[!foo {a: 1}]"]

NODE_TAGS = ["!!null", "!!str", "!!seq", "!!map", "!!set", "!!omap", "!!pairs", "!!foo", "!!python/tuple", "!!merge", "!!value", "!foo", "!",
             "!<tag:yaml.org,2002:>", "!<tag:yaml.org,2001:int>", "!core/unknown-1.0.0"]

CASES = [
    *(f"!!{tag} {text}" for tag in ["int", "float", "bool"] for text in [*SCALARS, "[1]", "{a: 1}"]),
    *(f"!!binary {text}" for text in [*BASE64, "[1]", "{a: 1}"]),
    *(f"{tag} {node}" for tag in NODE_TAGS for node in NODES),
    *(f"!!timestamp {text}" for text in ["x", "''", "2001-01-01", "2001-13-45", "[1]", "{a: 1}", r'"2001-01-01\n"', r'"2001-01-01\n\n"',
                                    r'"2001-01-01T10:10:10Z\n"', '"2001-01-01 "']),
    # nested
    *("\n" + "- " * depth + "x" for depth in [100, 220, 260, 500]),
    # plain
    *"0x_ 0b_ 0x__1 -0x_ +0b_ 0_ 00_ 1__ _ -_ 0o 08 << = [0x_] '0x_' 2001-13-45".split(),
    # merged
    *(f"{{<<: {source}}}" for source in [
        "3", "~", "[]", "[1]", "{}", "{a: 1}", "[{a: 1}]", "[[]]", "*m", "[*m, *n]", "*l", "*s", "*x", "[*l]", "*o", "{<<: 3}", "{<<: *m}",
        "!foo {a: 1}", "!!str {a: 1}", "!!map {a: 1}", "!!set {a}", "{0x_: 1}", "!!seq [{a: 1}]", "!!omap [{a: 1}, {b: 2}]", "[!!str {a: 1}]"]),
    '{"<<": 3}', '{! "<<": 3}', "{!!merge x: 3}", "{!!merge x: *m}", "!foo {<<: 3}", "{<<: *m, <<: *n}", "{<<: *m, <<: 3}",
    # keys
    *(f"{{{key}: 1}}" for key in [
        "!!int x", "!!int 5", "!!str 5", "!!binary a", "!!binary aGk=", "!!foo a", "!foo a", "!!timestamp 2001-01-01", "0x_", "2001-13-45", "=",
        "!!value a", "[a]", "!!seq [a]", "!!seq a", "!!map {a}", "!foo [a]"]),
    "{a: 1, !foo a: 2}", "{1: 1, true: 2}", "{0: 1, false: 2}", "{0x1: 1, yes: 2}", '{"1": 1, 1: 2}', '{"true": 1, true: 2}', "{2: 1, true: 2}",
    '{!!str 1: 1, "1": 2}', "{true: 1, 0: 2}", "{a: 1, b: 2, a: 3}",
    "!!omap [{1: 1}, {true: 2}]", "!!omap [{a: 1}, {b: 1}, {a: 1}]", "!!pairs [{<<: 3}]",
    # whose own tag is not looked at there, but elsewhere
    "*o", "[*o]", "[&z !!str x, *z]", "[&z !!str {=: x}, *z]", "!!int {=: 5}", "!!str {=: [a]}",
]

# Where the verdicts differ: a pattern for the case, whether we find a fault, and why.
DIFFERENCES = [
    (r".*\{=: (x|5)\}.*", True, "PyYAML takes a mapping for its value of =, where a scalar must stand; no other reader does"),
    (r"\{<<: \[!!str \{a: 1\}\]\}", True, "what is merged may have any tag, but a mapping is never a string"),
    (r"!!(int|float) ٣", True, "Python takes the digits of all scripts"),
    (r"!!pairs \[\{<<: 3\}\]", True, "nothing is merged there"),
]


def python_fault(path, text):
    """Why Python's asdf does not have all of a tree, or nothing."""
    try:
        with asdf.open(path, lazy_load=False, memmap=False) as opened:
            value = opened.tree["a"]
    except Exception as error:  # noqa: BLE001: of any kind, as its readers meet it
        return f"{type(error).__name__}: {error}".replace("\n", " ")
    node = yaml.compose(text).value[-1][1]
    merges = isinstance(node, yaml.MappingNode) and any(key.tag.endswith(":merge") for key, _ in node.value)
    lost = isinstance(value, dict) and not merges and len(value) < len(node.value)
    return "a key is lost" if lost else None


def check_all(program, paths):
    """What `--check` says of the tree of each file."""
    said = subprocess.run([program, "--check", *paths], capture_output=True, text=True)
    if said.returncode not in (0, 1, 23):
        raise SystemExit(said.stderr)
    found = {path: [] for path in paths}
    for line in said.stdout.splitlines():
        path, _, rest = line.partition(": ")
        if path in found and "ok:" not in rest:
            found[path].append(rest)
    return [found[path] for path in paths]


def main():
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    warnings.simplefilter("ignore")
    paths = [str(folder / f"{number}.asdf") for number in range(len(CASES))]
    texts = [f"{HEAD}{ANCHORS}a: {case}\n...\n" for case in CASES]
    for path, text in zip(paths, texts):
        pathlib.Path(path).write_text(text)
    passed, wrong, used = 0, [], set()
    for path, text, case, ours in zip(paths, texts, CASES, check_all(program, paths)):
        theirs = python_fault(path, text)
        why = [pattern for pattern, found, _ in DIFFERENCES if re.fullmatch(pattern, case) and found == bool(ours)]
        if bool(theirs) == bool(ours):
            passed += 1
        elif why:
            passed += 1
            used.add(why[0])
        else:
            wrong.append(f"FAIL {case}: asdf says {theirs}, we say {ours or None}")
    wrong += [f"FAIL no case differs as listed: {pattern}" for pattern, _, _ in DIFFERENCES if pattern not in used]
    print("\n".join(wrong))
    print(f"{passed} passed, {len(wrong)} failed")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
