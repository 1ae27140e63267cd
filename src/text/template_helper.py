# SPDX-License-Identifier: Apache-2.0
"""Renders one chat template, for chat_template.cpp, which starts it with the source of this file.

It talks on standard input and output in frames of a little-endian u32 length and the bytes.
First frame: memory limit, CPU seconds a render, output limit (u32 text each), the template, then
special tokens ("s" + text) and variables ("v" + name + "=" + value), each with its own u32 length.
Every further frame is a context, a JSON object. Every answer is a frame: one letter for its kind,
then the payload (see the constants). Before it reads a template, it gives up every way to the
outside: limits on memory, files and CPU time, and a seccomp filter that leaves little more than
reading, writing and memory.

Special tokens are told from look-alikes in messages by where they come from: in the source of the
template they are replaced by private-use characters, so that whatever else the output holds is
text. The characters are chosen so that neither the template nor the context has them.
"""

import ctypes
import datetime
import errno
import json
import math
import os
import re
import resource
import struct
import sys

import jinja2
import jinja2.debug  # what Jinja would import while it handles an error, when no file can be opened
import jinja2.ext
import jinja2.sandbox

TEXT = b"T"  # u32 code point of the first marker, then the text
RAISED = b"R"  # the template called raise_exception: its text
SYNTAX = b"Y"  # line and message
FORBIDDEN = b"S"
UNDEFINED = b"U"
MEMORY = b"M"
OUTPUT = b"O"
NESTED = b"N"
MARKERS = b"K"  # the context uses up the private-use characters
PARTS = b"P"  # the template puts special tokens together from parts
FAILED = b"E"  # any other exception: the name of its class

SYSCALLS = (
    "read write close brk mmap munmap mremap mprotect madvise futex getrandom clock_gettime "
    "gettimeofday getrusage prlimit64 getrlimit setrlimit rt_sigaction rt_sigprocmask rt_sigreturn "
    "sigaltstack exit exit_group getpid gettid sched_yield"
).split()
MARKER_FIRST, MARKER_LAST = 0xF0000, 0xFFFFD
RAISED_BYTES_MAX = 500
PROBES = (
    '{"messages": [{"role": "user", "content": "x"}], "add_generation_prompt": true}',
    '{"messages": [{"role": "system", "content": "x"}, {"role": "user", "content": "x"},'
    ' {"role": "assistant", "content": "x"}, {"role": "user", "content": "x"}]}',
)


class RaisedByTemplateError(jinja2.TemplateError):
    pass


class OutputLimitError(Exception):
    pass


class MarkersUsedUpError(Exception):
    pass


def read_exactly(count):
    parts = []
    while count > 0:
        part = os.read(0, min(count, 1 << 20))
        if not part:
            os._exit(0)  # the parent is gone
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def read_frame():
    return read_exactly(struct.unpack("<I", read_exactly(4))[0])


def write_frame(kind, payload=b""):
    data = memoryview(struct.pack("<I", 1 + len(payload)) + kind + payload)
    while data:
        data = data[os.write(1, data):]


def lock_down(memory_bytes):
    """Limits that hold from here on. Fails loudly: without them nothing is rendered."""
    datetime.datetime.now().strftime("%Z")  # reads the time zone while files can be opened
    for limit, value in (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, 8),
    ):
        resource.setrlimit(limit, (value, value))
    lib = ctypes.CDLL("libseccomp.so.2")
    lib.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(lib.seccomp_init(0x00050000 | errno.EPERM))  # SCMP_ACT_ERRNO
    for name in SYSCALLS:
        number = lib.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:  # some names are missing on some architectures
            lib.seccomp_rule_add(context, 0x7FFF0000, number, 0)  # SCMP_ACT_ALLOW
    if lib.seccomp_load(context) != 0:
        raise OSError("no seccomp filter")


def warm_up():
    """Loads what Python and Jinja load on first use (codecs, the traceback rewriter, filters)."""
    for source in (
        "{% macro m(a) %}{{ a }}{% endmacro %}{{ m('\\u00e9\\n') | tojson | trim | upper }}"
        "{% for k, v in {'a': [1, 2]} | dictsort %}{{ k ~ v | string | length }}{% endfor %}"
        "{{ strftime_now('%Y-%m-%d') }}{{ lipsum(1) }}",
        "{{ a.b.c }}",
        "{{ ''.__class__.x }}",
        "{{ (1 }}",
        "{% include 'a' %}",
        "{{ raise_exception('') }}",
    ):
        try:
            make_environment().from_string(source).render()
        except Exception:  # Most of these fail on purpose.
            continue


def renew_cpu_limit(seconds):
    usage = resource.getrusage(resource.RUSAGE_SELF)
    soft = math.ceil(usage.ru_utime + usage.ru_stime + seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.RLIM_INFINITY))


def make_environment():
    """The environment of Hugging Face transformers' apply_chat_template."""

    def raise_exception(message):
        raise RaisedByTemplateError(str(message))

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    return environment


class ChatTemplate:
    def __init__(self, source, specials, variables, output_chars_max):
        self.source = source
        self.specials = specials
        self.variables = variables
        self.output_chars_max = output_chars_max
        # Longest first, as the tokenizer finds them.
        alternatives = sorted(specials, key=len, reverse=True)
        self.pattern = re.compile("|".join(map(re.escape, alternatives))) if specials else None
        self.trusted = source + "".join(variables.values())
        self.base = self.free_base("")
        self.compiled = self.compile(self.base)

    def free_base(self, text):
        """The first of len(specials) neighbouring characters that stand nowhere."""
        used = sorted(
            {ord(c) for c in set(text) | set(self.trusted) if MARKER_FIRST <= ord(c) <= MARKER_LAST})
        base = MARKER_FIRST
        for character in used:
            if character >= base + len(self.specials):
                break
            base = character + 1
        if base + len(self.specials) > MARKER_LAST:
            raise MarkersUsedUpError
        return base

    def mark(self, text, base):
        if base is None or self.pattern is None:
            return text
        index = {special: base + i for i, special in enumerate(self.specials)}
        return self.pattern.sub(lambda match: chr(index[match.group()]), text)

    def compile(self, base):
        """base None: without markers."""
        template = make_environment().from_string(self.mark(self.source, base))
        template.globals.update({k: self.mark(v, base) for k, v in self.variables.items()})
        return template

    def generate(self, template, context):
        parts = []
        left = self.output_chars_max
        context = {"tools": None, "documents": None, "add_generation_prompt": False, **context}
        for part in template.generate(context):
            left -= len(part)
            if left < 0:
                raise OutputLimitError
            parts.append(part)
        return "".join(parts)

    def render(self, context_text):
        """Returns the first marker and the text."""
        context = json.loads(context_text)
        # JSON may spell a character as an escape, so the values are looked at, not their spelling.
        used = json.dumps(context, ensure_ascii=False)
        last = self.base + len(self.specials) - 1
        if self.specials and re.search(f"[{chr(self.base)}-{chr(last)}]", used):
            base = self.free_base(used)
            return base, self.generate(self.compile(base), context)
        return self.base, self.generate(self.compiled, context)

    def makes_specials_from_parts(self):
        """Whether the markers find all special tokens that a rendered text has."""
        plain = self.compile(None)
        for probe in PROBES:
            try:
                expected = self.generate(plain, json.loads(probe))
                base, text = self.render(probe)
            except Exception:  # A template may refuse a probe.
                continue
            if self.pattern is not None and self.mark(expected, base) != text:
                return True
        return False


def answer(work):
    """Runs work() -> (kind, payload) and turns every failure into a kind."""
    try:
        return work()
    except RaisedByTemplateError as error:
        text = str(error).encode("utf-8", "replace")[:RAISED_BYTES_MAX]
        return RAISED, text.decode("utf-8", "ignore").encode()
    except jinja2.TemplateSyntaxError as error:
        return SYNTAX, f"line {error.lineno}: {error.message}".encode("utf-8", "replace")[:500]
    except jinja2.sandbox.SecurityError:
        return FORBIDDEN, b""
    except jinja2.UndefinedError:
        return UNDEFINED, b""
    except (MemoryError, OverflowError):
        return MEMORY, b""
    except OutputLimitError:
        return OUTPUT, b""
    except RecursionError:
        return NESTED, b""
    except MarkersUsedUpError:
        return MARKERS, b""
    except Exception as error:  # A template can raise anything; its words stay here.
        return FAILED, type(error).__name__.encode()


def read_settings():
    data = read_frame()
    fields = []
    at = 0
    while at < len(data):
        (size,) = struct.unpack_from("<I", data, at)
        fields.append(data[at + 4:at + 4 + size].decode("utf-8", "replace"))
        at += 4 + size
    specials = [field[1:] for field in fields[4:] if field[0] == "s"]
    variables = dict(field[1:].split("=", 1) for field in fields[4:] if field[0] == "v")
    return int(fields[0]), int(fields[1]), int(fields[2]), fields[3], specials, variables


def main():
    memory_bytes, cpu_seconds, output_bytes_max, source, specials, variables = read_settings()
    warm_up()
    lock_down(memory_bytes)
    template = None

    def start():
        nonlocal template
        template = ChatTemplate(source, specials, variables, output_bytes_max)
        return (PARTS if template.makes_specials_from_parts() else TEXT), b""

    def render(context_text):
        base, text = template.render(context_text)
        data = text.encode("utf-8", "replace")
        if len(data) > output_bytes_max:
            raise OutputLimitError
        return TEXT, struct.pack("<I", base) + data

    renew_cpu_limit(cpu_seconds)
    kind, payload = answer(start)
    write_frame(kind, payload)
    if kind != TEXT:
        sys.exit(0)
    while True:
        context_text = read_frame()
        renew_cpu_limit(cpu_seconds)
        write_frame(*answer(lambda: render(context_text)))


main()
