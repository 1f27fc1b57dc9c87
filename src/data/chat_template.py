# Renders chat templates by Jinja: {"template", "variables"} gives {"text"}. "variables" is JSON as text, so that objects
# keep the order of their keys. Environment, filters and functions are those that templates are written for: the ones of
# transformers' apply_chat_template.
import datetime
import functools
import resource

import jinja2
import jinja2.ext
import jinja2.sandbox

_MOST_BYTES = 1 << 30  # of memory beyond what the interpreter has mapped, for one conversation and its text


class _Generation(jinja2.ext.Extension):
    """{% generation %} … {% endgeneration %} stands around what the model says, and leaves it as it is."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


class _Raised(jinja2.TemplateError):
    """raise_exception() of a template."""


def _raise_exception(message):
    raise _Raised(message)


def _tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _strftime_now(form):
    return datetime.datetime.now().strftime(form)


@functools.lru_cache(maxsize=16)
def _compiled(text):
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols])
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment.from_string(text)


def _shown(value):
    return " ".join(str(value).split())[:300]


def _line(error):
    """Where in the template it happened: the innermost of its frames."""
    line, frame = None, error.__traceback__
    while frame:
        if frame.tb_frame.f_code.co_filename == "<template>":
            line = frame.tb_lineno
        frame = frame.tb_next
    return f"line {line}: " if line else ""


def _limit_memory():
    with open("/proc/self/statm") as statm:
        mapped = int(statm.read().split()[0]) * resource.getpagesize()
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    limit = mapped + _MOST_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def answer(request):
    try:
        text = _compiled(request["template"]).render(json.loads(request["variables"]))
    except jinja2.TemplateSyntaxError as error:
        raise Refusal(f"line {error.lineno}: {_shown(error.message)}")
    except _Raised as error:
        raise Refusal(f"it refuses the conversation: {_shown(error.message)}")
    except (MemoryError, RecursionError):
        raise
    except Exception as error:
        raise Refusal(f"{_line(error)}{_shown(error) or type(error).__name__}")
    # A template can spell half a surrogate pair, which no UTF-8 holds.
    return {"text": text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")}, b""


_limit_memory()
serve(answer)
