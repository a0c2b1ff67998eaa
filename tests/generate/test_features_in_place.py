"""Folders without a config whose embeddings and features no graph joins (embed_tokens, vision_encoder, audio_encoder, decoder): features
take the places of placeholders' embeddings, ids of placeholders from config.json; also where an encoder takes the embeddings, and its
decoder's come from the same graph. NumPy says what each prompt gives."""
import json
import os

import drive
import numpy as np
import onnx
import testing
from onnx import TensorProto as T
from onnx import helper, numpy_helper

VOCAB, D, RAW, PATCHES, IMAGE, AUDIO = 31, 6, 4, 3, 29, 30
rng = np.random.default_rng(41)
normal = lambda *shape: rng.standard_normal(shape).astype(np.float32)
TABLE, SEE, HEAR, HEAD = normal(VOCAB, D), normal(RAW, D), normal(RAW, D), normal(D, VOCAB)
MIX, START = normal(D, D), 1
node, info = helper.make_node, helper.make_tensor_value_info
const = lambda name, value: numpy_helper.from_array(np.asarray(value), name)


def save(folder, name, nodes, inputs, outputs, constants):
    graph = helper.make_graph(nodes, name, inputs, outputs, constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), os.path.join(folder, name + ".onnx"))


def write(folder, tokens, half=False, encoder=False):
    """half: features are float16, embeddings float32. encoder: an encoder takes the prompt, a decoder goes on from START."""
    save(folder, "embed_tokens", [node("Gather", ["table", "input_ids"], ["inputs_embeds"])],
         [info("input_ids", T.INT64, ["batch", "seq"])], [info("inputs_embeds", T.FLOAT, ["batch", "seq", D])], [const("table", TABLE)])
    kind = T.FLOAT16 if half else T.FLOAT
    for name, given, made, shape, weight in (("vision_encoder", "pixel_values", "image_features", ["images", PATCHES], SEE),
                                             ("audio_encoder", "input_features", "audio_features", ["batch", "frames"], HEAR)):
        save(folder, name, [node("MatMul", [given, "w"], ["made"]), node("Cast", ["made"], [made], to=kind)],
             [info(given, T.FLOAT, shape + [RAW])], [info(made, kind, shape + [D])], [const("w", weight)])
    more = []
    if encoder:
        save(folder, "encoder_model", [node("MatMul", ["inputs_embeds", "w"], ["last_hidden_state"])],
             [info("inputs_embeds", T.FLOAT, ["batch", "enc", D]), info("attention_mask", T.INT64, ["batch", "enc"])],
             [info("last_hidden_state", T.FLOAT, ["batch", "enc", D])], [const("w", MIX)])
        more = [info("encoder_hidden_states", T.FLOAT, ["batch", "enc", D]), info("encoder_attention_mask", T.INT64, ["batch", "enc"])]
    save(folder, "decoder_model_merged",
         [node("Unsqueeze", ["inputs_embeds", "axis1"], ["keys"]),
          node("Concat", ["past_key_values.0.key", "keys"], ["present.0.key"], axis=2), node("CumSum", ["present.0.key", "two"], ["sums"]),
          node("Shape", ["inputs_embeds"], ["shape"]), node("Gather", ["shape", "axis1"], ["n"]), node("Neg", ["n"], ["from"]),
          node("Slice", ["sums", "from", "far", "axis2"], ["new"]), node("Squeeze", ["new", "axis1"], ["sum" if encoder else "mine"]),
          *[node("Cast", ["encoder_attention_mask"], ["shown"], to=T.FLOAT), node("Unsqueeze", ["shown", "axis2"], ["column"]),
            node("Mul", ["encoder_hidden_states", "column"], ["seen"]), node("ReduceSum", ["seen", "axis1"], ["whole"], keepdims=1),
            node("Add", ["sum", "whole"], ["mine"])][:5 * encoder],
          node("Tanh", ["mine"], ["bounded"]), node("MatMul", ["bounded", "head"], ["logits"])],
         [info("inputs_embeds", T.FLOAT, ["batch", "seq", D]), info("past_key_values.0.key", T.FLOAT, ["batch", 1, "past", D])] + more,
         [info("logits", T.FLOAT, ["batch", "seq", VOCAB]), info("present.0.key", T.FLOAT, ["batch", 1, "total", D])],
         [const("axis1", np.int64([1])), const("axis2", np.int64([2])), const("two", np.int64(2)), const("far", np.int64([2**40])),
          const("head", HEAD)])
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump({"eos_token_id": None, "text_config": {"eos_token_id": []}, **tokens}, f)


def embeddings(ids, images=(), sounds=(), half=False):
    rows = TABLE[ids].astype(np.float64)
    for token, media, weight in ((IMAGE, images, SEE), (AUDIO, sounds, HEAR)):
        made = [row for one in media for row in one @ weight]
        at = [i for i, t in enumerate(ids) if t == token]
        assert len(at) == len(made)
        for i, row in zip(at, made):
            rows[i] = np.float16(row) if half else row
    return rows


def greedy(rows, n):
    rows, out = list(rows), []
    for _ in range(n):
        out.append(int(np.argmax(np.tanh(np.sum(rows, 0)) @ HEAD)))
        rows.append(TABLE[out[-1]])
    return out


def picture():
    return [IMAGE] * PATCHES


def test_prompts():
    for half in (False, True):
        with testing.temp_dir() as temp:
            write(temp, {"image_token_index": IMAGE, "audio_token_id": AUDIO}, half)
            files = {name: os.path.join(temp, name + ".npy") for name in ("pixel_values", "input_features")}
            with drive.Drive(temp, "--quiet") as d:
                for n_images, n_frames in ((0, 0), (1, 0), (2, 0), (0, 4), (2, 5)):
                    images, sound = normal(n_images, PATCHES, RAW), normal(1, n_frames, RAW)
                    prompt = [3, 5] + picture() * bool(n_images) + [7] + [AUDIO] * n_frames + picture() * max(0, n_images - 1) + [2]
                    tensors = {}
                    if n_images:
                        np.save(files["pixel_values"], images)
                        tensors["pixel_values"] = files["pixel_values"]
                    if n_frames:
                        np.save(files["input_features"], sound)
                        tensors["input_features"] = files["input_features"]
                    got = d.ask(op="generate", prompts=[prompt], tensors=tensors, options={"max_new_tokens": 6})
                    testing.equal(got["tokens"], [greedy(embeddings(prompt, images, sound, half), 6)], (half, n_images, n_frames))
                    testing.equal((got["runs"]["vision_encoder"], got["runs"]["audio_encoder"]), (int(n_images > 0), int(n_frames > 0)))


def test_rows_and_appends():
    with testing.temp_dir() as temp:
        write(temp, {"image_token_id": IMAGE})
        pixels = os.path.join(temp, "pixels.npy")
        with drive.Drive(temp, "--quiet") as d:
            images = normal(3, PATCHES, RAW)
            np.save(pixels, images)
            prompts = [[4] + picture() + [5], [6, 7, 8], picture() + [9] + picture()]
            got = d.ask(op="generate", prompts=prompts, tensors={"pixel_values": pixels}, options={"max_new_tokens": 5})
            seen = [images[:1], [], images[1:]]
            testing.equal(got["tokens"], [greedy(embeddings(p, i), 5) for p, i in zip(prompts, seen)])
            np.save(pixels, images[:1])
            other = os.path.join(temp, "other.npy")
            np.save(other, images[1:2])
            first, second = [4] + picture(), [5] + picture() + [6]
            got = d.ask(op="timeline", tensors={"pixel_values": pixels},
                        steps=[{"append": first}, {"generate": 2}, {"append": second, "tensors": {"pixel_values": other}}, {"generate": 3}])
            made = greedy(embeddings(first, images[:1]), 2)
            testing.equal(got["steps"][1]["tokens"], made)
            testing.equal(got["steps"][3]["tokens"], greedy(embeddings(first + made + second, images[:2]), 3), "an image in a later append")


def test_encoder():
    with testing.temp_dir() as temp:
        write(temp, {"image_token_id": IMAGE, "decoder_start_token_id": START}, encoder=True)
        pixels = os.path.join(temp, "pixels.npy")

        def wanted(prompt, images):
            whole = (embeddings(prompt, images) @ MIX).sum(0)
            return greedy([TABLE[START] + whole], 6)

        with drive.Drive(temp, "--quiet") as d:
            for prompts, seen in (([[3, 4, 5]], [0]), ([[3, 4, 5], [6], [7, 8, 9, 10]], [0, 0, 0]), ([picture() + [3, 4]], [1]),
                                  ([[5] + picture(), [6, 7, 8], picture() + [2] + picture()], [1, 0, 2])):
                images = normal(sum(seen), PATCHES, RAW)
                np.save(pixels, images)
                got = d.ask(op="generate", prompts=prompts, tensors={"pixel_values": pixels} if sum(seen) else {},
                            options={"max_new_tokens": 6})
                at = np.cumsum([0] + seen)
                testing.equal(got["tokens"], [wanted(p, images[at[i]:at[i + 1]]) for i, p in enumerate(prompts)], prompts)
            refused(d, ["4 image placeholders", "3 features"], prompts=[picture() + [IMAGE]],
                    tensors={"pixel_values": save_one(pixels)})


def save_one(path):
    np.save(path, normal(1, PATCHES, RAW))
    return path


def refused(d, wanted, **request):
    try:
        d.ask(op="generate", options={"max_new_tokens": 2}, **request)
    except drive.Refused as e:
        assert all(part in str(e) for part in wanted), str(e)
    else:
        raise AssertionError(f"expected {wanted}")


def test_refusals():
    with testing.temp_dir() as temp:
        write(temp, {"image_token_id": IMAGE})
        pixels = os.path.join(temp, "pixels.npy")
        np.save(pixels, normal(1, PATCHES, RAW))
        with drive.Drive(temp, "--quiet") as d:
            refused(d, ["4 image placeholders", "3 features"], prompts=[picture() + [IMAGE]], tensors={"pixel_values": pixels})
            refused(d, ["3 image placeholders", "no image came"], prompts=[picture()])
            testing.equal(d.ask(op="generate", prompts=[[1, 2]], options={"max_new_tokens": 3})["tokens"], [greedy(TABLE[[1, 2]], 3)])
    with testing.temp_dir() as temp:
        write(temp, {})
        np.save(pixels := os.path.join(temp, "pixels.npy"), normal(1, PATCHES, RAW))
        with drive.Drive(temp, "--quiet") as d:
            refused(d, ["image_features", "tokens.image_token"], prompts=[picture()], tensors={"pixel_values": pixels})


testing.main()
