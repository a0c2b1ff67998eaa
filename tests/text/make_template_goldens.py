#!/usr/bin/env python3
"""Writes tests/text/data/template_goldens.json: templates of our own and what jinja2 makes of them.

Usage: make_template_goldens.py OUT.json [--random SEED COUNT]     (needs jinja2 3.1.6)

The environment is the one Hugging Face's transformers renders chat templates in. Without --random the file holds the
hand-written templates below and a fixed sample of random ones; with it only random ones, to compare far more of them
than a repository should hold. Format: see template_cases.h.
"""
import copy
import datetime
import json
import random
import sys
import warnings

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

CLOCK = datetime.datetime(2026, 3, 7, 8, 9, 5, 123456)


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


class Environment(ImmutableSandboxedEnvironment):
    """Notes when jinja2 folds the slice of a constant that has none, like 1[:2]: it makes that undefined when it compiles,
    but an error when it runs, depending on what is around it. This is not imitated."""
    folded_slice = False

    def getitem(self, obj, argument):
        if isinstance(argument, slice):
            try:
                return obj[argument]
            except TypeError:
                self.folded_slice = True
        return super().getitem(obj, argument)


def environment():
    env = Environment(trim_blocks=True, lstrip_blocks=True,
                      extensions=[Generation, "jinja2.ext.loopcontrols"])

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = CLOCK.strftime
    return env


ENV = environment()

CHAT = {
    "messages": [
        {"role": "system", "content": "You weave. "},
        {"role": "user", "content": "Hello there, 'how' are \"you\"?\nnew  line", "n": 3},
        {"role": "assistant", "content": "  Fine, thänks.\n",
         "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1.5, "y": [1, None, True]}}}]},
        {"role": "tool", "content": ""},
        {"role": "user", "content": [{"type": "text", "text": "zz"}]},
    ],
    "tools": [{"type": "function", "function": {"name": "warp", "description": "Winds a warp. ", "parameters": {
        "type": "object", "properties": {"ends": {"type": "integer"}, "yarn": {"type": "string", "enum": ["wool", "silk"]}},
        "required": ["ends"]}}}],
    "documents": [{"title": "looms", "text": "A loom\nhas a beam."}],
    "add_generation_prompt": True,
    "vars": {"bos_token": "<s>", "eos_token": "</s>", "i": 7, "f": 2.5, "s": "héllo Wörld foo", "e": "",
             "d": {"b": 1, "a": 2, "C": {"x": [1]}}, "l": [3, 1, 2, 3], "ls": ["b", "A", "a", "c"], "neg": -4, "t": True,
             "big": 9007199254740993, "nul": None},
}
PLAIN = {
    "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}],
    "tools": None, "documents": None, "add_generation_prompt": False, "vars": {"bos_token": "", "eos_token": "<|end|>"},
}
EMPTY = {"messages": [], "tools": None, "documents": None, "add_generation_prompt": True, "vars": {}}
CONTEXTS = [CHAT, PLAIN, EMPTY]

WRITTEN = r"""
=== chat: turns
{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>
{{ m.content | string | trim }}<|end|>
{% endfor %}
{% if add_generation_prompt %}<|assistant|>
{% endif %}
=== chat: system taken out, roles checked
{%- if messages and messages[0]['role'] == 'system' -%}{%- set sys = messages[0]['content'] | trim -%}{%- set rest = messages[1:] -%}
{%- else -%}{%- set sys = none -%}{%- set rest = messages -%}{%- endif -%}
{%- for m in rest -%}
  {%- if (m.role == 'user') != (loop.index0 % 2 == 0) -%}{{ raise_exception('turn ' ~ loop.index ~ ' is ' ~ m.role) }}{%- endif -%}
  {{- ('<<' ~ sys ~ '>> ' if loop.first and sys) ~ m.content -}}
{%- endfor -%}
=== chat: tools
{% for t in tools or [] %}{{ t | tojson(indent=2) }}
{{ t.function.name }}({% for k, v in t.function.parameters.properties | dictsort %}{{ k }}: {{ v.type }}{{ ' = ' ~ v.enum | join('|') if v.enum is defined }}{{ '!' if k in t.function.parameters.required }}{{ ', ' if not loop.last }}{% endfor %})
{% else %}none
{% endfor %}{% for m in messages if m.tool_calls %}{% for c in m.tool_calls %}{{ c.function.name }}{{ c.function.arguments | tojson(separators=(',', ':')) }}{% endfor %}{% endfor %}
=== chat: last user turn
{% set ns = namespace(last=-1, n=0) %}{% for m in messages[::-1] %}{% if m.role == 'user' and m.content is string %}{% set ns.last = messages | length - 1 - loop.index0 %}{% break %}{% endif %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.last }} {{ ns.n }} {{ ns }}
=== chat: generation blocks
{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}é{{ m.content }}{{ eos_token }}{% endgeneration %}{% else %}[{{ m.role }}]{% endif %}
{% endfor %}
=== chat: reasoning cut off
{% set c = '<think>\na b\n</think>\n\nthe answer' %}{{ c.split('</think>')[-1].lstrip('\n') }}|{{ c.split('</think>')[0].split('<think>')[-1].strip() }}
=== loop: everything about it
{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }}{{ loop.previtem | default('-') }}{{ loop.nextitem | default('-') }}{{ loop.changed(x % 2) }}{{ loop.cycle('a', 'b', 'c') }} {{ loop }}
{% endfor %}
=== loop: filter, else, unpacking
{% for a, b in [(1, 2), (3, 4), (5, 6)] if a != 3 %}{{ a }}{{ b }}{{ loop.length }}{{ loop.previtem }}|{% endfor %}{% for x in l if x > 9 %}x{% else %}nothing{% endfor %}{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for (a, (b, c)) in [(1, (2, 3))] %}{{ a + b + c }}{% endfor %}
=== loop: filter sees what the body changed
{% set ns = namespace(seen=false) %}{% for x in l if not ns.seen %}{{ x }}{% if x == 1 %}{% set ns.seen = true %}{% endif %}{% endfor %}
=== loop: else after break and continue
{% for x in [1] %}{% break %}{% else %}else1{% endfor %}{% for x in [1] %}{% continue %}{% else %}else2{% endfor %}{% for x in [1] %}{% else %}else3{% endfor %}
=== loop: recursive
{% for x in [1, [2, [3]], 4] recursive %}{{ loop.depth }}:{% if x is iterable %}({{ loop(x) }}){% else %}{{ x }}{% endif %} {% endfor %}
=== loop: break inside a block set drops its text
{% for x in l %}{% set t %}a{{ x }}{% if x == 1 %}{% break %}{% endif %}{% endset %}{{ t }}{% endfor %}
=== scope: sets in loops stay there
{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}{% if true %}{% set x = 9 %}{% endif %}{{ x }}
=== scope: assigned later means not the context's
{% for m in [1] %}{{ bos_token is defined }}{% endfor %}{% set bos_token = 'z' %}{{ bos_token }}
=== scope: assigned in a branch means maybe the context's
{% if e is undefined or not e %}{% set bos_token = 'q' %}{% endif %}{{ bos_token }}{% for m in [1] %}{% if false %}{% set eos_token = 1 %}{% endif %}{{ eos_token }}{% endfor %}
=== scope: with
{% set a = 1 %}{% with a = 2, b = a %}{{ a }}{{ b }}{% set a = 3 %}{{ a }}{% endwith %}{{ a }}{{ b is defined }}
=== scope: macros see later names and current values
{% macro f() %}{{ g(x) }}{% endmacro %}{% macro g(y) %}<{{ y }}>{% endmacro %}{% set x = 1 %}{{ f() }}{% set x = 2 %}{{ f() }}
=== scope: block
{% set x = 1 %}{% block b %}{{ x }}{{ bos_token }}{% set x = 2 %}{{ x }}{% for q in [1] %}{{ x }}{{ eos_token }}{% endfor %}{% endblock %}{{ x }}
=== macro: arguments
{% macro f(a, b=2, c=a) %}[{{ a }}|{{ b }}|{{ c }}|{{ varargs }}|{{ kwargs }}]{% endmacro %}{{ f(1) }}{{ f(1, c=3) }}{{ f(1, 2, 3, 4, 5, z=6) }}{{ f() }}{{ f(*[1, 2], **{'c': 7}) }}{{ f.name }}{{ f.arguments }}{{ f.catch_kwargs }}{{ f }}
=== macro: too many
{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}
=== macro: caller
{% macro f(a) %}{{ caller(a, 2) }}-{{ caller is defined }}{% endmacro %}{% call(x, y=0) f('q') %}{{ x }}{{ y }}{% endcall %}{% macro g() %}{{ caller is defined }}{% endmacro %}{{ g() }}
=== macro: recursion
{% macro fac(n) %}{{ n if n < 2 else n * (fac(n - 1) | int) }}{% endmacro %}{{ fac(5) }} {{ fac(20) }}
=== block: filter and set
{% filter upper | replace('A', 'ä') %}banana {{ i }}{% endfilter %}{% set x | trim | upper %}  a {{ i }} {% endset %}[{{ x }}]
=== space: signs
  a  {%- if true +%}
  b
  {%+ endif -%}
  c
{{- 'd' -}}
  e {#- f -#} g
⇥{% set x = 1 %}
h  {% set x = 1 %}  i
{%- raw %}
  {{ j }} {%- k -%}
  {%- endraw +%}
  l
=== space: lines
{% if true %}

x

{% endif %}
  {# gone #}
y {# stays #}
    {% for a in [1] %}
    z
    {% endfor %}
=== operators: precedence
{{ -2 ** 2 }} {{ 2 ** 3 ** 2 }} {{ 1 ~ 2 + 3 if false else 'a' ~ 'b' + 'c' }} {{ not 1 == 2 }} {{ 2 + 3 * 4 ** 2 // 5 % 7 - -1 }} {{ 1 < 2 < 3 < 3 }} {{ 'a' in 'abc' and 'b' not in 'xyz' or false }} {{ 10 - 2 - 3 }} {{ 100 / 10 / 2 }} {{ -3 | abs }} {{ (1, 2) + (3,) }} {{ 1 if false }}|
=== operators: python's numbers
{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ -7.5 // 2 }} {{ -7.5 % 2 }} {{ 2 ** -1 }} {{ 2 ** 100 }} {{ 9223372036854775807 + 1 }} {{ -9223372036854775808 - 1 }} {{ 10 ** 30 // 7 }} {{ 10 ** 30 % 7 }} {{ 2 ** 70 / 2 ** 69 }} {{ 3 * 1.0 }} {{ 0.1 + 0.2 }} {{ 1e16 }} {{ 1e15 }} {{ 1e-5 }} {{ 0.0001 }} {{ true + true }} {{ 1 / 3 }}
=== operators: equality
{{ 1 == 1.0 }}{{ true == 1 }}{{ none == false }}{{ [1, 2] == [1, 2.0] }}{{ (1,) == [1] }}{{ {'a': 1} == {'a': 1.0} }}{{ 'a' == 'A' }}{{ undef == nope }}{{ undef == none }}{{ [1, 2] < [1, 3] }}{{ 'Z' < 'a' }}{{ 9007199254740993 == 9007199254740992.0 }}
=== text: methods
{{ ' a b '.strip() }}{{ 'xxaxx'.strip('x') }}{{ 'a,b,,c'.split(',') }}{{ ' a  b '.split() }}{{ 'a b c'.rsplit(' ', 1) }}{{ 'a\nb\r\nc'.splitlines() }}{{ 'abcabc'.find('c', 3) }}{{ 'abcabc'.rfind('a') }}{{ 'aXbX'.replace('X', '-', 1) }}{{ 'abc'.startswith(('x', 'a')) }}{{ 'häß'.upper() }}{{ 'ΑΣ'.lower() }}{{ "they're".title() }}{{ 'k=v'.partition('=') }}{{ '7'.zfill(3) }}{{ 'é'.encode() }}{{ 'aé'.center(6, '·') }}{{ ', '.join(ls or ['x']) }}
=== text: slices by character
{% set t = 'häß😀x' %}{{ t[3] }}{{ t[1:4] }}{{ t[::-1] }}{{ t[-2:] }}{{ t | length }}{{ t[99] }}|{{ t[5:1:-2] }}{{ t[:99] }}
=== text: escapes
{{ 'a\tb\\n\x41\u00e9\U0001F600\q\101' }}{{ "it's" }}{{ 'say "x"' }}{{ 'a' 'b' }}{{ '\é' }}
=== text: format
{{ '{:>6}|{:<4}|{:^5}|{:05.1f}|{:,}|{:x}|{!r}|{a[k]}'.format('r', 'l', 'c', 3.14159, 1234567, 255, 'q', a={'k': 1}) }} {{ '%s %d %5.2f %r %x %%' % ('a', 7.9, 2.5, 'q', 255) }} {{ '%(a)s' % {'a': 1} }} {{ '%03d' | format(7) }} {{ '{{}}'.format() }}
=== text: filters
{{ 'the QUICK brown-fox (jumps)' | title }}|{{ 'ab' | center(6) }}|{{ 'a\nb\n\nc' | indent(2) }}|{{ 'a\nb' | indent('> ', true, true) }}|{{ 'one two three four' | truncate(12) }}|{{ 'one two three four' | truncate(9, true, '!', 0) }}|{{ 'a b_c d-e' | wordcount }}|{{ '<b>&"\'' | e }}|{{ '<b>' | e | e }}|{{ '<b>' | safe ~ '<' }}|{{ '<p>a <!-- x --> b</p>' | striptags }}|{{ 'a b/ä&' | urlencode }}|{{ {'a': 1, 'b c': 2} | urlencode }}|{{ {'class': 'a', 'id': none} | xmlattr }}|{{ 123456 | filesizeformat }}
=== list: filters
{{ [3, 1, 2] | sort }}{{ ['b', 'A', 'a'] | sort }}{{ ['b', 'A', 'a'] | sort(true, true) }}{{ ['b', 'B', 'a'] | unique | list }}{{ [1, 2, 3, 4, 5] | batch(2, '-') | list }}{{ [1, 2, 3, 4, 5] | slice(3, '-') | list }}{{ [[1, 2], [3]] | map('length') | list }}{{ [1, 2] | sum(start=10) }}{{ ['b', 'A'] | min }}{{ [] | max }}{{ [] | first is defined }}{{ [1, 2] | last }}{{ [1, 2] | reverse | list }}{{ 'abc' | reverse }}{{ l | default([]) | select('odd') | list }}{{ [0, 1, '', 'a'] | reject | list }}
=== list: attributes
{{ messages | map(attribute='role') | join(', ') }}|{{ messages | selectattr('role', 'eq', 'user') | list | length }}|{{ messages | rejectattr('n', 'defined') | map(attribute='role') | list }}|{{ messages | map(attribute='n', default='?') | list }}|{% for g in messages | groupby('role') %}{{ g.grouper }}{{ g.list | length }}{{ g[0] }};{% endfor %}{{ [{'a': {'b': [5]}}] | map(attribute='a.b.0') | list }}{{ messages | sort(attribute='role') | map(attribute='role') | list }}
=== list: generators are walked once
{% set g = [1, 2, 3] | map('string') %}{{ g | list }}{{ g | list }}{{ (g | list) is sequence }}{{ g is sequence }}{{ g is iterable }}{{ g[0] is defined }}
=== list: a fault that nobody meets
{{ [{'a': 1}, {'b': 1}] | map(attribute='a.x.y') | first is defined }}{{ ([1, 'x'] | map('abs')) | first }}
=== dict: access
{% set q = {'b': 1, 'items': 2, 3: 'c', true: 'd', none: 'e', 2.5: 'f', (1, 2): 'g'} %}{{ q.b }}{{ q['items'] }}{{ q.items() | list }}{{ q[3] }}{{ q[1] }}{{ q[(1, 2)] }}{{ q.nope is defined }}{{ q['nope'] is defined }}{{ q.get('x', 0) }}{{ q | length }}{{ q.keys() }}{{ q.values() | list }}{{ 'b' in q }}{{ dict(q, z=1).z }}{{ q[[1]] is defined }}{% for k in q %}{{ k }} {% endfor %}
=== json
{{ {'b': [1, 2.0, none, true, "q\"\\\n\t\x01é\u2028"], 'a': {}, 'c': [], 1: (2,), none: 1e300} | tojson }} {{ {'b': 1, 'a': [1, {'x': 2}]} | tojson(indent=1, sort_keys=true) }} {{ 'é😀' | tojson(ensure_ascii=true) }} {{ [1, [2]] | tojson(indent='>') }}
=== repr
{{ ['a', "it's", 'q"q', 'b"\'', 'é\n\x00\x7f\u200b', 1.0, none, true, (1,), (), {}, range(3), undef] }}{{ {'a': {'b': []}} }}
=== tests
{% for v in [1, 0, -3, 2.5, 'a', 'A', '', none, true, false, [], [1], {}, (1,), undef, range(2)] %}{{ v is defined }}{{ v is none }}{{ v is string }}{{ v is mapping }}{{ v is iterable }}{{ v is sequence }}{{ v is number }}{{ v is integer }}{{ v is float }}{{ v is boolean }}{{ v is true }}{{ v is callable }}{{ v is upper }}{{ v is lower }}{{ v is sameas true }}{{ v is in [1, 'a'] }}
{% endfor %}{{ 4 is even }}{{ 9 is divisibleby 3 }}{{ 'upper' is filter }}{{ 'zork' is test }}{{ 1 is not none }}{{ 3 is gt 2 }}{{ 3 is ne 3 }}
=== globals
{{ range(10)[2:8:3] | list }}{{ range(3, 0, -1) | list }}{{ range(2, 9, 3) }}{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{% set j = joiner('|') %}{{ j() }}x{{ j() }}y{{ j() }}{{ strftime_now('%d %B %Y %H:%M:%S.%f %j %-d %A %%') }}{{ dict(a=1, b=2) }}{{ namespace(a=1).a }}
=== numbers: filters
{{ '42' | int }}{{ '4x' | int(7) }}{{ '0x1A' | int(base=16) }}{{ -3.99 | int }}{{ '3.7' | int }}{{ 'x' | float(1.5) }} {{ 2.5 | round }} {{ 2.675 | round(2) }} {{ 2.1 | round(0, 'ceil') }} {{ 1234.5678 | round(-2) }} {{ 25 | round(-1) }} {{ '1_000' | int }} {{ 'inf' | float }} {{ none | int }}
=== undefined
{{ undef }}|{{ undef | default('d') }}|{{ undef is undefined }}|{% for x in undef %}x{% endfor %}|{{ undef | length }}|{{ undef | list }}|{{ undef ~ 'a' }}|{{ 'a' in undef }}|{{ undef | join }}|{{ (undef or 1) }}|{{ [undef] }}
=== error: attribute of undefined
a
{{ undef.x }}
=== error: item of a missing key
{{ d.nope.x }}{{ messages[0].nope.x }}
=== error: call of undefined
{{ nope() }}
=== error: add
{{ 'a' + 1 }}
=== error: modify
{% set x = [] %}{{ x.append is defined }}{{ x.append(1) }}
=== error: dunder
{{ ''.__class__ }}{{ ''.__class__.__mro__ }}
=== error: unpack
{% for a, b in [(1, 2, 3)] %}{% endfor %}
=== error: range
{{ range(100001) }}
=== error: include
{% if false %}{% include 'x' %}{% endif %}fine{% include 'x' %}
=== error: raise
{% if messages %}{{ raise_exception('no "messages", é please') }}{% endif %}ok
=== error: filter that is not reached
{% if false %}{{ 1 | zork }}{% endif %}{{ 1 if true else (2 | zork) }}
=== error: filter that is reached
{% if true %}{{ 1 | zork }}{% endif %}
=== error: sort mixed
{{ [1, 'a'] | sort }}
=== error: json of a macro
{% macro f() %}{% endmacro %}{{ [f] | tojson }}
=== compile: unknown filter
a
{{ 1 | zork }}
=== compile: unknown test
{% for x in [1] %}{% if 1 is zork %}{% endif %}
{{ 2 is zork }}{% endfor %}
=== compile: break outside
a{% break %}
=== compile: break in a macro in a loop
{% for x in [1] %}{% macro f() %}
{% break %}{% endmacro %}{% endfor %}
=== compile: loop assigned
{% for x in [1] %}
{% set loop = 1 %}{% endfor %}
=== compile: unclosed
{% if 1 %}
{% for x in y %}
=== compile: end
a
b {{ 1 +
=== compile: constant assigned
{% set none = 1 %}
=== compile: brackets
{{ [1, (2] }}
=== compile: escape
{{ '\x4' }}
=== compile: do
{% do x.append(1) %}
=== compile: keyword order
{{ f(a=1, 2) }}
=== compile: comment
a {# b
=== compile: tag
{% %}
=== compile: parameter
{% macro f(a=1, b) %}{% endmacro %}
=== compile: call
{% call 1 %}{% endcall %}
"""

ATOMS = """1 0 -3 7 2.5 0.1 1e20 -0.0 100 true false none 'abc' '' 'a,b,,c' '·x·y·' 'ÄÖß' 'aBc·dEf' "it's" '<b>&' '%s-%d'
'{}·{0}' '12' '-4.7' '\\n\\t' [] [1,2,3] ['b','a','C'] [1,'a',none] [[1,2],[3]] {} {'a':1,'b':[2]} {'x':{'y':'z'}} (1,2) ()
('a',) undef i f s e d l ls neg t big nul messages messages[0] messages[1].content range(4) range(5,0,-2) dict(a=1)
namespace(q=1) bos_token 9223372036854775807 'é😀x' d.keys() d.items() 'a'*3 2**70 l|map('string')"""
FILTERS = """abs capitalize center(9) count d('x') default('q',true) dictsort dictsort(true,'value') e filesizeformat first float
format(1,2) groupby('role') groupby(0) indent(2,true) int int(base=16) items|list join join(',·') join('-',attribute='role')
last length list lower map('upper')|list map(attribute='role')|list map(attribute='a.b',default=3)|list map('int')|list max min
reject('none')|list reject|list rejectattr('tool_calls')|list replace('a','b') replace('','-') replace('b','',1) reverse|list
round round(1) round(-1) round(1,'floor') select('string')|list select('gt',1)|list selectattr('role','equalto','user')|list
slice(2)|list batch(2,'f')|list sort sort(true) sort(case_sensitive=true) sort(attribute='n,role') string striptags sum
sum(start=10) title tojson tojson(indent=2) tojson(sort_keys=true) trim trim('ab·') truncate(5) truncate(5,true,'!')
unique|list upper urlencode wordcount attr('x') attr('role') nofilter"""
TESTS = """boolean callable defined divisibleby(2) eq·1 even false float ge·2 in·[1,2,'a'] integer iterable le·3 lower mapping
ne·1 none number odd sameas·none sequence string true undefined upper"""
METHODS = """.upper() .lower() .strip() .strip('a·') .rstrip('c') .split() .split(',') .split('·',1) .rsplit(none,1) .splitlines()
.startswith('a') .endswith(('c','d')) .title() .capitalize() .swapcase() .replace('a','b',1) .join(ls) .find('b') .rfind('l')
.index('a') .count('l') .count('') .isdigit() .isalpha() .isupper() .istitle() .format(1,2) .removeprefix('a') .center(9,'*')
.zfill(6) .partition(',') .encode() .get('a') .get('zz',3) .index(3) .append(1) .update({}) .role .a .x .0 .b.c .items()|list
.keys()|list .nope()"""
SUBSCRIPTS = "[0] [-1] [1] [9] ['a'] ['role'] [1:] [:2] [::-1] [-2:] [1:-1] [::2] [5:1:-1] [none] [true] [0:9:0]"
BINARY = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", ">", "<=", ">=", "and", "or", "in", "not in"]


def words(text):
    return [w.replace("·", " ") for w in text.split()]


ATOMS, FILTERS, TESTS, METHODS, SUBSCRIPTS = map(words, (ATOMS, FILTERS, TESTS, METHODS, SUBSCRIPTS))


class Maker:
    """Random templates, most of which render."""

    def __init__(self, seed):
        self.r = random.Random(seed)

    def expression(self, depth):
        r = self.r
        p = r.random()
        if depth <= 0 or p < 0.15:
            return r.choice(ATOMS)
        inner = "(%s)" % self.expression(depth - 1)
        if p < 0.35:
            return "(%s|%s)" % (inner, r.choice(FILTERS))
        if p < 0.5:
            return "%s %s (%s)" % (inner, r.choice(BINARY), self.expression(depth - 1))
        if p < 0.58:
            return "(%s is %s%s)" % (inner, r.choice(["", "not "]), r.choice(TESTS))
        if p < 0.74:
            return inner + r.choice(METHODS)
        if p < 0.86:
            return inner + r.choice(SUBSCRIPTS)
        if p < 0.9:
            return "(%s if %s else %s)" % (inner, self.expression(depth - 1), self.expression(depth - 1))
        return "[%s, %s]" % (inner, self.expression(depth - 1))

    def chain(self):
        """Operators without parentheses: precedence."""
        r = self.r
        text = r.choice(ATOMS)
        for _ in range(r.randint(1, 4)):
            text += " %s %s%s%s" % (r.choice(BINARY), r.choice(["", "", "not ", "-"]), r.choice(ATOMS),
                                    r.choice(["", "", "|string", "[0]", " is none"]))
        return text

    def tag(self, text):
        signs = ["", "", "-", "+"]
        return "{%%%s %s %s%%}" % (self.r.choice(signs), text, self.r.choice(signs))

    def space(self):
        return self.r.choice(["", "a", " b ", "\n", "\n\n", "  ", " \n ", "\t", "x\n", "é", "{# c #}\n", "{#- c -#}",
                              "{% raw %} {{ r }}\n{% endraw %}\n", "  {%- raw -%} q {%- endraw +%}  "])

    def value(self, loop):
        inside = ["loop.index", "loop.last", "loop.length", "loop.previtem", "loop.changed(x)", "loop.cycle('p','q')"]
        return self.r.choice(["x", "y", "i", "bos_token", "m", "'k'", "1", "x ~ y", "[x, y]", "x is defined", "ns.v", "l",
                              "x|default('U')", "f(x)", "g(1, b=y)", "caller()"] + (inside if loop else []))

    def condition(self, loop):
        return self.r.choice(["x", "not x", "x == 1", "y is defined", "i > 3", "ns.v", "m == 2"] + (["loop.first"] if loop else []))

    def body(self, depth, loop):
        return "".join(self.statement(depth, loop) if self.r.random() < 0.6 else self.space()
                       for _ in range(self.r.randint(1, 4)))

    def statement(self, depth, loop):
        r, tag = self.r, self.tag
        p = r.random()
        if depth <= 0 or p < 0.3:
            return "{{%s %s %s}}" % (r.choice(["", "-"]), self.value(loop), r.choice(["", "-"])) + self.space()
        d = depth - 1
        if p < 0.45:
            return tag("set %s = %s" % (r.choice(["x", "y", "m", "bos_token", "ns.v", "x, y"]), self.value(loop)))
        if p < 0.52:
            return tag("set x" + r.choice(["", " | upper"])) + self.body(d, loop) + tag("endset")
        if p < 0.68:
            text = tag("if " + self.condition(loop)) + self.body(d, loop)
            if r.random() < 0.4:
                text += tag("else") + self.body(d, loop)
            return text + tag("endif")
        if p < 0.84:
            text = "for m in " + r.choice(["l", "[1,2,3]", "range(3)", "ls", "[]", "'ab'", "messages|map(attribute='role')", "d"])
            text = tag(text + r.choice(["", "", " if m != 2", " if not ns.v"])) + self.body(d, True)
            if r.random() < 0.3:
                text += tag("if " + self.condition(True)) + tag(r.choice(["break", "continue"])) + tag("endif") + self.body(d, True)
            if r.random() < 0.3:
                text += tag("else") + self.body(d, loop)
            return text + tag("endfor")
        if p < 0.9:
            return (tag("macro %s(%s)" % (r.choice("fg"), r.choice(["a", "a, b=2", "a=x", "x"]))) + r.choice(["{{ a }}", "{{ varargs }}", "{{ kwargs }}"]) +
                    self.body(d, False) + tag("endmacro"))
        if p < 0.94:
            return tag("call f(x)") + self.body(d, False) + tag("endcall")
        if p < 0.97:
            return tag("with x=y") + self.body(d, loop) + tag("endwith")
        return tag("filter upper") + self.body(d, loop) + tag("endfilter")

    def template(self, k):
        if k % 3 == 0:
            return "{{ %s }}" % self.expression(self.r.randint(1, 3))
        if k % 3 == 1:
            return "{{ %s }}" % self.chain()
        return ("{% set ns = namespace(v=0) %}\n{% macro f(a) %}<{{ a }}{{ caller() if caller }}>{% endmacro %}"
                "{% macro g(a,b=1) %}({{ a }},{{ b }}{{ x }}){% endmacro %}") + self.body(4, False)


def spans(source, context):
    """Character spans of generation blocks, for templates that use them at top level only."""
    parts, marks = [], []
    env = environment()
    block = env.extensions[next(k for k in env.extensions if k.endswith("Generation"))]
    block._render = lambda caller: "\ue000" + caller() + "\ue001"
    text = env.from_string(source).render(**context)
    position, start = 0, None
    for c in text:
        if c == "\ue000":
            start = position
        elif c == "\ue001":
            marks.append([start, position])
        else:
            position += 1
            parts.append(c)
    return marks


def render(name, source, contexts):
    ENV.folded_slice = False
    try:
        template = ENV.from_string(source)
    except Exception as e:
        line = getattr(e, "lineno", None)
        if type(e) is SyntaxError:  # the line of the Python that jinja2 wrote
            line = 1 + source[:source.find(" break")].count("\n")
        return None if line is None else {"name": name, "template": source, "compile_error": [type(e).__name__, str(e), line]}
    if ENV.folded_slice:
        return None
    renders = []
    for c, context in contexts:
        variables = copy.deepcopy(context)
        variables.update(variables.pop("vars"))
        spoiled = copy.deepcopy(variables)
        try:
            r = ["ok", template.render(**spoiled)]
            r[1].encode()
        except UnicodeEncodeError:
            continue
        except Exception as e:
            r = ["error", type(e).__name__, str(e)]
        # An address, or the repr of a Markup string, which is no value of ours.
        if "0x" in r[1] or "Markup(" in r[1]:
            continue
        row = {"c": c, "r": r}
        if "generation" in source and r[0] == "ok":
            row["assistant_spans"] = spans(source, variables)
        renders.append(row)
    return {"name": name, "template": source, "renders": renders}


def main():
    warnings.filterwarnings("ignore")
    out = sys.argv[1]
    seed, count = (int(sys.argv[3]), int(sys.argv[4])) if "--random" in sys.argv else (7, 600)
    rows = []
    if "--random" not in sys.argv:
        for part in WRITTEN.strip("\n").split("=== ")[1:]:
            name, _, source = part.partition("\n")
            source = source.removesuffix("\n").replace("⇥", "\t")
            rows.append(render(name, source, list(enumerate(CONTEXTS))))
    maker = Maker(seed)
    for k in range(count):
        source = maker.template(k)
        # Dicts of constants with keys that cannot be hashed fail when jinja2 compiles them; sizes beyond 64 bits differ.
        row = render("random %d: %s" % (k, source[:60].split("\n")[0]), source, [(0, CHAT)])
        if row and not any(e in json.dumps(row) for e in ("unhashable", "index-sized")):
            rows.append(row)
    data = {"versions": {"jinja2": jinja2.__version__, "python": sys.version.split()[0]}, "contexts": CONTEXTS,
            "templates": [r for r in rows if r]}
    with open(out, "w", encoding="utf-8") as f:
        json.dump(data, f, ensure_ascii=False, indent=0, separators=(",", ":"))
        f.write("\n")


if __name__ == "__main__":
    main()
