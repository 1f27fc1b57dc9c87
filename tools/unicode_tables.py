"""Writes src/data/tokenizer/unicode_tables.cc: the Unicode facts that tokenizers need, in compact form.

    python3 -m venv /tmp/unicode && /tmp/unicode/bin/pip install unicodedataplus==16.0.0.post1
    /tmp/unicode/bin/python tools/unicode_tables.py

Why several versions of Unicode: ids must equal those of Hugging Face's `tokenizers` 0.22, whose regular expressions know
Unicode 16, whose normal forms know Unicode 9, whose punctuation is that of Unicode 8, and whose lower case is that of Rust, Unicode 16. Our regular expressions
run on Debian's PCRE2, which knows Unicode 14: characters whose category has changed since are listed, so that they can be
replaced by older ones of the same kind before matching. Needs a Python with Unicode 14 (3.11) beside unicodedataplus.
"""

import pathlib
import unicodedata

import unicodedataplus as ucd

CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co Cn".split()
NORMAL_FORMS = (9, 0)
PUNCTUATION = (8, 0)
CODES = range(0x110000)
OUT = pathlib.Path(__file__).resolve().parent.parent / "src/data/tokenizer/unicode_tables.cc"


def known_to(version, code):
    age = ucd.age(chr(code))
    return age[:1].isdigit() and tuple(map(int, age.split("."))) <= version


def categories():
    """category | first code << 5, one number a run."""
    runs, last = [], None
    for code in CODES:
        now = CATEGORIES.index(ucd.category(chr(code)))
        if now != last:
            runs.append(code << 5 | now)
        last = now
    return runs


def ranges(codes):
    """first, last of each run of neighbours."""
    found = []
    for code in sorted(codes):
        if found and found[-1] == code - 1:
            found[-1] = code
        else:
            found += [code, code]
    return found


def decompositions():
    """A header (code | compatibility << 21 | composes << 22 | length << 24), then the codes; one step, not recursive."""
    numbers = []
    for code in CODES:
        text = ucd.decomposition(chr(code))
        if not text or not known_to(NORMAL_FORMS, code):
            continue
        parts = text.split()
        compatibility = parts[0].startswith("<")
        to = [int(p, 16) for p in parts[compatibility:]]
        composes = len(to) == 2 and not compatibility and unicodedata.normalize("NFC", chr(code)) == chr(code)
        numbers += [code | compatibility << 21 | composes << 22 | len(to) << 24, *to]
    return numbers


def combining_classes():
    """code << 8 | class."""
    return [
        code << 8 | ucd.combining(chr(code))
        for code in CODES
        if ucd.combining(chr(code)) and known_to(NORMAL_FORMS, code)
    ]


def lower(code):
    if ucd.category(chr(code)) == "Lu" and unicodedata.category(chr(code)) == "Cn":  # Newer than this Python: by name.
        return ucd.lookup(ucd.name(chr(code)).replace("CAPITAL LETTER", "SMALL LETTER"))
    return chr(code).lower()


def lower_cases():
    """first, last, step, distance: each code first, first + step, … last becomes code + distance. U+0130 is left out."""
    runs = []
    for code in CODES:
        to = lower(code)
        if to == chr(code) or len(to) > 1:
            assert len(to) == 1 or code == 0x130
            continue
        distance = ord(to) - code
        for run in runs[-1:] + runs[-2:-1]:
            step = code - run[1]
            if run[3] == distance and step <= 2 and run[2] in (0, step):
                run[1], run[2] = code, step
                break
        else:
            runs.append([code, code, 0, distance])
    return [n for first, last, step, distance in runs for n in (first, last, max(step, 1), distance)]


def array(kind, name, comment, numbers):
    lines, line = [], ""
    for n in numbers:
        text = str(n) + ","
        if len(line) + len(text) > 99:
            lines.append(line)
            line = ""
        line += text
    return (
        f"// {comment}\nconst {kind} {name}[] = {{\n"
        + "\n".join([*lines, line])
        + "\n};\n"
        + f"const size_t {name}_count = {len(numbers)};\n"
    )


def main():
    assert unicodedata.unidata_version == "14.0.0" and ucd.unidata_version == "16.0.0"
    text = "// Made by tools/unicode_tables.py from Unicode 16.0.0 (normal forms: the part that is in 9.0.0).\n"
    text += '#include "data/tokenizer/unicode_tables.h"\n\n// clang-format off\nnamespace trireme::unicode {\n\n'
    text += array("uint32_t", "category_runs", "first code << 5 | category.", categories()) + "\n"
    changed = [c for c in CODES if ucd.category(chr(c)) != unicodedata.category(chr(c))]
    text += (
        array("uint32_t", "changed_since_14", "Category not that of Unicode 14: first, last.", ranges(changed)) + "\n"
    )
    text += (
        array(
            "uint32_t",
            "changed_han",
            "Those of them that are Han: first, last.",
            ranges(c for c in changed if ucd.script(chr(c)) == "Han"),
        )
        + "\n"
    )
    text += (
        array(
            "uint32_t",
            "marks_9",
            "Combining marks (M) of Unicode 9: first, last.",
            ranges(
                c
                for c in CODES
                if c in (0x1CF2, 0x1CF3)  # marks then, letters now
                or ucd.category(chr(c))[0] == "M"
                and known_to(NORMAL_FORMS, c)
                and c != 0x111C9
            ),
        )
        + "\n"
    )
    text += (
        array(
            "uint32_t",
            "punctuation_8",
            "Punctuation (P) of Unicode 8: first, last.",
            ranges(
                c
                for c in CODES
                if c in (0x166D, 0x111C9)  # punctuation then, not now
                or ucd.category(chr(c))[0] == "P"
                and known_to(PUNCTUATION, c)
            ),
        )
        + "\n"
    )
    text += (
        array(
            "uint32_t",
            "decompositions",
            "code | compatibility << 21 | composes << 22 | length << 24, then the codes.",
            decompositions(),
        )
        + "\n"
    )
    text += array("uint32_t", "combining_classes", "code << 8 | canonical combining class.", combining_classes()) + "\n"
    text += array("int32_t", "lower_cases", "first, last, step, distance.", lower_cases()) + "\n"
    OUT.write_text(text + "}  // namespace trireme::unicode\n")


main()
