"""What the scripts beside it share: a list of checks, run at each server, reported one a line.

A check is a function that takes an address (`host:port`) and raises when the answer is wrong. It
knows nothing of which server it asks: node and router must answer the same.
"""

import argparse
import asyncio
import contextlib
import faulthandler
import inspect
import sys
import time
import traceback

# A script that hangs says where, and ends.
LONGEST_SECONDS = 150
MARK = "  "

_checks = []


class Wrong(Exception):
    """The server answered, but not as the protocol has it."""


def check(title):
    """Puts a function on the list; a coroutine function is awaited."""

    def listed(function):
        _checks.append((title, function))
        return function

    return listed


def same(got, wanted, what):
    """Equal, of plain values."""
    if got != wanted:
        raise Wrong(f"{what}: expected {wanted!r}, got {got!r}")


def equal(got, wanted, what):
    """Equal, of numpy arrays: type, shape, and every element; NaN equals NaN."""
    if got is None:
        raise Wrong(f"{what}: no such output")
    if (got.dtype, got.shape) != (wanted.dtype, wanted.shape):
        raise Wrong(f"{what}: expected {wanted.dtype} {wanted.shape}, got {got.dtype} {got.shape}")
    # Bytes of elements, so that NaN and -0.0 count too; texts are Python objects.
    alike = (
        got.tolist() == wanted.tolist()
        if got.dtype == object
        else (got.tobytes() == wanted.tobytes())
    )
    if not alike:
        raise Wrong(f"{what}: expected {wanted.tolist()!r}, got {got.tolist()!r}")


def holds(condition, what):
    """A condition that only its name explains."""
    if not condition:
        raise Wrong(what)


@contextlib.contextmanager
def refused(kind, status=None, saying=()):
    """The block must raise `kind`. `status(error)` and the error's text are what is looked at."""
    accepted, read = status or ((), None)
    try:
        yield
    except kind as error:
        text = str(error)
        if read is not None and read(error) not in accepted:
            raise Wrong(
                f"refused with {read(error)!r}, expected one of {accepted}: {text}"
            ) from error
        missing = [word for word in saying if word not in text]
        if missing:
            raise Wrong(f"refused without naming {missing}: {text}") from error
        return
    raise Wrong("accepted, should have been refused")


def until(condition, what, seconds=10):
    """Asks until it is so: for what another process learns in its own time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise Wrong(f"not within {seconds} s: {what}")
        time.sleep(0.05)


def parser(description):
    """The arguments of every script."""
    arguments = argparse.ArgumentParser(description=description)
    arguments.add_argument("--node", metavar="HOST:PORT", help="a node, asked directly")
    arguments.add_argument("--router", metavar="HOST:PORT", help="a router in front of it")
    arguments.add_argument("--only", default="", help="only checks with this in their title")
    return arguments


def servers(options):
    """Label and address of each server that was named."""
    named = [("node", options.node), ("router", options.router)]
    found = [(label, address) for label, address in named if address]
    if not found:
        sys.exit("neither --node nor --router")
    return found


def run(options, verbose=False):
    """Runs every listed check at every server; ends the process with what came out."""
    faulthandler.dump_traceback_later(LONGEST_SECONDS, exit=True)
    failed = total = 0
    began = time.monotonic()
    for label, address in servers(options):
        for title, function in _checks:
            if options.only not in title:
                continue
            total += 1
            failed += not _one(label, title, function, address, verbose)
    took = time.monotonic() - began
    print(f"{total - failed} of {total} checks hold, {took:.1f} s", flush=True)
    sys.exit(1 if failed or not total else 0)


def _one(label, title, function, address, verbose):
    began = time.monotonic()
    try:
        if inspect.iscoroutinefunction(function):
            asyncio.run(function(address))
        else:
            function(address)
    # A client may raise anything, also what is no Exception (gevent's Timeout).
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        print(f"FAIL {label:6} {title}\n{MARK * 2}{reason[:600]}", flush=True)
        if verbose:
            traceback.print_exc()
        return False
    print(f"ok   {label:6} {title}  ({(time.monotonic() - began) * 1000:.0f} ms)", flush=True)
    return True
