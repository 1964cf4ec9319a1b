#!/usr/bin/env python3
"""Work on mounted files at random, and hold each system call, the mount and FILE against a model in memory.

    run.py --bin PROGRAM [--seed N] [--steps K] [--seeds COUNT] [--seconds S] [--fs KIND] [--dir DIR] [--options OPTS] [--quiet] [-v]

A seed is a case: it chooses the file, the options, what processes do and how their system calls interleave. One step is one system call of a
process and the looks that follow. A case ends at the first divergence: seed, step, the last calls, the log of the mount, and the command that
does it again are printed. The last line is "N passed, N failed".
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import checks                                # noqa: E402
import disk                                  # noqa: E402
import events                                # noqa: E402
import scripts                               # noqa: E402
from reference import Divergence, Rules      # noqa: E402
from session import Session                  # noqa: E402

KINDS = [None, "tmpfs", "ext4", "xfs", "btrfs"]


def choose(random, weighted):
    return random.choices([one for one, _ in weighted], [weight for _, weight in weighted])[0]


def work(session, steps, until):
    """The steps of a run."""
    running = [None] * len(session.workers)
    session.start()
    checks.everything(session)
    for session.step in range(1, steps + 1):
        if time.monotonic() > until:
            break
        if session.random.random() < events.ODDS:
            event = choose(session.random, events.EVENTS)
            session.history.append(f"{session.step}: -- {event.__name__}")
            if event(session):
                running = [None] * len(session.workers)
        else:
            w = session.random.randrange(len(session.workers))
            if running[w] is None:
                script = choose(session.random, [one for one in scripts.SCRIPTS if one[0].__name__ not in session.args.without])
                session.history.append(f"{session.step}: {w} -- {script.__name__}")
                running[w] = script(session, w)
            if next(running[w], "over") == "over":
                running[w] = None
        checks.after_a_step(session)
    events.ended(session)


def case(args, seed, folder, base, until):
    """Complaints about one seed."""
    session = Session(args, seed, folder, base)
    try:
        work(session, args.steps, until)
        return None, session
    except Divergence as divergence:
        if args.hold:
            input(f"{divergence}; the mount is {session.dir}, go on with Enter")
        return str(divergence), session
    except Exception:                        # a fault of the model is one too
        return traceback.format_exc(), session
    finally:
        session.end()


def told(args, session, seed, why, log):
    here = f"{session.step}:"
    calls = [line for line in session.history if "  looks: " not in line or line.startswith(here)]
    looks = list(dict.fromkeys(line for line in calls if "  looks: " in line))
    calls = [line for at, line in enumerate(calls) if line not in looks or line in looks[-8:] and line not in calls[:at]]
    print("\n".join(calls[-args.last:]))
    print("log:", *log.read_text(errors="replace").splitlines()[-8:] if log.exists() else [], sep="\n  ")
    kind = f" --fs {args.fs}" if args.fs else ""
    print(f"FAIL seed {seed}: step {session.step}, -o {session.options or 'nothing'}: {why}".replace("\n", " | ") if "Traceback" not in why else why)
    print(f"  again: {sys.executable} {HERE / 'run.py'} --bin {args.bin} --seed {seed} --steps {session.step}{kind}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, type=os.path.abspath)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=10**9)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=10**9)
    parser.add_argument("--fs", choices=KINDS[1:])
    parser.add_argument("--dir", default=tempfile.gettempdir(), type=os.path.abspath)
    parser.add_argument("--options")
    parser.add_argument("--last", type=int, default=60, help="how many calls to show")
    parser.add_argument("--quiet", action="store_true", help="no process that lists the mount beside the others")
    parser.add_argument("--without", nargs="*", default=[], help="scripts that are left out")
    parser.add_argument("--hold", action="store_true", help="leave the mount as it is until Enter")
    parser.add_argument("--keep-going", action="store_true")
    parser.add_argument("-v", action="store_true", help="print passing seeds too")
    args = parser.parse_args()
    args.rules = Rules()
    seeds = [args.seed] if args.seed is not None else range(args.first, args.first + args.seeds)
    until, passed, failed = time.monotonic() + args.seconds, 0, 0
    with tempfile.TemporaryDirectory(prefix="model-", dir=args.dir) as top, disk.filesystem(args.fs, top) as disk_folder:
        for seed in seeds:
            if time.monotonic() > until:
                break
            folder = disk_folder / "case"
            folder.mkdir()
            base = pathlib.Path(top)
            start = time.monotonic()
            why, session = case(args, seed, folder, base, until)
            if why:
                failed += 1
                told(args, session, seed, why, base / "log")
            else:
                passed += 1
                if args.v:
                    print(f"ok   seed {seed} ({time.monotonic() - start:.1f} s)", flush=True)
            shutil.rmtree(folder)
            (base / "log").unlink(missing_ok=True)
            if failed and not args.keep_going:
                break
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
