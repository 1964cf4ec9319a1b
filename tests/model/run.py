#!/usr/bin/env python3
"""Work on mounted files at random, and hold each system call, the mount and FILE against a model in memory.

    run.py --bin PROGRAM [--seed N] [--steps K] [--first N] [--seeds COUNT] [--seconds S] [--fs KIND…] [--dir DIR] [--options OPTS] [-v]

A seed is a case: it chooses the file, the options, what processes do and how their system calls interleave. One step is one system call of a
process and the looks that follow. A case ends at the first divergence: seed, step, the last calls, the log of the mount, and the command that
does it again are printed. FILE lies in DIR, or on a filesystem that is made there; with several kinds, the seeds take turns. As root.
The last line is "N passed, N failed".
"""
import argparse
import contextlib
import os
import pathlib
import signal
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
from reference import Divergence             # noqa: E402
from session import Session                  # noqa: E402

KINDS = ["tmpfs", *disk.MAKE]

# What marks a call that only looks, and how many of them, and lines of the log, are shown.
LOOKS = "  looks: "
SHOWN_LOOKS = 8


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
        session.reference.wait()
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


def case(args, seed, kind, folder, base, until):
    """Complaints about one seed."""
    with tempfile.TemporaryDirectory(prefix="case-", dir=folder) as own:
        session = Session(args, seed, pathlib.Path(own), base)
        session.kind, session.name = kind, f"{kind or 'seed'}/{seed}"
        try:
            work(session, args.steps, until)
            return None, session
        except Divergence as divergence:
            if session.reference and session.reference.is_overdue():
                print(f"NOTE {session.name}: a name came back in step {session.step}, which took too long; nothing can be said from there on")
                return None, session
            if args.hold:
                input(f"{divergence}; the mount is {session.dir}, go on with Enter")
            return str(divergence), session
        except Exception:                    # a fault of the model is one too
            return traceback.format_exc(), session
        finally:
            session.end()


def told(args, session, seed, why, log):
    """What is needed to understand a failed case, and to see it again."""
    here = f"{session.step}:"
    looks = list(dict.fromkeys(line for line in session.history if LOOKS in line))
    last = [line for line in looks if line.startswith(here)][-SHOWN_LOOKS:]
    calls = [line for line in session.history if LOOKS not in line]
    print(*calls[-args.last:], *last, sep="\n")
    if log.exists():
        print("log:", *log.read_text(errors="replace").splitlines()[-SHOWN_LOOKS:], sep="\n  ")
    print(f"FAIL {session.name}: step {session.step}, -o {session.options or 'nothing'}: " + why.strip().replace("\n", " | "))
    kind = f" --fs {session.kind}" if session.kind else ""
    print(f"  again: {sys.executable} {HERE / 'run.py'} --bin {args.bin} --seed {seed} --steps {session.step}{kind}", flush=True)


def main():
    args = arguments()
    # who ends it wants nothing left behind
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    seeds = [args.seed] if args.seed is not None else range(args.first, args.first + args.seeds)
    until, passed, failed = time.monotonic() + args.seconds, 0, 0
    with tempfile.TemporaryDirectory(prefix="model-", dir=args.dir) as top, contextlib.ExitStack() as stack:
        base, kinds = pathlib.Path(top), args.fs or [None]
        disks = {kind: stack.enter_context(disk.filesystem(kind, base)) for kind in kinds}
        for seed in seeds:
            if time.monotonic() > until or failed and not args.keep_going:
                break
            kind, start = kinds[seed % len(kinds)], time.monotonic()
            why, session = case(args, seed, kind, disks[kind], base, until)
            passed, failed = passed + (not why), failed + bool(why)
            if why:
                told(args, session, seed, why, base / "log")
            elif args.v:
                print(f"ok   {session.name} ({time.monotonic() - start:.1f} s)", flush=True)
            (base / "log").unlink(missing_ok=True)
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, type=os.path.abspath)
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, default=10**9)
    parser.add_argument("--seconds", type=float, default=10**9)
    parser.add_argument("--fs", choices=KINDS, nargs="*")
    parser.add_argument("--dir", default=tempfile.gettempdir(), type=os.path.abspath)
    parser.add_argument("--options", help="of the mount, instead of those that the seed chooses")
    parser.add_argument("--quiet", action="store_true", help="no process that lists the mount beside the others")
    parser.add_argument("--lag", type=float, default=5, help="seconds until what comes of a descriptor's end must be seen")
    parser.add_argument("--without", nargs="*", default=[], help="scripts that are left out")
    parser.add_argument("--keep-going", action="store_true", help="do not end at the first case that fails")
    parser.add_argument("--last", type=int, default=60, help="how many calls to show of a case that fails")
    parser.add_argument("--hold", action="store_true", help="leave the mount of a case that fails as it is until Enter")
    parser.add_argument("-v", action="store_true", help="print passing cases too")
    return parser.parse_args()


if __name__ == "__main__":
    main()
