# timeout: 300
"""`treadle chat`, in a pseudo-terminal and with lines from a pipe. What a conversation is worth is compared with `treadle run` on the
prompt that jinja2 renders from it."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import testing
import tiny

END = ["--set", "/tokens/eos=[0,2]"]
model = tiny.Model(context=4096)


class Terminal:
    """The chat in a terminal of its own."""

    def __init__(self, folder, *arguments, more=None):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 200, 0, 0))
        environment = {**os.environ, "TERM": "dumb", "NO_COLOR": "1", **(more or {})}
        self.process = subprocess.Popen([os.environ["TREADLE"], "chat", folder, *map(str, arguments)], stdin=slave, stdout=slave, stderr=slave,
                                        env=environment, start_new_session=True, preexec_fn=self.control)
        os.close(slave)
        self.text = ""

    @staticmethod
    def control():
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def read(self, seconds):
        if select.select([self.master], [], [], seconds)[0]:
            try:
                self.text += os.read(self.master, 65536).decode(errors="replace")
                return True
            except OSError:  # the other side is closed
                time.sleep(0.01)
        return False

    def wait_for(self, pattern, seconds=60):
        """Reads until the pattern is there; returns what came up to its end and forgets it."""
        until = time.monotonic() + seconds
        while True:
            found = re.search(pattern, self.text, re.S)
            if found:
                out, self.text = self.text[:found.end()], self.text[found.end():]
                return out
            assert time.monotonic() < until, f"{pattern!r} did not come; there is {self.text[-500:]!r}"
            self.read(0.5)

    def type(self, text):
        os.write(self.master, text.encode())

    def key(self, character):
        """Ctrl-C or Ctrl-D; the line editor prints its prompt a moment before it takes the terminal over."""
        time.sleep(0.3)
        self.type(character)

    def interrupt(self):
        self.key("\x03")

    def end(self, code=0):
        until = time.monotonic() + 60
        while self.process.poll() is None and time.monotonic() < until:
            self.read(0.1)
        if self.process.poll() is None:
            self.process.kill()
            raise AssertionError(f"the chat did not end; there is {self.text[-500:]!r}")
        while self.read(0):
            pass
        os.close(self.master)
        testing.equal(self.process.returncode, code, self.text)
        return self.text


PROMPT = r"> $"


def answer_of(messages, n, *more):
    """What a fresh run answers to the whole conversation."""
    from jinja2 import Template
    rendered = Template(tiny.TEMPLATE).render(messages=messages, add_generation_prompt=True)
    return testing.treadle_json("run", model.folder, "-p", rendered, "--no-template", "-n", n, "--greedy", "--json", *more)["results"][0]["text"]


def lines(*said, more=()):
    return testing.treadle("chat", model.folder, "-n", 6, "--greedy", *more, stdin="".join(s + "\n" for s in said))


def conversation(said, system=None, n=6):
    """The answers, each by a run of its own."""
    messages, out = [{"role": "system", "content": system}] * (system is not None), []
    for text in said:
        messages.append({"role": "user", "content": text})
        out.append(answer_of(messages, n))
        messages.append({"role": "assistant", "content": out[-1]})
    return out, messages


def test_lines_from_a_pipe():
    """A turn continues from what is already computed, and gives what a fresh run gives."""
    want, _ = conversation(["hello", "and then?", "na\u00efve"])
    done = lines("hello", "and then?", "na\u00efve")
    testing.equal((done.returncode, done.stdout, done.stderr), (0, "".join(w + "\n" for w in want), ""))


def test_a_system_message():
    want, _ = conversation(["hello"], "be brief")
    testing.equal(lines("hello", more=("--system", "be brief")).stdout, want[0] + "\n")
    testing.equal(lines("/system be brief", "hello").stdout, want[0] + "\n")
    plain, _ = conversation(["hello"])
    testing.equal(lines("/system", "hello", more=("--system", "be brief")).stdout, plain[0] + "\n", "an empty one is none")
    testing.equal(lines("hello", "/new", "hello", more=("--system", "be brief")).stdout, 2 * (want[0] + "\n"), "/new keeps it")


def test_slash_commands():
    want, messages = conversation(["hello", "more"])
    testing.equal(lines("hello", "/retry").stdout, 2 * (want[0] + "\n"))
    testing.equal(lines("hello", "/new", "hello").stdout, 2 * (want[0] + "\n"))
    testing.equal(lines("/retry").stdout, "There is nothing to answer yet.\n")
    history = lines("hello", "more", "/history").stdout
    testing.equal(history, "".join(w + "\n" for w in want) + "".join(f"{m['role']}: {m['content']}\n" for m in messages))
    testing.equal(lines("hello", "/quit", "never read").stdout, want[0] + "\n")
    helped = lines("/help").stdout
    for word in ("/new", "/system", "/retry", "/history", "/quit", "Ctrl-C"):
        assert word in helped, helped
    testing.equal(lines("/nonsense").stdout, "Unknown command /nonsense.\n" + helped)
    testing.equal(lines("", "", "hello").stdout, want[0] + "\n", "empty lines are nothing")


def test_lines_that_go_on():
    want, _ = conversation(["first\nsecond"])
    testing.equal(lines("first\\", "second").stdout, want[0] + "\n")


def test_a_turn_that_does_not_fit_is_taken_back():
    want, _ = conversation(["hello"])
    done = lines("x" * 5000, "hello")
    testing.equal((done.returncode, done.stdout), (0, want[0] + "\n"))
    assert "4096" in done.stderr and "/new" in done.stderr, done.stderr


def test_models_without_a_template():
    plain = tiny.Model(template=None)
    done = testing.treadle("chat", plain.folder, stdin="hello\n")
    testing.equal((done.returncode, done.stdout), (3, ""))
    assert "chat template" in done.stderr, done.stderr


def test_in_a_terminal():
    want, _ = conversation(["hello", "again"])
    chat = Terminal(model.folder, "-n", 6, "--greedy")
    chat.wait_for("/help.*" + PROMPT)
    for said, answer in zip(["hello", "again"], want):
        chat.type(said + "\n")
        got = chat.wait_for(PROMPT).replace("\r", "")
        assert answer.replace("\r", "") in got, f"{answer!r} is not in {got!r}"
    chat.type("/quit\n")
    chat.end()


def test_the_prompt_alone_is_bold():
    t = Terminal(model.folder, "-n", 6, more={"NO_COLOR": "", "TERM": "xterm"})
    t.wait_for("\x1b\\[1m>\x1b\\[0m ")
    t.key("\x04")
    t.end()


def test_end_of_input_leaves():
    chat = Terminal(model.folder)
    chat.wait_for(PROMPT)
    chat.key("\x04")
    chat.end()


def test_interrupts_stop_the_answer_and_keep_the_chat():
    chat = Terminal(model.folder, "--ignore-eos", "--max-length", 4096, "--greedy", "--no-repeat-ngram-size", 3)
    chat.wait_for(PROMPT)
    chat.type("hello\n")
    chat.wait_for("hello\r*\n.{3}")
    chat.interrupt()
    chat.wait_for(PROMPT, 30)
    chat.type("/history\n")
    got = chat.wait_for("assistant: .*" + PROMPT)
    assert "user: hello" in got, got
    chat.type("/quit\n")
    chat.end()


def test_two_interrupts_quit():
    chat = Terminal(model.folder)
    chat.wait_for(PROMPT)
    chat.interrupt()
    chat.wait_for("Ctrl-C again.*" + PROMPT)
    chat.interrupt()
    chat.end(130)


def test_an_interrupt_between_messages_is_forgotten_after_the_next():
    chat = Terminal(model.folder, "-n", 4, "--greedy")
    chat.wait_for(PROMPT)
    for _ in range(2):
        chat.interrupt()
        chat.wait_for("Ctrl-C again.*" + PROMPT)
        chat.type("hi\n")
        chat.wait_for("hi\r*\n.*" + PROMPT)
    chat.type("/quit\n")
    chat.end()


def test_an_interrupt_drops_the_line_that_was_begun():
    chat = Terminal(model.folder, "-n", 4, "--greedy")
    chat.wait_for(PROMPT)
    chat.type("half a line")
    chat.wait_for("half a line")
    chat.interrupt()
    chat.wait_for(PROMPT)
    chat.type("/history\n")
    got = chat.wait_for(PROMPT)
    assert "half a line" not in got, got
    chat.type("/quit\n")
    chat.end()


def test_a_pipe_that_is_interrupted():
    p = subprocess.Popen([os.environ["TREADLE"], "chat", model.folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(0.5)
    p.send_signal(signal.SIGINT)
    time.sleep(0.2)
    if p.poll() is None:
        p.send_signal(signal.SIGINT)
    testing.equal(p.wait(30), 130)
    p.communicate()


testing.main()
