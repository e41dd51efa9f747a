"""Schemathesis: requests made from the server's own OpenAPI document, good and bad.

    python fuzz_openapi.py --node HOST:PORT --router HOST:PORT [--examples N] [--seed N]
        [--document FILE]

No answer may be a server's failure, have a status, type or body that the document does not state,
or take what the document forbids. The same seed makes the same requests.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import checks

SEED = 20260101
EXAMPLES = 15
FOLDER = Path(__file__).parent


def command(document, address, options, folder):
    """Schemathesis as its users start it."""
    return [
        sys.executable,
        "-m",
        "schemathesis.cli",
        f"--config-file={FOLDER / 'schemathesis.toml'}",
        "run",
        document,
        f"--url=http://{address}",
        "--checks=all",
        "--phases=examples,coverage,fuzzing",
        f"--max-examples={options.examples}",
        f"--seed={options.seed}",
        "--generation-database=none",
        "--continue-on-failure",
        "--request-timeout=20",
        f"--report-dir={folder}",
        "--no-color",
    ]


def main():
    arguments = checks.parser(__doc__.splitlines()[0])
    arguments.add_argument("--examples", type=int, default=EXAMPLES, help="at most, per operation")
    arguments.add_argument("--seed", type=int, default=SEED, help="another one, to look further")
    arguments.add_argument("--document", help="a file, instead of /openapi.json of each server")
    options = arguments.parse_args()
    failed = 0
    for label, address in checks.servers(options):
        document = options.document or f"http://{address}/openapi.json"
        # It writes what it learnt into the folder it is started in.
        with tempfile.TemporaryDirectory() as folder:
            ran = subprocess.run(
                command(document, address, options, folder),
                cwd=folder,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=checks.LONGEST_SECONDS,
            )
        failed += ran.returncode != 0
        print(f"{'FAIL' if ran.returncode else 'ok  '} {label}", flush=True)
        print(ran.stdout, flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
