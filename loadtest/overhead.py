#!/usr/bin/env python3
"""What the router adds over asking the node directly.

Starts one edge node and one router on free loopback ports, then drives them in turns (direct,
routed, direct, routed, ...) with `midspan load live --exit force`, so that no cloud is involved.
Prints medians over the rounds: p50 of both ways, and the router's CPU microseconds per request
from the process's own clock (/proc/PID/stat), probes included.

    cargo build --release && python3 loadtest/overhead.py --rounds 7 --requests 4000
"""
import argparse, json, os, pathlib, statistics, subprocess, tempfile, time

ROOT = pathlib.Path(__file__).resolve().parent.parent


def start(program, command, folder, name, text):
    path = pathlib.Path(folder, name + ".toml")
    path.write_text(text)
    child = subprocess.Popen([program, command, "--until-stdin-closes", "-c", path],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                             env={**os.environ, "MIDSPAN_LOG": "error"})
    line = child.stdout.readline()
    if "listening on" not in line:
        raise SystemExit(f"{name} did not start: {line!r}")
    return child, line.split("listening on ")[1].split()[0]


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def drive(program, address, requests, concurrency, protocol):
    out = subprocess.run([program, "load", "live", "--endpoint", f"http://{address}",
                          "--requests", str(requests), "--concurrency", str(concurrency),
                          "--exit", "force", "--protocol", protocol, "--json", "-"],
                         check=True, capture_output=True, text=True).stdout
    report = json.loads(out)
    assert report["answers"] == requests, report["errors"]
    return report["latency"]["p50_us"], report["answers_per_s"]


def main():
    options = argparse.ArgumentParser(description=__doc__,
                                      formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--program", default=str(ROOT / "target/release/midspan"))
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--requests", type=int, default=4000)
    options.add_argument("--concurrency", type=int, nargs="+", default=[1, 8])
    options.add_argument("--protocol", default="h1", choices=["h1", "h2"])
    args = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        node, node_address = start(args.program, "node", folder, "edge",
            'name = "edge"\n[listen]\naddress = "127.0.0.1:0"\n[[model]]\nbundle = "embedded"\n')
        router, router_address = start(args.program, "router", folder, "router",
            '[listen]\napps = "127.0.0.1:0"\nadmin = "127.0.0.1:0"\n'
            f'[[node]]\nname = "edge"\naddress = "{node_address}"\n')
        try:
            for _ in range(100):  # until the router knows the node's models
                try:
                    drive(args.program, router_address, 50, 1, args.protocol)
                    break
                except subprocess.CalledProcessError:
                    time.sleep(0.1)
            print(f"{args.rounds} interleaved rounds of {args.requests} requests, {args.protocol}; medians")
            print("in flight  direct p50  routed p50  added p50  router CPU per request  direct/s  routed/s")
            for concurrency in args.concurrency:
                direct, routed, cpu, rates = [], [], [], ([], [])
                for _ in range(args.rounds):
                    p50, rate = drive(args.program, node_address, args.requests, concurrency, args.protocol)
                    direct.append(p50)
                    rates[0].append(rate)
                    before = cpu_seconds(router.pid)
                    p50, rate = drive(args.program, router_address, args.requests, concurrency, args.protocol)
                    cpu.append((cpu_seconds(router.pid) - before) / args.requests * 1e6)
                    routed.append(p50)
                    rates[1].append(rate)
                added = [b - a for a, b in zip(direct, routed)]
                m = statistics.median
                print(f"{concurrency:9}  {m(direct):7.0f} us  {m(routed):7.0f} us  {m(added):6.0f} us"
                      f"  {m(cpu):19.1f} us  {m(rates[0]):8.0f}  {m(rates[1]):8.0f}")
        finally:
            for child in (router, node):
                child.stdin.close()
                child.wait(15)


if __name__ == "__main__":
    main()
