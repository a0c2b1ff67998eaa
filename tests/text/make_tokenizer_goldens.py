#!/usr/bin/env python3
"""Writes tests/text/tokenizer_goldens.json: small tokenizers and what Hugging Face tokenizers makes of texts and ids.

usage: make_tokenizer_goldens.py > tokenizer_goldens.json        (PyPI tokenizers 0.23.3)

Every part that treadle knows occurs. The vocabularies are trained on the sentences below, so nothing is anyone's model.
Each vocabulary is written once; a tokenizer names it: "@NAME" stands for a member of "values".
A stream's chunks follow from the library's decode: the text of all ids so far without its tail of U+FFFD, less what was
emitted; the last chunk is the rest."""
import json
import random
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

LINES = ["The loom stood by the window, and the weaver's hands knew it's moods.", "she'll weave 12 yards, then 345 more!",
         "naïve café déjà vu", "Größe und Maß", "織り機は窓のそばに立つ。", "  two  spaces\tand\n\nlines\r\n", "🧵🪡 thread 👩‍🔬"] * 4
TEXTS = ["", " ", "   ", "a", "The loom", " leading and trailing ", "it's 2024, isn't IT?", "naïve CAFÉ déjà-vu 12345", "e\u0301 \u00c5 \ufb01 ǅ İ",
         "織り機は、窓。", "tabs\t\tand\n\nnew lines\r\n  end", "🧵👩\u200d🔬 ok 🇫🇮", "<s>hi</s> <mark> there<mark>", "x<mark>y <word>word</word> word",
         "unknown: Ж ∑ \u0000 \x7f", "a\u180eb\u2003c\u00a0d", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "²³ ½ ⅷ ٣ १२ 𝟘", "▁already▁marked", "don't DON'T 'ſ 'Ll",
         "\ufffd bad \ufffd\ufffd", "a-b_c.d,e;f(g)[h]{i}", "fuller weavers' loom-threads... 99 % of 1,000.5", "new in Unicode 15 and 16: \U0001fae8 \U00010d4a \U0001e4d0"]
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
MARK = "\u2581"


def trained(pre_tokenizer, alphabet, **options):
    """vocab and merges of a BPE trained on LINES."""
    tokenizer = Tokenizer(models.BPE(**{k: v for k, v in options.items() if v}))
    tokenizer.pre_tokenizer = pre_tokenizer
    trainer = trainers.BpeTrainer(vocab_size=400, show_progress=False, initial_alphabet=alphabet, special_tokens=["<unk>"],
                                  **{k: v for k, v in options.items() if k != "unk_token"})
    tokenizer.train_from_iterator(LINES, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [tuple(m) for m in model["merges"]]


BYTES = trained(pre_tokenizers.ByteLevel(add_prefix_space=False), pre_tokenizers.ByteLevel.alphabet())
PLAIN = trained(pre_tokenizers.Metaspace(), [])
SUFFIX = trained(pre_tokenizers.Whitespace(), [], end_of_word_suffix="</w>", unk_token="<unk>")
PREFIX = trained(pre_tokenizers.Whitespace(), [], continuing_subword_prefix="##", unk_token="<unk>")


def with_bytes(vocab, merges):
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    tokens += [t for t in sorted(vocab, key=vocab.get) if t not in tokens and t != "🧵"]
    ids = {t: i for i, t in enumerate(tokens)}
    return ids, [m for m in merges if m[0] in ids and m[1] in ids and m[0] + m[1] in ids]


def added(first_id, *tokens):
    flags = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    return [dict(id=first_id + i, content=c, **{**flags, **f}) for i, (c, f) in enumerate(tokens)]


def template(first, last):
    items = lambda seq, t: first and [{"SpecialToken": {"id": "<s>", "type_id": t}}, {"Sequence": {"id": seq, "type_id": t}}] or \
        [{"Sequence": {"id": seq, "type_id": t}}]
    single = items("A", 0) + ([{"SpecialToken": {"id": "</s>", "type_id": 0}}] if last else [])
    return {"type": "TemplateProcessing", "single": single, "pair": items("A", 0) + items("B", 1),
            "special_tokens": {t: {"id": t, "ids": [i], "tokens": [t]} for t, i in (("<s>", 1), ("</s>", 2))}}


def tokenizer(base, strings=False, tokens=None, normalizer=None, pre=None, post=None, decoder=None, **model):
    vocab, merges = base
    options = dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None, end_of_word_suffix=None, fuse_unk=False,
                   byte_fallback=False, ignore_merges=False)
    options.update(model)
    options["vocab"] = vocab
    options["merges"] = [" ".join(m) for m in merges] if strings else [list(m) for m in merges]
    if options["type"] is None:
        del options["type"]
    return dict(version="1.0", truncation=None, padding=None, added_tokens=tokens or [], normalizer=normalizer, pre_tokenizer=pre,
                post_processor=post, decoder=decoder, model=options)


def split(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": pattern if isinstance(pattern, dict) else {"Regex": pattern}, "behavior": behavior, "invert": invert}


def seq(name, *parts):
    return {"type": "Sequence", name: list(parts)}


def cases():
    n = len(BYTES[0])
    specials = added(n, ("<s>", {}), ("</s>", {"rstrip": True}), ("<mark>", {"lstrip": True, "special": False}),
                     ("word", {"single_word": True, "special": False, "normalized": True}))
    level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    llama = seq("decoders", {"type": "Replace", "pattern": {"String": MARK}, "content": " "}, {"type": "ByteFallback"},
                {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0})
    fallback = with_bytes(*PLAIN)
    meta = lambda scheme, cut: {"type": "Metaspace", "replacement": MARK, "prepend_scheme": scheme, "split": cut}
    yield "byte level", tokenizer(BYTES, tokens=specials, pre=level, post=level, decoder=level)
    yield "byte level, old form", tokenizer(BYTES, strings=True, pre={**level, "add_prefix_space": False}, decoder=level, type=None)
    yield "llama 3", tokenizer(BYTES, tokens=specials, pre=seq("pretokenizers", split(LLAMA3), BYTE_LEVEL), decoder=level, ignore_merges=True,
                               post=seq("processors", level, template(True, False)))
    yield "roberta", tokenizer(BYTES, pre=level, decoder=level,
                               post={"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0], "trim_offsets": True, "add_prefix_space": False})
    yield "bert post-processor", tokenizer(BYTES, pre=level, decoder=level, post={"type": "BertProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0]})
    for form in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt"):
        yield form, tokenizer(BYTES, tokens=specials, normalizer={"type": form}, pre=level, decoder=level)
    bert = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True}
    yield "bert normalizer", tokenizer(BYTES, normalizer=bert, pre=seq("pretokenizers", {"type": "BertPreTokenizer"}, BYTE_LEVEL), decoder=level)
    yield "normalizer sequence", tokenizer(
        BYTES, tokens=specials, pre={"type": "FixedLength", "length": 3},
        normalizer=seq("normalizers", {"type": "Strip", "strip_left": True, "strip_right": True}, {"type": "Prepend", "prepend": "_"},
                       {"type": "Replace", "pattern": {"Regex": "\\s+"}, "content": " "}, {"type": "ByteLevel"}), decoder=level)
    yield "llama 2", tokenizer(fallback, strings=True, tokens=added(0, ("<unk>", {}), ("<s>", {}), ("</s>", {})), decoder=llama, post=template(True, False),
                               normalizer=seq("normalizers", {"type": "Prepend", "prepend": MARK}, {"type": "Replace", "pattern": {"String": " "}, "content": MARK}),
                               unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    for scheme in ("first", "always", "never"):
        yield "metaspace " + scheme, tokenizer(fallback, tokens=added(0, ("<unk>", {}), ("<s>", {}), ("</s>", {})), pre=meta(scheme, scheme != "never"),
                                               post=template(True, True), decoder=seq("decoders", {"type": "ByteFallback"}, meta(scheme, True)),
                                               unk_token="<unk>", byte_fallback=True)
    yield "metaspace, old form", tokenizer(PLAIN, pre={"type": "Metaspace", "replacement": MARK, "add_prefix_space": True, "str_rep": MARK},
                                           decoder={"type": "Metaspace", "replacement": MARK, "add_prefix_space": True}, unk_token="<unk>")
    yield "gemma", tokenizer(fallback, pre=split({"String": " "}, "MergedWithPrevious"), normalizer={"type": "Replace", "pattern": {"String": " "}, "content": MARK},
                             decoder=seq("decoders", {"type": "Replace", "pattern": {"String": MARK}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}),
                             unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    yield "no decoder, no pre-tokenizer", tokenizer(PLAIN, unk_token="<unk>", fuse_unk=True)
    yield "suffix", tokenizer(SUFFIX, pre={"type": "Whitespace"}, decoder={"type": "BPEDecoder", "suffix": "</w>"}, end_of_word_suffix="</w>", unk_token="<unk>")
    yield "prefix", tokenizer(PREFIX, pre=seq("pretokenizers", {"type": "WhitespaceSplit"}, {"type": "Punctuation", "behavior": "Isolated"}),
                              decoder={"type": "WordPiece", "prefix": "##", "cleanup": True}, continuing_subword_prefix="##", unk_token="<unk>", fuse_unk=True)
    yield "ctc", tokenizer(PLAIN, pre={"type": "CharDelimiterSplit", "delimiter": "e"}, decoder={"type": "CTC", "pad_token": "e", "word_delimiter_token": MARK, "cleanup": True})
    for behavior in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        yield "split " + behavior, tokenizer(BYTES, pre=seq("pretokenizers", split("[aeiou ]|\\d", behavior), BYTE_LEVEL), decoder=level)
        yield "split inverted " + behavior, tokenizer(BYTES, pre=seq("pretokenizers", split("\\p{L}", behavior, True), BYTE_LEVEL), decoder=level)
        yield "punctuation " + behavior, tokenizer(BYTES, pre=seq("pretokenizers", {"type": "Punctuation", "behavior": behavior},
                                                                  {"type": "Digits", "individual_digits": behavior == "Removed"}, BYTE_LEVEL), decoder=level)
    for i, pattern in enumerate(REGEXES):
        yield f"regex {pattern}", tokenizer(BYTES, pre=seq("pretokenizers", split(pattern, "Isolated", i % 2 == 1), BYTE_LEVEL))
    yield "odd decoders", tokenizer(PLAIN, decoder=seq("decoders", {"type": "Fuse"}, {"type": "Replace", "pattern": {"Regex": "[a-z]+e"}, "content": "#"},
                                                       {"type": "Strip", "content": "#", "start": 2, "stop": 0}))


# What differs between Oniguruma's dialect and PCRE2's, and what must not.
REGEXES = ["[a-z&&[^aeiou]]+", "[^\\s&&[^b]]+", "[[:punct:]]+", "[[:^alpha:]]", "(?i)t|H", "a|(?i)t|h", "(?m:e.)", "[t[he]]+", "[^a[^the]]+", "\\h+", "\\H+",
           "\\w+", "[\\W]+", "\\bt", "(?<=e).", "(?<!e)s", "t{,1}h", "e{1,2}+d", "(?:a|n){2}", "\\p{Letter}+", "\\p{^Lu}", "[\\p{L}&&[^a]]+", "\\u0061+", "\\x{61}",
           "(.)\\1", "\\p{Alnum}+", "a++", "(?>a*)r", "[]a]", "[a-]", "e{2}?x", "\\R", "\\p{Han}+", " ?[^(\\s|[.,!?])]+", "^.", ".$", "", "x*", "\\G.", "[^\\n]+?s"]


def stream(oracle, ids, skip):
    emitted, chunks = "", []
    for i in range(len(ids) + 1):
        text = oracle.decode(ids[:i + 1], skip_special_tokens=skip)
        if i < len(ids):
            text = text.rstrip("\ufffd")
        if not text.startswith(emitted):
            return None
        chunks.append(text[len(emitted):])
        emitted = text
    return chunks


def main():
    rng, out = random.Random(5), []
    for name, config in cases():
        oracle = Tokenizer.from_str(json.dumps(config))
        row = dict(name=name, tokenizer=config, encode=[], decode=[])
        n = oracle.get_vocab_size()
        for text in TEXTS:
            encode = lambda add, plain: (setattr(oracle, "encode_special_tokens", plain), oracle.encode(text, add_special_tokens=add).ids)[1]
            ids, whole, plain = encode(False, False), encode(True, False), encode(False, True)
            row["encode"].append([text, ids, None if whole == ids else whole, None if plain == ids else plain])
        lists = [ids for _, ids, _, _ in row["encode"][4::6]] + [[rng.randrange(n + 2) for _ in range(rng.randint(1, 12))] for _ in range(6)]
        for i, ids in enumerate(lists):
            skip = i % 2 == 0
            row["decode"].append([ids, skip, oracle.decode(ids, skip_special_tokens=skip), stream(oracle, ids, skip)])
        out.append(row)
    bases = {}
    for row in out:
        model = row["tokenizer"]["model"]
        for key in ("vocab", "merges"):
            text = json.dumps(model[key], separators=(",", ":"))
            model[key] = "@" + bases.setdefault(text, f"{key}{len(bases)}")
    dump = lambda value: json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    print('{"values":{\n' + ",\n".join(f'"{name}":{text}' for text, name in bases.items()) + '},\n"rows":[\n' +
          ",\n".join(dump(row) for row in out) + "\n]}")


main()
