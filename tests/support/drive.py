"""`treadle drive` for Python tests: requests in, answers out, arrays through .npy files.

    with drive.Drive(folder, "--activations", "float") as d:
        answer = d.ask(op="generate", prompts=[[1, 2]], options={"max_new_tokens": 4})
"""
import json
import os
import select
import subprocess

import testing


class Refused(AssertionError):
    """The command answered with an error; str() is its message."""


class Drive:
    def __init__(self, folder, *more, timeout=300):
        command = os.environ.get("TREADLE") or testing.source("build/bin/treadle")
        self.timeout = timeout
        self.process = subprocess.Popen([command, "drive", str(folder), *map(str, more)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        try:
            code = self.process.wait(self.timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        finally:
            self.process.stdout.close()
        assert code >= 0, f"treadle drive was ended by signal {-code}"

    def line(self, text):
        """One line as it is; the answer parsed."""
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()
        ready = select.select([self.process.stdout], [], [], self.timeout)[0]
        if not ready:
            self.process.kill()
            raise AssertionError(f"no answer in {self.timeout} s to {text[:200]}")
        answer = self.process.stdout.readline()
        assert answer, f"treadle drive ended ({self.process.wait()}) at {text[:200]}"
        return json.loads(answer)

    def ask(self, **request):
        answer = self.line(json.dumps(request))
        if "error" in answer:
            raise Refused(answer["error"]["message"])
        return answer
