/* compile/functions.c - bodies of the treadle functions in operators of ai.onnx 21; compile.h says what they compute.
 *
 * Codes of `bits` bits are taken out of their bytes by shifting each byte by 0, bits, 2 * bits ... and masking. */
#include "compile/parts.h"

static const td_str none = {NULL, 0};

static td_str constant_int(td_graph *g, td_str name, int64_t value) {
    td_gnode *n = td_graph_add(g, "", "Constant", name);
    td_gnode_int(g, n, "value_int", value);
    return name;
}

static td_str constant_ints(td_graph *g, td_str name, int64_t value) {
    td_gnode *n = td_graph_add(g, "", "Constant", name);
    td_gnode_ints(g, n, "value_ints", &value, 1);
    return name;
}

/* float codes [..., blocks, size] * scales + minima, from bytes [..., blocks, bytes] and [..., blocks]. */
static td_str dequantised(td_graph *g, td_str bytes, td_str scales, td_str minima) {
    td_gnode *bits = td_graph_add(g, "", "Constant", TD_STR("bits"));
    td_gnode_ref(g, bits, "value_int", TD_ONNX_ATTR_INT, "bits");
    td_str one = constant_int(g, TD_STR("one"), 1), last = constant_ints(g, TD_STR("last"), -1);
    td_str steps = td_graph_op(g, "Range", TD_STR("steps"), constant_int(g, TD_STR("zero"), 0),
                               constant_int(g, TD_STR("eight"), 8), TD_STR("bits"));
    td_str shifts = td_graph_cast(g, TD_STR("shifts"), steps, TD_UINT8);
    td_str power = td_graph_op(g, "Pow", TD_STR("power"), constant_int(g, TD_STR("two"), 2), TD_STR("bits"), none);
    td_str mask = td_graph_cast(g, TD_STR("mask"), td_graph_op(g, "Sub", TD_STR("ones"), power, one, none), TD_UINT8);
    td_str column = td_graph_op(g, "Unsqueeze", TD_STR("column"), bytes, last, none);
    td_gnode *shift = td_graph_add(g, "", "BitShift", TD_STR("shifted"));
    td_gnode_input(g, shift, column);
    td_gnode_input(g, shift, shifts);
    td_gnode_text(g, shift, "direction", "RIGHT");
    td_str apart = td_graph_op(g, "BitwiseAnd", TD_STR("apart"), TD_STR("shifted"), mask, none);
    td_str blocks = td_graph_op(g, "Shape", TD_STR("blocks"), scales, none, none);
    td_gnode *shape = td_graph_add(g, "", "Concat", TD_STR("block_shape"));
    td_gnode_input(g, shape, blocks);
    td_gnode_input(g, shape, last);
    td_gnode_int(g, shape, "axis", 0);
    td_str codes = td_graph_cast(
        g, TD_STR("floats"), td_graph_op(g, "Reshape", TD_STR("flat"), apart, TD_STR("block_shape"), none), TD_FLOAT);
    td_str product = td_graph_op(g, "Mul", TD_STR("product"), codes,
                                 td_graph_op(g, "Unsqueeze", TD_STR("scale_column"), scales, last, none), none);
    return td_graph_op(g, "Add", TD_STR("weights"), product,
                       td_graph_op(g, "Unsqueeze", TD_STR("minimum_column"), minima, last, none), none);
}

static void matmul_body(td_graph *g) {
    td_str w = dequantised(g, TD_STR("codes"), TD_STR("scales"), TD_STR("minima"));
    td_gnode *shape = td_graph_add(g, "", "Constant", TD_STR("row_shape"));
    td_gnode_ints(g, shape, "value_ints", (const int64_t[]){0, -1}, 2);
    td_str rows = td_graph_op(g, "Reshape", TD_STR("rows"), w, TD_STR("row_shape"), none);
    td_gnode *turn = td_graph_add(g, "", "Transpose", TD_STR("columns"));
    td_gnode_input(g, turn, rows);
    td_gnode_ints(g, turn, "perm", (const int64_t[]){1, 0}, 2);
    td_graph_op(g, "MatMul", TD_STR("Y"), TD_STR("A"), TD_STR("columns"), none);
}

static void gather_body(td_graph *g) {
    td_str indices = TD_STR("indices");
    td_str codes = td_graph_op(g, "Gather", TD_STR("row_codes"), TD_STR("codes"), indices, none);
    td_str scales = td_graph_op(g, "Gather", TD_STR("row_scales"), TD_STR("scales"), indices, none);
    td_str minima = td_graph_op(g, "Gather", TD_STR("row_minima"), TD_STR("minima"), indices, none);
    td_str w = dequantised(g, codes, scales, minima);
    td_str outer = td_graph_op(g, "Shape", TD_STR("indices_shape"), indices, none, none);
    td_gnode *shape = td_graph_add(g, "", "Concat", TD_STR("output_shape"));
    td_gnode_input(g, shape, outer);
    td_gnode_input(g, shape, TD_STR("last"));
    td_gnode_int(g, shape, "axis", 0);
    td_graph_op(g, "Reshape", TD_STR("output"), w, TD_STR("output_shape"), none);
}

static void add_function(td_builder *b, const char *name, void (*body)(td_graph *), const td_str *inputs,
                         size_t n_inputs, const char *output) {
    td_graph inner;
    td_graph_init(&inner, b->graph.arena);
    body(&inner);
    td_str *names = TD_ARENA_ARRAY(b->graph.arena, td_str, n_inputs + 2);
    td_onnx_opset *opset = TD_ARENA_NEW(b->graph.arena, td_onnx_opset);
    const td_onnx_node *nodes = td_graph_nodes(&inner);
    if (!names || !opset || inner.failed) {
        b->graph.failed = true;
    } else {
        memcpy(names, inputs, n_inputs * sizeof *names);
        names[n_inputs] = td_str_from(output);
        names[n_inputs + 1] = TD_STR("bits");
        *opset = (td_onnx_opset){none, TD_FUNCTION_OPSET};
        td_onnx_function f = {.name = td_str_from(name),
                              .domain = TD_STR("treadle"),
                              .inputs = names,
                              .n_inputs = n_inputs,
                              .outputs = names + n_inputs,
                              .n_outputs = 1,
                              .attr_names = names + n_inputs + 1,
                              .n_attr_names = 1,
                              .nodes = nodes,
                              .n_nodes = inner.nodes.n,
                              .opsets = opset,
                              .n_opsets = 1};
        if (!td_vec_push(&b->graph.functions, f)) b->graph.failed = true;
    }
    td_graph_discard(&inner);
}

void td_part_functions(td_builder *b) {
    const td_str matmul[] = {TD_STR("A"), TD_STR("codes"), TD_STR("scales"), TD_STR("minima")};
    const td_str gather[] = {TD_STR("codes"), TD_STR("indices"), TD_STR("scales"), TD_STR("minima")};
    if (b->uses_matmul) add_function(b, "BlockAffineMatMul", matmul_body, matmul, TD_COUNT(matmul), "Y");
    if (b->uses_gather) add_function(b, "BlockAffineGather", gather_body, gather, TD_COUNT(gather), "output");
}
