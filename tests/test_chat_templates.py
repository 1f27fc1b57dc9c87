"""Chat templates: the text that `transformers` renders, for templates in the style of those that are published
(chat_templates/, of our own making), and one message for whatever a template or a conversation can do wrong."""

import json
import random
import subprocess

import jinja2
import pytest
import tiny_models
from conftest import BINARY, ROOT
from python_worker import Worker
from transformers import AutoTokenizer

TEMPLATES = {path.stem: path.read_text() for path in sorted((ROOT / "tests/chat_templates").glob("*.jinja"))}
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "additional_special_tokens": ["<a>", "<b>"]}

# Keys in an order that is no alphabetical one, text that HTML or ASCII would escape, numbers of every kind.
TOOLS = [{"type": "function", "function": {
    "name": "weather", "description": "The weather of a place <today> & \"tomorrow\" — été",
    "parameters": {"type": "object", "properties": {"place": {"type": "string"}, "days": {
        "type": "integer", "default": 3, "maximum": 1e22, "minimum": -0.5}}, "required": ["place"]}}},
         {"type": "function", "function": {"name": "now", "parameters": {}}}]
CALL = {"role": "assistant", "content": "", "tool_calls": [{"id": "abcdefghi", "type": "function", "function": {
    "name": "weather", "arguments": {"place": "Zürich <'&'>", "days": 2, "at": 1.5, "sure": True, "not": None}}}]}
ANSWER = {"role": "tool", "content": "12 °C", "tool_call_id": "abcdefghi"}
USER, SYSTEM = {"role": "user", "content": " What is\n2 + 2? \n"}, {"role": "system", "content": " Be brief. "}
FOUR = {"role": "assistant", "content": "<think>\nIt is easy.\n</think>\n\n 4 \U0001f600 日本 "}

CONVERSATIONS = {
    "user": {"messages": [USER]},
    "system": {"messages": [SYSTEM, USER]},
    "turns": {"messages": [SYSTEM, USER, FOUR, {"role": "user", "content": "And 3?"}]},
    "answered": {"messages": [USER, FOUR]},
    "markup": {"messages": [{"role": "user", "content": "{{ 7 * 7 }} {% raw %} <|im_end|> &amp; \" ' \\ \u2028 \t"}]},
    "empty": {"messages": [{"role": "user", "content": ""}, {"role": "assistant", "content": ""}]},
    "tools": {"messages": [USER], "tools": TOOLS},
    "no tools": {"messages": [USER], "tools": []},
    "called": {"messages": [USER, CALL, ANSWER], "tools": TOOLS},
    "two results": {"messages": [SYSTEM, USER, CALL, ANSWER, {**ANSWER, "content": "13 °C"}, FOUR], "tools": TOOLS},
    "reasoned": {"messages": [USER, {"role": "assistant", "content": "4", "reasoning_content": "\nEasy.\n"}]},
    "parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": " see "}, {"type": "image"}]}]},
    "no thinking": {"messages": [USER], "chat_template_kwargs": {"enable_thinking": False, "date_string": "1 May"}},
    "documents": {"messages": [USER], "documents": [{"title": "one", "text": "word " * 20}, {"text": "b"}, {"text": "c"}]},
    "twice the assistant": {"messages": [USER, FOUR, FOUR]},
    "unknown role": {"messages": [{"role": "critic", "content": "no"}]},
}


@pytest.fixture(scope="module")
def save(tmp_path_factory):
    """save(template, **options) -> (transformers' tokenizer, read from its directory; the directory)"""

    def make(template, jinja=True, **tokens):
        folder = tmp_path_factory.mktemp("chat")
        made = tiny_models.fast_tokenizer(**{**TOKENS, **tokens})
        made.chat_template = template
        made.save_pretrained(folder, save_jinja_files=jinja)
        assert (folder / "chat_template.jinja").exists() == (jinja and template is not None)
        return AutoTokenizer.from_pretrained(folder), folder

    return make


def theirs(tokenizer, conversation, prompt, **options):
    """The text, or None where the template refuses."""
    try:
        return tokenizer.apply_chat_template(
            conversation["messages"], tools=conversation.get("tools"), documents=conversation.get("documents"),
            add_generation_prompt=prompt, tokenize=False, **conversation.get("chat_template_kwargs", {}), **options)
    except (jinja2.exceptions.TemplateError, TypeError, KeyError):
        return None


def write(path, conversations):
    path.write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in conversations))
    return path


def ours(trireme, folder, file, *options):
    lines = trireme("tokenizer", "render", folder, file, *options).stdout.split("\n")
    assert lines.pop() == ""
    return [json.loads(line)["text"] for line in lines]


@pytest.mark.parametrize("name", TEMPLATES)
def test_renders_as_transformers_does(name, save, tmp_path, trireme):
    tokenizer, folder = save(TEMPLATES[name])
    rendered = 0
    for prompt in (False, True):
        expected = {key: theirs(tokenizer, one, prompt) for key, one in CONVERSATIONS.items()}
        fit = [key for key, text in expected.items() if text is not None]
        file = write(tmp_path / "chats.jsonl", [CONVERSATIONS[key] for key in fit])
        found = ours(trireme, folder, file, *(["--add-generation-prompt"] if prompt else []))
        assert dict(zip(fit, found, strict=True)) == {key: expected[key] for key in fit}
        rendered += len(fit)
    assert rendered > 10, "a template that refuses most of them tests little"


# What transformers cannot render is refused by us too, in one message that says what the template said.
@pytest.mark.parametrize("name", TEMPLATES)
def test_refuses_what_transformers_refuses(name, save):
    tokenizer, _ = save(TEMPLATES[name])
    worker = Worker("data/chat_template.py")
    for key, one in CONVERSATIONS.items():
        variables = {**TOKENS, **one.get("chat_template_kwargs", {}), "messages": one["messages"],
                     "tools": one.get("tools"), "documents": one.get("documents"), "add_generation_prompt": True}
        reply, _ = worker.ask({"template": TEMPLATES[name], "variables": json.dumps(variables)})
        assert ("error" in reply) == (theirs(tokenizer, one, True) is None), (key, reply)
        assert "error" not in reply or 0 < len(reply["error"]) < 350 and "\n" not in reply["error"]


def test_where_templates_lie(save, tmp_path, trireme):
    chats = write(tmp_path / "chats.jsonl", [CONVERSATIONS["turns"], CONVERSATIONS["tools"]])
    named = {"default": TEMPLATES["chatml"], "tool_use": TEMPLATES["qwen25"], "rag": TEMPLATES["command"]}
    for jinja in (True, False):
        for template in (TEMPLATES["chatml"], named, {"default": TEMPLATES["chatml"]}):
            tokenizer, folder = save(template, jinja=jinja)
            expected = [theirs(tokenizer, CONVERSATIONS[key], False) for key in ("turns", "tools")]
            assert ours(trireme, folder, chats) == expected
        tokenizer, folder = save(named, jinja=jinja)
        assert ours(trireme, folder, chats, "--template", "rag") == [
            theirs(tokenizer, CONVERSATIONS[key], False, chat_template="rag") for key in ("turns", "tools")]
        wrong = trireme("tokenizer", "render", folder, chats, "--template", "rug", code=2).stderr
        assert "no chat template 'rug'; there is default, rag, tool_use" in wrong
    _, folder = save({"rag": TEMPLATES["command"]}, jinja=False)
    assert "no chat template 'default'; there is rag" in trireme("tokenizer", "render", folder, chats, code=2).stderr


# Older directories say what their special tokens are in another file.
def test_special_tokens_of_every_style(save, tmp_path, trireme):
    template = "{% for name in ['bos', 'eos', 'unk', 'sep', 'pad', 'cls', 'mask'] %}{{ name }}{% endfor %}" + "".join(
        f"{{{{ {name}_token | default('-') }}}}" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask", "image"))
    template += "{{ additional_special_tokens | default('-') }}"
    chats = write(tmp_path / "chats.jsonl", [CONVERSATIONS["user"]])
    tokenizer, folder = save(template, unk_token="<unk>", mask_token="<m>", extra_special_tokens={"image_token": "<i>"})
    assert "<i>" in theirs(tokenizer, CONVERSATIONS["user"], False)
    assert ours(trireme, folder, chats) == [theirs(tokenizer, CONVERSATIONS["user"], False)]
    config = json.loads((folder / "tokenizer_config.json").read_text())
    del config["added_tokens_decoder"]
    config["bos_token"] = {"__type": "AddedToken", "content": "<old>", "lstrip": False, "normalized": False,
                           "rstrip": False, "single_word": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "special_tokens_map.json").write_text(json.dumps(
        {"eos_token": {"content": "<other>", "lstrip": False, "normalized": False, "rstrip": False,
                       "single_word": False}, "additional_special_tokens": ["<b>", "<c>"]}))
    expected = theirs(AutoTokenizer.from_pretrained(folder), CONVERSATIONS["user"], False)
    assert "<old>" in expected and "<other>" in expected and "<c>" in expected
    assert ours(trireme, folder, chats) == [expected]


def test_a_run_and_an_export_keep_the_template(save, tmp_path, trireme):
    _, chat = save(TEMPLATES["qwen3"])
    source = tiny_models.save(tmp_path / "hf", tiny_models.llama(), tokenizer=False)
    for file in chat.iterdir():
        (source / file.name).write_bytes(file.read_bytes())
    trireme("ckpt", "convert", source, "ours", "--to", "trireme")
    chats = write(tmp_path / "chats.jsonl", [CONVERSATIONS["turns"]])
    expected = [theirs(AutoTokenizer.from_pretrained(source), CONVERSATIONS["turns"], False)]
    assert ours(trireme, source, chats) == ours(trireme, tmp_path / "ours", chats) == expected
    done = subprocess.run([BINARY, "tokenizer", "render", source], stdin=chats.open("rb"), capture_output=True, check=True)
    assert json.loads(done.stdout)["text"] == expected[0]


def test_wrong_input_has_one_message(save, tmp_path, trireme):
    _, folder = save(TEMPLATES["llama2"])
    _, none = save(None)
    good, bad = {"messages": [USER]}, tmp_path / "bad.jsonl"
    cases = [
        ({"messages": [USER, USER]}, "it refuses the conversation: Roles must alternate"),
        ({"messages": []}, "at least one message"),
        ({"messages": "hello"}, "at least one message"),
        ({"messages": ["hello"]}, '"messages" must hold objects with a "role", got "hello"'),
        ({"messages": [{"content": "a"}]}, '"messages" must hold objects with a "role"'),
        ({"messages": [{"role": "user"}]}, "line 1"),
        ({"messages": [USER], "tools": {}}, '"tools" must be a list, got {}'),
        ({"messages": [USER], "tools": [3]}, '"tools" must hold objects, got 3'),
        ({"messages": [USER], "documents": "x"}, '"documents" must be a list'),
        ({"messages": [USER], "chat_template_kwargs": [1]}, '"chat_template_kwargs" must be an object'),
        ({"prompt": "x"}, 'expected an object with "messages"'),
        ([USER], 'expected an object with "messages"'),
    ]
    for conversation, says in cases:
        done = trireme("tokenizer", "render", folder, write(bad, [good, conversation]), code=2)
        assert "bad.jsonl:2" in done.stderr and says in done.stderr, done.stderr
        assert done.stdout == "" and len(done.stderr.splitlines()) <= 3
    write(bad, [good])
    assert "has no chat template" in trireme("tokenizer", "render", none, bad, code=2).stderr
    assert "nowhere" in trireme("tokenizer", "render", "nowhere", bad, code=2).stderr
    for config, says in (("{", "no JSON"), ("[]", "no JSON object"), ('{"chat_template": 3}', "must be a text or a list"),
                         ('{"chat_template": [{"name": "x"}]}', '"name" and a "template"'),
                         ('{"chat_template": "x", "eos_token": 3}', '"eos_token" is no token: 3')):
        (none / "tokenizer_config.json").write_text(config)
        done = trireme("tokenizer", "render", none, bad, code=2)
        assert "tokenizer_config.json" in done.stderr and says in done.stderr, done.stderr


# Templates are programs of others: they reach nothing, and end.
def test_a_hostile_template_reaches_nothing():
    worker = Worker("data/chat_template.py")
    for template, says in {
        "{{ messages.__class__.__mro__[1].__subclasses__() }}": "unsafe",
        "{{ ''.__class__.__base__ }}": "unsafe",
        "{{ cycler.__init__.__globals__.os.system('true') }}": "unsafe",
        "{{ messages.append(1) }}": "unsafe",
        "{{ messages.clear() }}": "unsafe",
        "{% include '/etc/passwd' %}": "no loader",
        "{% import 'os' as os %}": "no loader",
        "{{ range(10000000) | list }}": "Range too big",
        "{{ 'x' * 3000000000 }}": "more memory than it may",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}": "nested too deeply",
        "a\n{{ messages.nothing.more }}": "line 2: 'list object' has no attribute 'nothing'",
        "a\n\n{% if %}": "line 3: Expected an expression",
        "{% generation %}": "line 1",
        "{{ 1 / 0 }}": "line 1: division by zero",
        "{{ x | nothing }}": "No filter named 'nothing'",
        "{{ '\ud800' }}": None,
        "{{ '\\ud800' }}": None,
    }.items():
        reply, _ = worker.ask({"template": template, "variables": json.dumps({"messages": [USER]})})
        assert says in reply.get("error", "") if says else reply["text"] == "\ufffd", (template, reply)


@pytest.mark.parametrize("seed, count", [(1, 150), pytest.param(2, 20_000, marks=pytest.mark.slow)])
def test_damaged_templates_are_refused_or_rendered(seed, count):
    """As jinja2 itself has it: what it compiles and renders we render alike."""
    generator, worker, refused = random.Random(seed), Worker("data/chat_template.py"), 0
    names = sorted(TEMPLATES)
    for i in range(count):
        text = TEMPLATES[generator.choice(names)]
        for _ in range(generator.randrange(1, 4)):
            at = generator.randrange(len(text))
            piece = generator.choice(["{%", "%}", "{{", "}}", "|", "(", "'", "not ", " in ", "[0]", "messages", "-", ""])
            text = text[:at] + piece + text[at + generator.randrange(8):]
        variables = {**TOKENS, **generator.choice(list(CONVERSATIONS.values())), "add_generation_prompt": True}
        reply, _ = worker.ask({"template": text, "variables": json.dumps(variables)})
        refused += "error" in reply
        assert "error" not in reply or "\n" not in reply["error"] and len(reply["error"]) < 400, f"seed {seed}, case {i}"
    assert count / 10 < refused < count, "the damage was not seen"
