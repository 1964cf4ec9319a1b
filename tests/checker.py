#!/usr/bin/env python3
"""Run a checker and hold its failures against tests/known-failures.txt.

    checker.py SUITE BIN CHECKER [ARGS…]

The checker prints "FAIL name: reason" and, with -v, "ok   name (seconds)". A case that fails and is listed for SUITE is
counted as known; a case that fails and is not listed, a listed case that passes, and a listed line that matches no case
are failures. The last line is "N passed, N failed".
"""
import fnmatch
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
LIST = HERE / "known-failures.txt"


def known_failures(suite):
    """The patterns listed for this suite, each with its reason."""
    found = {}
    for line in LIST.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            name, pattern, reason = re.split(r"\t+", line, maxsplit=2)
            if name == suite:
                found[pattern] = reason
    return found


def run(command):
    """The outcome of each case, as the checker tells it: {name: reason or None}."""
    outcomes, closing = {}, False
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    for line in process.stdout:
        if match := re.match(r"FAIL ((?:cli: )?.*?): (.*)", line):
            outcomes[match[1]] = match[2]
        elif match := re.match(r"ok   (.*?)(?: \([0-9.]+ s\))?$", line):
            outcomes[match[1]] = None
        elif re.match(r"\d+ passed, \d+ failed", line):
            closing = True
        else:
            print("|", line, end="")
    process.wait()
    return outcomes, closing


def main():
    suite, binary, checker, *args = sys.argv[1:]
    known = known_failures(suite)
    command = [sys.executable, checker, "--bin", binary, "-v", *args]
    outcomes, closing = run(command)
    wrong = [] if closing else [f"{suite}: the checker did not come to its end"]
    listed, passed = 0, 0
    for name, reason in outcomes.items():
        pattern = next((p for p in known if fnmatch.fnmatchcase(name, p)), None)
        if pattern and reason:
            listed += 1
        elif pattern:
            wrong.append(f"{name}: passes, though {LIST.name} lists it ({pattern}: {known[pattern]})")
        elif reason:
            wrong.append(f"{name}: {reason}")
        else:
            passed += 1
    stale = [p for p in known if not any(fnmatch.fnmatchcase(name, p) for name in outcomes)]
    wrong += [f"{pattern}: {LIST.name} lists it, but there is no such case" for pattern in stale]
    report(passed, wrong, listed)


def report(passed, wrong, listed):
    for line in wrong:
        print("FAIL", line)
    if listed:
        print(f"NOTE {listed} known failures, listed with reasons in tests/{LIST.name}")
    print(f"{passed} passed, {len(wrong)} failed")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
